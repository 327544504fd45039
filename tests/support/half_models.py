"""Sound models of many kinds, built under the dtype policy that is set.

Each differs from the others in what rounds: scores of attention, states of
recurrent layers, sums, residuals.
"""

import contextlib

import keras
from keras import layers

import keras_attn

SIZE = 14  # of both vocabularies
UNITS = 16
TEXT = keras_attn.Text("abcdefghij", split="characters")


@contextlib.contextmanager
def policy(name):
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(name)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


def inputs():
    return (
        keras.Input((None,), dtype="int32", name="source"),
        keras.Input((None,), dtype="int32", name="target"),
    )


def embed(ids, positions=False):
    x = layers.Embedding(SIZE, UNITS, mask_zero=True)(ids)
    return keras_attn.SinePositionEncoding()(x) if positions else x


def model_of(inputs, hidden, **options):
    return keras.Model(inputs, layers.Dense(SIZE, **options)(hidden))


def _attend(x, memory=None, first=True, **options):
    """A residual attention, which normalizes before or after."""
    # Tensors of its own, as the attention takes their masks off.
    query = (
        layers.LayerNormalization()(x) if first else layers.Rescaling(1.0)(x)
    )
    value = layers.LayerNormalization()(x if memory is None else memory)
    found = layers.MultiHeadAttention(4, UNITS // 4)(query, value, **options)
    x = layers.Add()([x, found])
    return x if first else layers.LayerNormalization()(x)


def _think(x, first=True):
    hidden = layers.LayerNormalization()(x) if first else x
    hidden = layers.Dense(4 * UNITS, "relu")(hidden)
    x = layers.Add()([x, layers.Dense(UNITS)(hidden)])
    return x if first else layers.LayerNormalization()(x)


def transformer(depth=1, first=True, **options):
    source, target = inputs()
    memory = embed(source, True)
    for _ in range(depth):
        memory = _think(_attend(memory, first=first), first)
    x = embed(target, True)
    for _ in range(depth):
        x = _attend(x, first=first, use_causal_mask=True)
        x = _think(_attend(x, memory, first=first), first)
    x = layers.LayerNormalization()(x)
    return model_of([source, target], x, **options)


def grouped():
    source, target = inputs()
    x, memory = embed(target, True), embed(source, True)
    attend = layers.GroupQueryAttention(4, 4, 2)
    x = x + attend(x, x, use_causal_mask=True)
    context = layers.GroupQueryAttention(4, 4, 2)(x, memory)
    return model_of([source, target], layers.LayerNormalization()(x + context))


def decoder(cell, attention, **options):
    """Both ways over the source, and an `AttentionDecoder`."""
    source, target = inputs()
    memory = layers.Bidirectional(layers.GRU(8, return_sequences=True))(
        embed(source)
    )
    hidden = keras_attn.AttentionDecoder(cell, attention, **options)(
        embed(target), memory
    )
    return model_of([source, target], hidden)


def recurrent(layer, attention):
    """A recurrent layer, then attention for all its positions."""
    source, target = inputs()
    memory = layers.LSTM(UNITS, return_sequences=True)(embed(source))
    x = layer(UNITS, return_sequences=True)(embed(target))
    context = attention(x, memory)
    return model_of([source, target], layers.Concatenate()([x, context]))


def deep():
    source, target = inputs()
    memory, x = embed(source), embed(target)
    for _ in range(3):
        memory = layers.GRU(UNITS, return_sequences=True)(memory)
        x = layers.LSTM(UNITS, return_sequences=True)(x)
    return model_of(
        [source, target], x + keras_attn.LuongAttention("general")(x, memory)
    )


def convolutional():
    """Dot products without a scale, and a causal convolution."""
    source, target = inputs()
    memory = layers.GRU(UNITS, return_sequences=True)(embed(source, True))
    x = layers.Conv1D(UNITS, 3, padding="causal", dilation_rate=2)(
        embed(target, True)
    )
    context = keras_attn.LuongAttention("dot")(x, memory)
    return model_of([source, target], x + context)


def of_keras():
    source, target = inputs()
    memory = layers.Dense(UNITS)(embed(source))
    x = embed(target, True)
    x = x + layers.Attention()([x, x], use_causal_mask=True)
    x = x + layers.AdditiveAttention()([x, memory])
    return model_of([source, target], x)


def within():
    """A model within a model."""
    source, target = inputs()
    given = keras.Input((None, UNITS))
    x = layers.GRU(UNITS, return_sequences=True)(given)
    inner = keras.Model(given, _think(x))
    x = inner(embed(target))
    context = keras_attn.BahdanauAttention(UNITS)(x, embed(source))
    return model_of([source, target], x + context)


SOUND = {
    "transformer": transformer,
    "transformer, two blocks": lambda: transformer(2),
    "transformer, norms last": lambda: transformer(first=False),
    "transformer, logits in float32": lambda: transformer(dtype="float32"),
    "grouped": grouped,
    "gru, bahdanau": lambda: decoder(
        layers.GRUCell(UNITS), keras_attn.BahdanauAttention(UNITS)
    ),
    "lstm, luong, after": lambda: decoder(
        layers.LSTMCell(UNITS),
        keras_attn.LuongAttention("general"),
        order="post",
    ),
    "gru, scaled dot": lambda: recurrent(
        layers.GRU, keras_attn.ScaledDotAttention()
    ),
    "lstm, monotonic": lambda: recurrent(
        layers.LSTM, keras_attn.BahdanauAttention(UNITS)
    ),
    "deep": deep,
    "causal convolution": convolutional,
    "of keras": of_keras,
    "within": within,
}


def enlarge(model, times=3.0):
    """Makes the kernels larger, as training does."""
    for weight in model.weights:
        if "kernel" in weight.name:
            weight.assign(weight * times)
    return model
