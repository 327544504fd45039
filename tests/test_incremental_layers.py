"""Every kind of layer: the steps compute the same as the whole model.

These tests run on every backend that Keras runs on.
"""

import keras
import keras_hub
import numpy as np
import pytest
from cuts import SOURCE
from cuts import TARGET
from cuts import TARGETS
from cuts import assert_cut_equals_whole
from cuts import decoder
from cuts import embedded
from cuts import inputs
from cuts import run_by_steps
from cuts import speak_up
from cuts import with_path
from keras import layers
from keras import ops
from mechanisms import nth

import keras_attn
from keras_attn import Incremental

# Keras warns if a layer drops a mask; here that is often intended.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Layer '.*' .* was passed an input with a mask:UserWarning"
)


def rnn(layer, states=0):
    """A recurrent layer under cross-attention, with an initial state."""

    def build(x, memory):
        last = layers.GRU(6)(memory)
        state = [layers.Dense(6)(last) for _ in range(states)]
        given = {"initial_state": state[0] if states == 1 else state}
        x = layer(x, **given if states else {})
        return keras_attn.BahdanauAttention(4)(x, memory)

    return build


def attention_to_source(layer, **call):
    return lambda x, memory: layer(x, memory, **call)


def self_attention(layer, **call):
    def build(x, memory):
        x = layer(x, x, use_causal_mask=True, **call)
        return keras_attn.ScaledDotAttention()(x, memory)

    return build


def block(x, memory, own=None, cross=None):
    """A decoder block of a Transformer."""
    own = own or layers.MultiHeadAttention(2, 3)
    cross = cross or layers.MultiHeadAttention(3, 2)
    y = layers.LayerNormalization()(x)
    x = layers.Add()([x, own(y, y, use_causal_mask=True)])
    x = layers.Add()([x, cross(layers.LayerNormalization()(x), memory)])
    y = layers.Dense(8, "relu")(layers.LayerNormalization()(x))
    return layers.Add()([x, layers.Dropout(0.3)(layers.Dense(6)(y))])


def transformer(x, memory):
    x = keras_attn.SinePositionEncoding()(x)
    y = layers.LayerNormalization()(memory)
    memory = layers.Add()([memory, layers.MultiHeadAttention(2, 3)(y, y)])
    return block(block(x, memory), memory)


def nested_block(x, memory):
    inner = keras.Input((None, 6)), keras.Input((None, 6))
    hidden = keras_attn.PositionEmbedding(9)(inner[0])
    model = keras.Model(inner, block(hidden, inner[1]))
    return model([model([x, memory]), memory])  # twice, with the same weights


def nested_twice(x, memory):
    inner = keras.Input((None, 6))
    recurrent = keras.Sequential(
        [layers.GRU(6, return_sequences=True), layers.Dense(6)]
    )
    outer = keras.Model(inner, [recurrent(inner), layers.Dense(6)(inner)])
    first, second = outer(x)
    return decoder()(layers.Add()([first, second]), memory)


def gru_below_decoder(x, memory):
    x = layers.GRU(6, return_sequences=True)(x)
    return decoder(layers.LSTMCell(6), order="post")(x, memory)


def three_decoders(x, memory):
    x = decoder()(x, memory)
    x = decoder(attention=keras_attn.LuongAttention("general"))(x, memory)
    # The top decoder attends to nothing.
    return keras_attn.AttentionDecoder(layers.GRUCell(6))(x)


def other_keys(x, memory):
    """Queries, keys and values of three widths, each from its own layer."""
    own = keras_attn.Attention(
        keras_attn.AdditiveScore(4), heads=2, head_dim=3, value_dim=6
    )
    x = own(x, layers.Dense(5)(x), layers.Dense(4)(x), use_causal_mask=True)
    cross = layers.MultiHeadAttention(
        2, 3, value_dim=4, output_shape=5, use_bias=False
    )
    return cross(x, memory, layers.Dense(7)(memory))


def scores_used(x, memory):
    """The scores of an attention feed the next layer."""
    context, scores = keras_attn.BahdanauAttention(4)(
        layers.GRU(6, return_sequences=True)(x),
        memory,
        return_attention_scores=True,
    )
    expected = ops.einsum("bts,bsd->btd", scores, memory)
    return layers.Concatenate()([context, expected])


def own_mask(x, memory):
    """A mask of the source that is computed in the graph."""
    real = ops.expand_dims(ops.any(ops.not_equal(memory, 9.0), -1), 1)
    x = layers.GRU(6, return_sequences=True)(x)
    return layers.MultiHeadAttention(2, 3)(x, memory, attention_mask=real)


def masks_kept(x, memory):
    """An attention of Keras that keeps the mask of the memory."""
    x = layers.GRU(6, return_sequences=True)(x)
    x = layers.GroupQueryAttention(3, 2, 1)(x, memory)
    return keras_attn.ScaledDotAttention(heads=2)(x, memory)


def masks_given(x, memory):
    """Two attentions to a memory, of which Keras masks only the first."""
    real = ops.any(ops.not_equal(memory, 9.0), -1)
    for _ in range(2):
        x = layers.MultiHeadAttention(2, 3)(x, memory, value_mask=real)
    return layers.GRU(6, return_sequences=True)(x)


def hub_decoder(first):
    def build(x, memory):
        x = x + keras_hub.layers.PositionEmbedding(8)(x)
        x = keras_hub.layers.TransformerDecoder(8, 2, normalize_first=first)(
            x, memory
        )
        return keras_hub.layers.TransformerDecoder(8, 3)(x)

    return build


def rotary(x, memory):
    x = keras_hub.layers.RotaryEmbedding()(layers.Dense(4)(x))
    x = layers.GroupQueryAttention(3, 2, 1)(x, x, use_causal_mask=True)
    return keras_attn.BahdanauAttention(4)(x, memory)


def with_history(x, memory):
    attention = keras_attn.Attention(keras_attn.LocationSensitiveScore(4))
    return attention(layers.SimpleRNN(6, return_sequences=True)(x), memory)


def normalized(x, memory):
    x = layers.BatchNormalization()(layers.GRU(6, return_sequences=True)(x))
    return keras_attn.BahdanauAttention(4)(x, memory)


WHOLE = {"return_sequences": True}
PATHS = {
    "gru": rnn(layers.GRU(6, dropout=0.2, **WHOLE), states=1),
    "lstm": rnn(layers.LSTM(6, **WHOLE), states=2),
    "simple rnn": rnn(layers.SimpleRNN(6, **WHOLE)),
    "stacked cells": rnn(
        layers.RNN([layers.LSTMCell(4), layers.GRUCell(6)], **WHOLE)
    ),
    "gru, classic": rnn(layers.GRU(6, reset_after=False, **WHOLE), states=1),
    "our cell": rnn(layers.RNN(keras_attn.LayerNormLSTMCell(6), **WHOLE)),
    "cross": attention_to_source(layers.MultiHeadAttention(2, 3)),
    "cross, gated": attention_to_source(
        layers.MultiHeadAttention(2, 3, use_gate=True, dropout=0.1)
    ),
    "cross, groups": attention_to_source(layers.GroupQueryAttention(3, 4, 2)),
    "cross, ours": attention_to_source(
        keras_attn.Attention(keras_attn.GeneralScore(), heads=2)
    ),
    "own": self_attention(layers.MultiHeadAttention(2, 3)),
    "own, window": self_attention(
        layers.MultiHeadAttention(2, 3, sliding_window=2)
    ),
    "own, groups": self_attention(
        # A unique name: other tests make Keras number default names anew.
        layers.GroupQueryAttention(
            3, 4, 2, sliding_window=3, use_gate=True, name="own_groups"
        )
    ),
    "own, ours": self_attention(keras_attn.BahdanauAttention(4)),
    "own, entmax": self_attention(
        keras_attn.Attention(
            keras_attn.ScaledDotScore(),
            keras_attn.EntmaxAlignment(),
            heads=2,
        )
    ),
    "keras dot": lambda x, memory: layers.Attention(use_scale=True)(
        [layers.AdditiveAttention()([x, x], use_causal_mask=True), memory]
    ),
    "keras additive": lambda x, memory: layers.AdditiveAttention()(
        [layers.Attention()([x, x, x], use_causal_mask=True), memory, memory]
    ),
} | {
    build.__name__: build
    for build in (
        transformer,
        nested_block,
        nested_twice,
        gru_below_decoder,
        three_decoders,
        other_keys,
        scores_used,
        own_mask,
        masks_given,
        masks_kept,
        rotary,
        with_history,
        normalized,
    )
}
PATHS["hub"] = hub_decoder(first=False)
PATHS["hub, normalized first"] = hub_decoder(first=True)


@pytest.mark.few(2)
@pytest.mark.parametrize("name", nth(2, PATHS))
def test_each_hypothesis_gets_what_the_whole_model_computes(name):
    assert_cut_equals_whole(speak_up(with_path(PATHS[name])))


@pytest.mark.parametrize(
    "name",
    ["gru", "cross, groups", "keras dot", "masks_kept", "nested_block", "hub"],
)
def test_padding_of_a_source_changes_nothing(name):
    model = speak_up(with_path(PATHS[name]))
    cut = Incremental(model)
    logits, alignments = run_by_steps(cut, [SOURCE, TARGET])
    padding = np.broadcast_to((SOURCE == 0)[:, None], alignments.shape)
    assert not alignments[padding].any()
    alone, _ = run_by_steps(cut, [SOURCE[1:2, :2], TARGET[1:2]])
    np.testing.assert_allclose(logits[1:2], alone, atol=1e-5)
    mask = cut.source_mask(cut.encode(ops.convert_to_tensor(SOURCE)))
    np.testing.assert_array_equal(mask, SOURCE != 0)


def encoded_by(build, *shape, dtype="float32"):
    """A model whose source `shape` is encoded by `build`."""
    source = keras.Input(shape, dtype=dtype, name="source")
    _, target = inputs()
    x = layers.Embedding(TARGETS, 6)(target)
    memory = build(source)
    hidden = decoder()(layers.GRU(6, return_sequences=True)(x), memory)
    hidden = layers.MultiHeadAttention(2, 3)(hidden, memory)
    return keras.Model([source, target], layers.Dense(TARGETS)(hidden))


def of_an_image(image):
    """`(batch, 6, 4, 1)` -> `(batch, 3 * 2, 5)`."""
    x = layers.Conv2D(5, 3, strides=2, padding="same")(image)
    return layers.Reshape((-1, 5))(x)


def of_frames(frames):
    x = layers.Conv1D(6, 3, padding="same")(frames)
    return layers.Bidirectional(layers.LSTM(4, return_sequences=True))(x)


def of_tokens(ids):
    x = layers.Embedding(7, 8, mask_zero=True)(ids)
    x = keras_attn.PositionEmbedding(5)(x)
    return keras_hub.layers.TransformerEncoder(9, 2)(x)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "encoder, shape, dtype",
    [
        (of_an_image, (6, 4, 1), "float32"),
        (of_frames, (None, 3), "float32"),
        (of_tokens, (None,), "int32"),
    ],
)
def test_whatever_encodes_the_source_is_run_once(encoder, shape, dtype):
    assert_cut_equals_whole(speak_up(encoded_by(encoder, *shape, dtype=dtype)))


def test_several_sources_are_encoded_together():
    image = keras.Input((6, 4, 1), name="image")
    source, target = inputs()
    speaker = keras.Input((3,), name="speaker")
    memory, x = embedded(source, target)
    x = x + ops.expand_dims(layers.Dense(6)(speaker), 1)
    x = layers.GRU(6, return_sequences=True)(x)
    seen = layers.MultiHeadAttention(2, 3)(x, of_an_image(image))
    read = keras_attn.BahdanauAttention(4)(x, memory)
    logits = layers.Dense(TARGETS)(layers.Concatenate()([seen, read]))
    model = speak_up(keras.Model([image, source, speaker, target], logits))
    assert_cut_equals_whole(model)


def test_what_is_encoded_is_tensors_and_none_alone():
    """Passes `Encoded` from one function to the next, with its masks."""
    for name in ("nested_block", "hub", "masks_kept", "gru", "keras dot"):
        model = speak_up(with_path(PATHS[name]))
        cut = Incremental(model)
        encoded = cut.encode(ops.convert_to_tensor(SOURCE))
        state = cut.start(encoded, 1, 3)
        expected, *_ = cut.step(TARGET[:, :1], state, encoded)
        # New tensors, without the attributes of the old ones.
        encoded, state = keras.tree.map_structure(
            lambda x: None if x is None else ops.convert_to_tensor(np.array(x)),
            (encoded, state),
        )
        for x in keras.tree.flatten((encoded, state)):
            assert x is None or x.shape[0] == len(SOURCE)
        logits, _, _ = cut.step(TARGET[:, :1], state, encoded)
        np.testing.assert_allclose(logits, expected, atol=1e-6)


def test_a_decoder_of_keras_s_own_layers_attends_and_says_to_what():
    model = speak_up(with_path(transformer))
    _, alignments = run_by_steps(Incremental(model), [SOURCE, TARGET])
    assert alignments.shape == (3, 4, 5)
    attentions = [
        x for x in model.layers if isinstance(x, layers.MultiHeadAttention)
    ]
    last = attentions[-1]
    query, memory = last._inbound_nodes[-1].arguments.args
    _, by_head = last(
        *keras.Model(model.inputs, [query, memory])([SOURCE, TARGET]),
        return_attention_scores=True,
    )
    np.testing.assert_allclose(alignments, ops.mean(by_head, axis=1), atol=1e-5)


@pytest.mark.full
def test_half_precision_is_stepped_as_well():
    keras.config.set_dtype_policy("mixed_float16")
    try:
        model = with_path(
            lambda x, memory: hub_decoder(True)(transformer(x, memory), memory)
        )
    finally:
        keras.config.set_dtype_policy("float32")
    Incremental(model).check(*map(ops.convert_to_tensor, [SOURCE, TARGET]))


@pytest.mark.full
def test_a_model_of_all_kinds_saved_and_loaded_is_cut_as_well(tmp_path):
    model = speak_up(
        with_path(
            lambda x, memory: rotary(
                nested_block(gru_below_decoder(x, memory), memory), memory
            )
        )
    )
    expected = assert_cut_equals_whole(model)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(
        assert_cut_equals_whole(loaded), expected, atol=1e-5
    )
