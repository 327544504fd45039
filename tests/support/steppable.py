"""Layers of a decoder, each a path from the target to the logits."""

import keras
import keras_hub
from keras import layers
from keras import ops

import keras_attn
from support.cuts import TARGETS
from support.cuts import decoder
from support.cuts import inputs


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
        keras_attn.AdditiveScore(4), num_heads=2, head_dim=3, value_dim=6
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
    return keras_attn.ScaledDotAttention(num_heads=2)(x, memory)


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
        keras_attn.Attention(keras_attn.GeneralScore(), num_heads=2)
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
            num_heads=2,
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
