"""`check()` finds a source that nothing reads, and a loss of other padding.

These tests run on every backend that Keras runs on.
"""

import keras
import numpy as np
import pytest
from keras import layers
from keras import ops
from support.cuts import SOURCES
from support.cuts import TARGETS
from support.cuts import decoder
from support.cuts import embedded
from support.cuts import inputs
from support.findings import DROPPED_MASKS
from support.findings import arrays
from support.findings import assert_doubtful
from support.findings import assert_good
from support.findings import look

import keras_attn

pytestmark = DROPPED_MASKS


def language_model(target):
    embed = layers.Embedding(TARGETS, 6, mask_zero=True)
    return layers.GRU(6, return_sequences=True)(embed(target))


def forgotten(hidden, source):
    return hidden


def times_zero(hidden, source):
    numbers = ops.cast(source, hidden.dtype)
    return hidden + 0.0 * ops.mean(numbers, axis=1, keepdims=True)[..., None]


@pytest.mark.parametrize("use", [forgotten, times_zero])
@pytest.mark.parametrize("dtype", ["int32", "float32", "bool"])
def test_a_source_that_nothing_reads_is_named(use, dtype):
    source = keras.Input((None,), dtype=dtype, name="letters")
    target = keras.Input((None,), dtype="int32", name="target")
    hidden = use(language_model(target), source)
    model = keras.Model([source, target], layers.Dense(TARGETS)(hidden))
    assert_doubtful(model, "ignored", None, "the input 'letters'")


def reading(use, shape=(), dtype="int32"):
    """A model that reads a source, and something else beside it."""
    source, target = inputs()
    more = keras.Input(shape, dtype=dtype, name="more")
    memory, x = embedded(source, target)
    hidden = decoder()(x, use(memory, more))
    logits = layers.Dense(TARGETS)(hidden)
    return keras.Model([source, more, target], logits)


READ = {
    "a number of rows": lambda: reading(
        lambda memory, more: memory * ops.cast(more, "float32")[:, None, None]
    ),
    "a length": lambda: reading(
        lambda memory, more: (
            memory * ops.cast(more > 1, "float32")[:, None, None]
        )
    ),
    "a length, cut": lambda: reading(
        lambda memory, more: (
            memory * ops.cast(ops.maximum(more, 3), "float32")[:, None, None]
        )
    ),
    "a mask": lambda: reading(
        lambda memory, more: ops.where(more[..., None], memory, 0.0),
        (None,),
        "bool",
    ),
    "padding of ids": lambda: reading(
        lambda memory, more: memory * ops.mean(ops.cast(more != 0, "float32")),
        (None,),
    ),
}


@pytest.mark.full
@pytest.mark.sample_cases(2)
@pytest.mark.parametrize("name", READ)
def test_numbers_that_are_no_ids_are_not_called_ignored(name):
    found, error = look(READ[name]())
    assert "ignored" not in error
    assert "ignored" not in [kind for kind, *_ in found]


# The padding of the loss


def compiled(loss, mask_zero=True):
    source, target = inputs()
    embed = layers.Embedding(SOURCES, 6, mask_zero=True)
    of_target = layers.Embedding(TARGETS, 6, mask_zero=mask_zero, name="words")
    hidden = decoder()(of_target(target), embed(source))
    model = keras.Model([source, target], layers.Dense(TARGETS)(hidden))
    model.compile("adam", loss=loss, jit_compile=False)
    return model


def padded_with(pad):
    """Data whose targets are padded with an id."""
    (source, given), target = arrays()
    rows = np.array([[4, 5, 2], [5, 2, pad], [2, pad, pad]])
    return (source[:3], np.array([[3, 4, 5], [3, 5, 2], [3, 2, 0]])), rows


def test_a_loss_that_leaves_out_another_id_than_the_padding_is_found():
    model = compiled(keras_attn.SequenceCrossentropy(padding_id=1))
    said = ["id 1", "padded with 0 in the data", "`padding_id=0`"]
    assert_doubtful(model, "padding", None, *said, data=padded_with(0))
    said = ["'words' takes 0 for padding", "`padding_id=0`"]
    assert_doubtful(model, "padding", None, *said)


def test_a_loss_of_the_usual_padding_is_found_where_data_have_another():
    model = compiled(keras_attn.SequenceCrossentropy(), mask_zero=False)
    found, error = look(model, padded_with(1))
    assert not error
    said = [x.text for x in found if "leaves out the id 0" in x.text]
    assert len(said) == 1 and "`padding_id=1`" in said[0]


@pytest.mark.parametrize("rows", [[[4, 5, 2]], [[4, 5, 5], [6, 5, 5]]])
def test_targets_without_padding_say_nothing_of_the_loss(rows):
    (source, _), _ = padded_with(0)
    rows = np.array(rows)
    given = np.concatenate([np.full((len(rows), 1), 3), rows[:, :-1]], 1)
    model = compiled(keras_attn.SequenceCrossentropy())
    assert_good(model, data=((source[: len(rows)], given), rows))


# Models with a training of their own


def test_a_model_of_scheduled_sampling_is_checked():
    plain = compiled(keras_attn.SequenceCrossentropy())
    model = keras_attn.ScheduledSamplingModel(
        plain.inputs, plain.outputs, probability=0.9
    )
    model.compile("adam", keras_attn.SequenceCrossentropy(), jit_compile=False)
    assert_good(model, data=padded_with(0))
    assert int(model.updates) == 0


def test_mistakes_in_a_model_of_scheduled_sampling_are_found():
    plain = compiled(keras_attn.SequenceCrossentropy())
    model = keras_attn.ScheduledSamplingModel(
        plain.inputs, ops.softmax(plain.outputs[0]), probability=0.9
    )
    model.compile("adam", keras_attn.SequenceCrossentropy(), jit_compile=False)
    _, error = look(model)
    assert "- softmax: " in error


def test_a_call_of_ones_own_is_refused_as_before():
    class Own(keras_attn.ScheduledSamplingModel):
        def call(self, inputs, training=None, mask=None):
            return -super().call(inputs, training=training, mask=mask)

    plain = compiled(keras_attn.SequenceCrossentropy())
    with pytest.raises(ValueError, match="needs a functional model"):
        keras_attn.check(Own(plain.inputs, plain.outputs, probability=0.9))


# A softmax that is trained


@pytest.mark.sample_cases(1)
@pytest.mark.parametrize("last", ["activation", "layer", "operation"])
def test_the_advice_on_a_softmax_makes_a_trained_model_pass(last):
    source, target = inputs()
    memory, x = embedded(source, target)
    hidden = decoder()(x, memory)
    logits = layers.Dense(TARGETS, name="last")
    output = {
        "activation": lambda: layers.Dense(TARGETS, "softmax", name="end")(
            hidden
        ),
        "layer": lambda: layers.Activation("softmax", name="end")(
            logits(hidden)
        ),
        "operation": lambda: ops.softmax(logits(hidden)),
    }[last]()
    model = keras.Model([source, target], output)
    model.compile("adam", keras_attn.SequenceCrossentropy(), jit_compile=False)
    _, error = look(model)
    weights = model.get_weights()
    if last != "operation":
        assert "`layer.activation = keras.activations.linear`" in error
        model.get_layer("end").activation = keras.activations.linear
    else:
        assert "`keras.Model(model.inputs, logits)`" in error
        model = keras.Model(model.inputs, model.get_layer("last").output)
    model.compile("adam", keras_attn.SequenceCrossentropy(), jit_compile=False)
    assert_good(model)
    for one, other in zip(weights, model.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
