"""`check()` warns where padding's mask is lost.

These tests run on every backend that Keras runs on.
"""

import functools

import keras
import pytest
from keras import layers
from keras import ops
from support.cuts import SOURCES
from support.cuts import TARGETS
from support.cuts import decoder
from support.cuts import embedded
from support.cuts import inputs
from support.cuts import with_path
from support.findings import DROPPED_MASKS
from support.findings import NAMED
from support.findings import WHOLE
from support.findings import assert_doubtful
from support.findings import assert_good
from support.findings import assert_wrong
from support.findings import attend
from support.findings import in_a_nested_model
from support.findings import with_encoder

import keras_attn

pytestmark = DROPPED_MASKS


def without_mask_zero(mask_zero):
    source, target = inputs()
    embed = layers.Embedding(SOURCES, 6, mask_zero=mask_zero, name="culprit")
    _, x = embedded(source, target)
    memory = layers.Dense(6)(embed(source))
    logits = layers.Dense(TARGETS)(attend(x, memory))
    return keras.Model([source, target], logits)


def with_summary(summarize):
    """A model that also adds one vector for the whole source."""

    def build(x, memory):
        whole = layers.RepeatVector(1)(summarize(memory))
        return layers.Add()([attend(x, memory), whole])

    return with_path(build)


def last_state(mask):
    def summarize(x):
        start = layers.Dense(6)(layers.GlobalAveragePooling1D()(x))
        real = {"mask": ops.any(ops.not_equal(x, 0.0), -1)} if mask else {}
        return layers.GRU(6, **NAMED)(x, initial_state=start, **real)

    return summarize


def two_attentions(first=None, second=None):
    def build(x, memory):
        one = first(memory) if first else memory
        two = second(memory) if second else memory
        x = layers.MultiHeadAttention(2, 3, **NAMED)(x, one)
        return layers.MultiHeadAttention(2, 3)(x, two)

    return build


LOSE_MASKS = {
    "an embedding without a mask": (
        lambda: without_mask_zero(False),
        lambda: without_mask_zero(True),
        "makes no mask. Pass `mask_zero=True`",
    ),
    "an operation": (
        lambda: with_encoder(layers.Lambda(lambda x: x * 2.0, **NAMED)),
        lambda: with_encoder(layers.Rescaling(2.0)),
        "drops the mask, so 'scaled_dot_attention",
    ),
    "a reshape": (
        lambda: with_encoder(
            lambda x: layers.Reshape((-1, 6))(
                layers.Reshape((-1, 2, 3), **NAMED)(x)
            )
        ),
        lambda: with_encoder(layers.Identity()),
        "drops the mask",
    ),
    "an operation in a nested model": (
        lambda: with_encoder(
            in_a_nested_model(layers.Lambda(lambda x: x * 2.0, **NAMED))
        ),
        lambda: with_encoder(in_a_nested_model(layers.Rescaling(2.0))),
        "drops the mask",
    ),
    "an attention of Keras before another": (
        lambda: with_path(two_attentions()),
        lambda: with_path(
            two_attentions(layers.Rescaling(1.0), layers.Rescaling(1.0))
        ),
        "removes the mask of its input, so 'multi_head_attention",
    ),
    "a convolution": (
        lambda: with_encoder(layers.Conv1D(6, 3, padding="same", **NAMED)),
        lambda: with_encoder(layers.Dense(6)),
        "takes no mask",
    ),
    "pooling": (
        lambda: with_summary(layers.GlobalMaxPooling1D(**NAMED)),
        lambda: with_summary(layers.GlobalAveragePooling1D()),
        "takes no mask",
    ),
    "one that reads what a layer passed on as it was": (
        lambda: with_path(two_attentions(layers.Dropout(0.1))),
        lambda: with_path(two_attentions(layers.Rescaling(1.0))),
        "removes the mask of its input, so 'multi_head_attention",
    ),
    "features": (
        lambda: (
            with_encoder(layers.GRU(6, **WHOLE, **NAMED), ids=False)
            if False
            else with_encoder(
                layers.Bidirectional(layers.GRU(3, **WHOLE), **NAMED), ids=False
            )
        ),
        lambda: with_encoder(
            lambda x: layers.Bidirectional(layers.GRU(3, **WHOLE))(
                layers.Masking()(x)
            ),
            ids=False,
        ),
        "Put `keras.layers.Masking()` between",
    ),
}


@pytest.mark.sample_cases(3)
@pytest.mark.parametrize("name", LOSE_MASKS)
def test_a_mask_that_is_lost_is_found_where_it_goes(name):
    bad, good, said = LOSE_MASKS[name]
    assert_doubtful(bad(), "mask", "culprit", "Padding of the source", said)
    assert_good(good())


def test_a_recurrent_layer_with_a_first_state_is_given_no_mask():
    assert_doubtful(
        with_summary(last_state(mask=False)),
        "mask",
        "culprit",
        "called with `initial_state`",
        "`mask=keras.ops",
    )


def with_mask_as_an_input(change, attention, dtype="bool"):
    source, target = inputs()
    real = keras.Input((None,), dtype=dtype, name="real")
    memory = layers.Embedding(SOURCES, 6)(source)
    x = change(layers.Embedding(TARGETS, 6, mask_zero=True)(target))
    # Drawn floats are of both signs.
    hidden = attention(x, memory, real if dtype == "bool" else real > 0)
    return keras.Model([source, real, target], layers.Dense(TARGETS)(hidden))


def ours(x, memory, real):
    return keras_attn.ScaledDotAttention()(x, memory, value_mask=real)


def of_keras(x, memory, real):
    attention = layers.MultiHeadAttention(2, 3)
    return x + attention(x, memory, attention_mask=real[:, None])


class Averaging(layers.Layer):
    """Adds the mean of all positions, with padding."""

    def call(self, x, memory, real):
        first = ops.cast(real[:, :1, None], x.dtype)
        return x + first * ops.mean(memory, axis=1, keepdims=True)


@pytest.mark.sample_cases(1)
@pytest.mark.parametrize("attention", [ours, of_keras])
@pytest.mark.parametrize("dtype", ["bool", "int32"])
def test_a_mask_of_the_source_may_be_an_input(attention, dtype):
    build = functools.partial(
        with_mask_as_an_input, attention=attention, dtype=dtype
    )
    assert_good(build(lambda x: x))
    both_ways = layers.Bidirectional(layers.GRU(3, **WHOLE), **NAMED)
    assert_wrong(build(both_ways), "leak", "'culprit'")


def test_a_mask_that_is_an_input_and_is_not_used_is_found():
    def attention(x, memory, real):
        return Averaging(**NAMED)(x, layers.Masking()(memory), real)

    model = with_mask_as_an_input(lambda x: x, attention)
    assert_doubtful(model, "mask", "culprit", "and does not use it")


def test_an_integer_mask_is_padded_with_0_whatever_the_padding_of_ids():
    model = with_mask_as_an_input(lambda x: x, ours, "int32")
    assert keras_attn.check(model, padding_id=1) == []


def test_ids_that_an_operation_reads_are_padded_with_the_id_of_padding():
    source, target = (keras.Input((None,), dtype="int32") for _ in range(2))
    real = ops.not_equal(source, 1)
    embed = layers.Embedding(20, 8)
    memory = embed(ops.minimum(source, 19))
    hidden = layers.GRU(8, return_sequences=True)(embed(target))
    hidden += keras_attn.BahdanauAttention(8)(hidden, memory, value_mask=real)
    model = keras.Model([source, target], layers.Dense(20)(hidden))
    assert keras_attn.check(model, padding_id=1) == []


@pytest.mark.full
def test_the_advice_on_a_mask_has_the_id_of_padding():
    with pytest.warns(UserWarning, match=r"mask `keras.ops.not_equal\(ids, 1"):
        ((kind, layer, _),) = keras_attn.check(
            without_mask_zero(False), padding_id=1
        )
    assert (kind, layer) == ("mask", "culprit")


def test_ids_as_floats_are_padded():
    source = keras.Input((None,), name="source")
    target = keras.Input((None,), name="target")
    memory = layers.Embedding(SOURCES, 6, **NAMED)(source)
    x = layers.Embedding(TARGETS, 6, mask_zero=True)(target)
    hidden = keras_attn.ScaledDotAttention()(x, memory)
    model = keras.Model([source, target], layers.Dense(TARGETS)(hidden))
    assert_doubtful(model, "mask", "culprit", "makes no mask")


@pytest.mark.full
def test_leaks_are_found_in_a_model_that_fails_on_padding():
    def build(change):
        # The mask is of floats, which are taken for features and not padded.
        return with_mask_as_an_input(change, of_keras, "float32")

    said = "made-up inputs with padding, so the effect of padding"
    assert_doubtful(build(lambda x: x), "run", None, said)
    both_ways = layers.Bidirectional(layers.GRU(3, **WHOLE), **NAMED)
    assert_wrong(build(both_ways), "leak", "'culprit'")


def test_a_mask_that_is_given_by_hand_may_be_wrong():
    def build(real):
        source, target = inputs()
        memory = layers.Embedding(SOURCES, 6)(source)
        x = layers.Embedding(TARGETS, 6, mask_zero=True)(target)
        hidden = decoder(**NAMED)(x, memory, memory_mask=real(source))
        return keras.Model([source, target], layers.Dense(TARGETS)(hidden))

    assert_good(build(lambda ids: ops.not_equal(ids, 0)))
    assert_doubtful(
        build(lambda ids: ops.not_equal(ids, 77)),
        "mask",
        "culprit",
        "gets a mask as an argument",
    )
