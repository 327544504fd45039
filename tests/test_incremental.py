"""Cutting a functional model: the steps compute the same as the model.

These tests run on every backend that Keras runs on.
"""

import keras
import numpy as np
import pytest
from cuts import SOURCE
from cuts import SOURCES
from cuts import TARGET
from cuts import TARGETS
from cuts import assert_cut_equals_whole
from cuts import decoder
from cuts import embedded
from cuts import inputs
from cuts import run_by_steps
from keras import layers
from keras import ops
from mechanisms import nth

import keras_attn
from keras_attn import Incremental

# Keras warns if a layer drops a mask; here that is often intended.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Layer '.*' .* was passed an input with a mask:UserWarning"
)


def gru_encoder(memory):
    memory, state = layers.GRU(6, return_sequences=True, return_state=True)(
        memory
    )
    return memory, state


def simple(**options):
    def build():
        source, target = inputs()
        memory, embedding = embedded(source, target)
        memory, state = gru_encoder(memory)
        hidden = decoder(**options)(embedding, memory, initial_state=state)
        return keras.Model([source, target], layers.Dense(TARGETS)(hidden))

    return build


def lstm_with_both_states():
    source, target = inputs()
    memory, embedding = embedded(source, target)
    memory, h, c = layers.LSTM(6, return_sequences=True, return_state=True)(
        memory
    )
    hidden = decoder(layers.LSTMCell(6), order="post")(
        embedding, memory, initial_state=[h, c]
    )
    return keras.Model([source, target], layers.Dense(TARGETS)(hidden))


def stack_without_states():
    source, target = inputs()
    memory, embedding = embedded(source, target)
    stack = [layers.LSTMCell(3), layers.GRUCell(6)]
    hidden = decoder(stack, emit="concatenated")(embedding, memory)
    return keras.Model([source, target], layers.Dense(TARGETS)(hidden))


def memory_straight_from_the_input():
    source = keras.Input((None, 4), name="source")
    _, target = inputs()
    embedding = layers.Embedding(TARGETS, 6)(target)
    hidden = decoder()(embedding, source)
    return keras.Model([source, target], layers.Dense(TARGETS)(hidden))


def layers_between():
    source, target = inputs()
    memory, embedding = embedded(source, target)
    memory, state = gru_encoder(memory)
    embedding = layers.LayerNormalization()(embedding)
    embedding = layers.Dropout(0.5)(embedding)
    hidden = decoder()(embedding, memory, initial_state=state)
    hidden = layers.Add()([hidden, embedding])  # a residual
    hidden = layers.LayerNormalization()(hidden)
    hidden = layers.Activation("relu")(layers.Dense(8)(hidden))
    hidden = layers.Concatenate()([hidden, embedding])
    logits = layers.TimeDistributed(layers.Dense(TARGETS))(hidden)
    return keras.Model([source, target], logits * 0.5)


def shared_embedding():
    source, target = inputs()
    embed = layers.Embedding(TARGETS, 6, mask_zero=True)
    memory, state = gru_encoder(embed(source))
    hidden = decoder()(embed(target), memory, initial_state=state)
    # Tied weights: the same layer turns states into logits.
    logits = ops.matmul(hidden, ops.transpose(embed.embeddings))
    return keras.Model([source, target], logits)


def nested_encoder_and_head():
    source, target = inputs()
    ids = keras.Input((None,), dtype="int32")
    encoder = keras.Model(
        ids, gru_encoder(layers.Embedding(SOURCES, 6, mask_zero=True)(ids))
    )
    head = keras.Sequential([layers.Dense(5, "relu"), layers.Dense(TARGETS)])
    memory, state = encoder(source)
    embedding = layers.Embedding(TARGETS, 6, mask_zero=True)(target)
    hidden = decoder()(embedding, memory, initial_state=state)
    return keras.Model([source, target], head(hidden))


def convolutional_encoder():
    source, target = inputs()
    memory, embedding = embedded(source, target)
    memory = layers.Conv1D(6, 3, padding="same", activation="relu")(memory)
    start = layers.GlobalAveragePooling1D()(memory)
    hidden = decoder()(embedding, memory, initial_state=start)
    return keras.Model([source, target], layers.Dense(TARGETS)(hidden))


def mask_given_by_hand():
    source, target = inputs()
    memory = layers.Embedding(SOURCES, 6)(source)
    embedding = layers.Embedding(TARGETS, 6)(target)
    hidden = decoder()(embedding, memory, memory_mask=ops.not_equal(source, 0))
    return keras.Model([source, target], layers.Dense(TARGETS)(hidden))


def with_attention_scores():
    source, target = inputs()
    memory, embedding = embedded(source, target)
    hidden, _ = decoder()(embedding, memory, return_attention_scores=True)
    return keras.Model([source, target], layers.Dense(TARGETS)(hidden))


def two_decoders():
    source, target = inputs()
    memory, embedding = embedded(source, target)
    hidden = decoder()(embedding, memory)
    hidden = decoder(layers.LSTMCell(6), order="post")(hidden, memory)
    return keras.Model([source, target], layers.Dense(TARGETS)(hidden))


def two_sources():
    source, target = inputs()
    other = keras.Input((3,), name="speaker")
    memory, embedding = embedded(source, target)
    start = layers.Dense(6)(other)
    hidden = decoder()(embedding, memory, initial_state=start)
    return keras.Model([source, other, target], layers.Dense(TARGETS)(hidden))


MODELS = {
    "pre": simple(),
    "post": simple(order="post", input_feeding=False),
    "feeding": simple(order="post"),
    "luong": simple(
        attention=keras_attn.LuongAttention("concat", 4), order="post"
    ),
    "dot": simple(attention=keras_attn.ScaledDotAttention(), order="post"),
    "dropout": simple(
        cell=layers.GRUCell(6, dropout=0.5, recurrent_dropout=0.5),
        attention=keras_attn.BahdanauAttention(5, dropout=0.5),
    ),
} | {
    build.__name__: build
    for build in (
        lstm_with_both_states,
        stack_without_states,
        memory_straight_from_the_input,
        layers_between,
        shared_embedding,
        nested_encoder_and_head,
        convolutional_encoder,
        mask_given_by_hand,
        with_attention_scores,
        two_decoders,
        two_sources,
    )
}


@pytest.mark.few(3)
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


@pytest.mark.few(1)
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
