"""Cutting a functional model: the steps compute the same as the model.

These tests run on every backend that Keras runs on.
"""

import keras
import numpy as np
import pytest
from keras import layers
from keras import ops
from support.cuts import SOURCE
from support.cuts import TARGET
from support.cuts import TARGETS
from support.cuts import assert_cut_equals_whole
from support.cuts import decoder
from support.cuts import embedded
from support.cuts import inputs
from support.cuts import run_by_steps
from support.cuts import with_path
from support.cuttable import MODELS
from support.mechanisms import nth

import keras_attn
from keras_attn import Incremental

# Keras warns if a layer drops a mask; here that is often intended.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Layer '.*' .* was passed an input with a mask:UserWarning"
)


@pytest.mark.sample_cases(1)
@pytest.mark.parametrize("name", nth(2, MODELS))
def test_each_hypothesis_gets_what_the_whole_model_computes(name):
    assert_cut_equals_whole(MODELS[name]())


@pytest.mark.parametrize("name", ["pre", "mask_given_by_hand", "feeding"])
def test_padding_of_a_source_is_never_attended_to(name):
    model = MODELS[name]()
    stepwise, alignments = run_by_steps(Incremental(model), [SOURCE, TARGET])
    padding = np.broadcast_to((SOURCE == 0)[:, None], alignments.shape)
    assert not alignments[padding].any()
    alone, _ = run_by_steps(Incremental(model), [SOURCE[1:2, :2], TARGET[1:2]])
    np.testing.assert_allclose(stepwise[1:2], alone, atol=1e-5)


@pytest.mark.full
@pytest.mark.parametrize("name", ["feeding", "layers_between", "two_decoders"])
def test_a_model_that_was_saved_and_loaded_is_cut_as_well(name, tmp_path):
    model = MODELS[name]()
    expected = assert_cut_equals_whole(model)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(
        assert_cut_equals_whole(loaded), expected, atol=1e-6
    )


def test_a_cut_follows_the_weights_of_its_model():
    model = MODELS["pre"]()
    cut = Incremental(model)
    before, _ = run_by_steps(cut, [SOURCE, TARGET])
    model.set_weights([1.5 * x for x in model.get_weights()])
    after, _ = run_by_steps(cut, [SOURCE, TARGET])
    assert np.abs(before - after).max() > 1e-3
    whole = ops.convert_to_numpy(model([SOURCE, TARGET]))
    np.testing.assert_allclose(after, whole, atol=1e-5)


@pytest.mark.full
def test_mixed_precision_is_cut_as_well():
    keras.config.set_dtype_policy("mixed_float16")
    try:
        model = MODELS["pre"]()
    finally:
        keras.config.set_dtype_policy("float32")
    Incremental(model).check(*map(ops.convert_to_tensor, [SOURCE, TARGET]))


def test_a_decoder_inside_a_nested_model_is_stepped_through():
    hidden = keras.Input((None, 6))
    memory = keras.Input((None, 6))
    inner = keras.Model([hidden, memory], decoder()(hidden, memory))
    source, target = inputs()
    source_embedding, embedding = embedded(source, target)
    hidden = inner([embedding, source_embedding])
    assert_cut_equals_whole(
        keras.Model([source, target], layers.Dense(TARGETS)(hidden))
    )


class DroppedUnlessTold(layers.Layer):
    """Trains by default, as `keras.layers.Layer` allows."""

    def call(self, inputs, training=True):
        return 2 * inputs if training else inputs


def test_a_layer_that_trains_unless_told_otherwise_is_told():
    source, target = inputs()
    memory, embedded_target = embedded(source, target)
    hidden = DroppedUnlessTold()(decoder()(embedded_target, memory))
    model = keras.Model([source, target], layers.Dense(TARGETS)(hidden))
    stepwise, _ = run_by_steps(Incremental(model), [SOURCE, TARGET])
    whole = model([SOURCE, TARGET], training=False)
    np.testing.assert_allclose(stepwise, whole, atol=1e-5)


class ConvolvedKeys(keras_attn.Score):
    """Uses a weight in `project`, in the precision of `call`."""

    def build(self, query_shape, key_shape):
        self.kernel = self.add_weight(shape=(3, key_shape[-1], query_shape[-1]))

    def project(self, key):
        return ops.conv(key, self.kernel, padding="same")

    def call(self, query, keys):
        return ops.matmul(query, ops.swapaxes(keys, 1, 2))


def test_keys_are_projected_in_the_precision_of_training():
    attention = keras_attn.Attention(
        ConvolvedKeys(dtype="mixed_float16"), dtype="mixed_float16"
    )
    source, target = inputs()
    memory, embedded_target = embedded(source, target)
    half = decoder(attention=attention, dtype="mixed_float16")
    logits = layers.Dense(TARGETS)(half(embedded_target, memory))
    Incremental(keras.Model([source, target], logits)).encode(SOURCE)
    keys, *_ = attention.prepare(np.ones((1, 4, 6), "float32"))
    assert keras.backend.standardize_dtype(keys.dtype) == "float16"


class Learned(layers.Layer):
    """Vectors that are the same for all rows, `(rows, 1, dim)`."""

    def __init__(self, rows, **kwargs):
        super().__init__(**kwargs)
        self.rows = rows

    def build(self, shape):
        self.vectors = self.add_weight(shape=(self.rows, 1, shape[-1]))

    def call(self, inputs):
        return self.vectors * 1.0

    def compute_output_shape(self, shape):
        return (self.rows, 1, shape[-1])


class Biased(layers.Layer):
    """Adds the mean of some vectors, which have no axis of the batch."""

    def call(self, inputs, vectors):
        return inputs + ops.mean(vectors, axis=0, keepdims=True)


@pytest.mark.parametrize("rows", [1, 7])
def test_a_tensor_without_an_axis_of_the_batch_may_be_read_first(rows):
    def path(x, memory):
        x = Biased()(x, Learned(rows)(memory))
        x = layers.GRU(6, return_sequences=True)(x)
        return layers.Add()([x, layers.Attention()([x, memory])])

    model = with_path(path)
    assert_cut_equals_whole(model)
    cut = Incremental(model)
    state = cut.start(cut.encode(SOURCE), beams=2)
    assert {tuple(x.shape[:2]) for x in keras.tree.flatten(state)} == {(3, 2)}


@pytest.mark.parametrize("tied", [False, True])
def test_a_restricted_vocabulary_may_have_a_known_size(tied):
    def path(source, target):
        memory, _ = embedded(source, target)
        embed = keras_attn.TiedEmbedding(TARGETS, 6, mask_zero=True)
        hidden = decoder()(embed(target), memory)
        last = layers.Dense(TARGETS)
        return embed(hidden, reverse=True) if tied else last(hidden)

    source, target = inputs()
    cut = Incremental(keras.Model([source, target], path(source, target)))
    whole, _, _ = first_step(cut, cut.encode(SOURCE))
    ids = np.array([7, 2, 5], "int32")
    some, encoded = cut.restrict_vocabulary(
        cut.encode(SOURCE), ids, np.zeros((3, 3), "float32")
    )
    found, _, _ = first_step(some, encoded)
    np.testing.assert_allclose(
        ops.convert_to_numpy(found),
        ops.convert_to_numpy(whole)[..., ids],
        atol=1e-5,
    )


def first_step(cut, encoded):
    return cut.step(TARGET[:, :1], cut.start(encoded), encoded)
