"""Small translators with seeded weights, one for each shape of a model.

They are not trained: their outputs mean nothing, but they vary in length and
some are cut, which is what the tests need. Each is made in about a second.
"""

import functools

import keras
import numpy as np
from keras import layers

import keras_attn

SOURCE = keras_attn.Text("abcdeé", split="characters")
TARGET = keras_attn.Text(
    ["AA", "B", "K", "D", "EH", "ñ"], split="whitespace", max_length=20
)
WORDS = keras_attn.Text(
    ["abc", "dead", "bad", "cab"],
    split="whitespace",
    lowercase=True,
    max_length=30,
    too_long="error",
)
LINES = ["abc", "", "dead", "é?é", "edcbaabcde", "b", "bad cab", "aaaaa"]


class Toys:
    """`toys["pre"]` is a `Translator`; its models are made once."""

    def __init__(self):
        self._made = {}

    def __getitem__(self, name):
        if name not in self._made:
            self._made[name] = MAKERS[name]()
        return self._made[name]


def model(decoder, encoder=None, seed=24, source_text=SOURCE):
    """An encoder, a decoder and logits, with weights that speak up."""
    source = keras.Input((None,), dtype="int32", name="source")
    target = keras.Input((None,), dtype="int32", name="target")
    memory = layers.Embedding(source_text.size, 8, mask_zero=True)(source)
    memory, states = (encoder or gru_encoder)(memory)
    embedded = layers.Embedding(TARGET.size, 6, mask_zero=True)(target)
    hidden = decoder(embedded, memory, initial_state=states)
    logits = layers.Dense(TARGET.size)(hidden)
    made = keras.Model([source, target], logits)
    speak_up(made, seed)
    return made


def speak_up(made, seed):
    """Larger weights than a fresh model has; seeds chosen for variety."""
    random = np.random.default_rng(seed)
    made.set_weights(
        [
            random.normal(scale=0.9, size=x.shape).astype(x.dtype)
            for x in made.get_weights()
        ]
    )


def gru_encoder(memory):
    memory, forward, backward = layers.Bidirectional(
        layers.GRU(4, return_sequences=True, return_state=True)
    )(memory)
    return memory, layers.Concatenate()([forward, backward])


def lstm_encoder(memory):
    memory, h, c = layers.LSTM(8, return_sequences=True, return_state=True)(
        memory
    )
    return memory, [h, c]


def no_state(memory):
    return memory, None


def pre():
    decoder = keras_attn.AttentionDecoder(
        layers.GRUCell(8), keras_attn.BahdanauAttention(8)
    )
    search = keras_attn.BeamSearch(
        4, num_hypotheses=3, length_penalty=0.6, max_length=12
    )
    return keras_attn.Translator(model(decoder, seed=9), SOURCE, TARGET, search)


def greedy():
    search = keras_attn.GreedySearch(max_length=10)
    return keras_attn.Translator(_pre_model(), SOURCE, TARGET, search)


def feeding():
    decoder = keras_attn.AttentionDecoder(
        layers.LSTMCell(8), keras_attn.LuongAttention("general"), order="post"
    )
    search = keras_attn.BeamSearch(
        3, num_hypotheses=2, early_stopping="never", max_length=9
    )
    return keras_attn.Translator(
        model(decoder, lstm_encoder, seed=12), SOURCE, TARGET, search
    )


def stack():
    decoder = keras_attn.AttentionDecoder(
        [layers.GRUCell(5), layers.LSTMCell(8)],
        keras_attn.ScaledDotAttention(),
        order="post",
        input_feeding=False,
        emit="concatenated",
    )
    search = keras_attn.BeamSearch(2, max_length=8, early_stopping=True)
    return keras_attn.Translator(
        model(decoder, no_state, seed=0), SOURCE, TARGET, search
    )


def words():
    decoder = keras_attn.AttentionDecoder(
        layers.GRUCell(8), keras_attn.LuongAttention("concat", 6), order="post"
    )
    search = keras_attn.BeamSearch(2, max_length=6, length_penalty=1.0)
    return keras_attn.Translator(
        model(decoder, seed=2, source_text=WORDS), WORDS, TARGET, search
    )


def transformer():
    """Keras's own layers: a Transformer whose decoder begins with a GRU."""
    source = keras.Input((None,), dtype="int32", name="source")
    target = keras.Input((None,), dtype="int32", name="target")
    memory = layers.Embedding(SOURCE.size, 8, mask_zero=True)(source)
    memory = keras_attn.PositionEmbedding(30)(memory)
    x = layers.LayerNormalization()(memory)
    x = layers.MultiHeadAttention(2, 4)(x, x)
    memory = layers.Add()([memory, x])
    x = layers.Embedding(TARGET.size, 8, mask_zero=True)(target)
    x = keras_attn.SinePositionEncoding()(x)
    x = layers.GRU(8, return_sequences=True)(x)
    own = layers.MultiHeadAttention(2, 4)(x, x, use_causal_mask=True)
    x = layers.LayerNormalization()(layers.Add()([x, own]))
    x = layers.Add()([x, layers.MultiHeadAttention(4, 2)(x, memory)])
    logits = layers.Dense(TARGET.size)(layers.LayerNormalization()(x))
    made = keras.Model([source, target], logits)
    speak_up(made, seed=36)
    search = keras_attn.BeamSearch(3, num_hypotheses=2, max_length=9)
    return keras_attn.Translator(made, SOURCE, TARGET, search)


def compiled():
    return keras_attn.Translator(
        _pre_model(),
        SOURCE,
        TARGET,
        keras_attn.BeamSearch(3, num_hypotheses=2, max_length=7),
        jit_compile=True,
    )


@functools.cache
def _pre_model():
    decoder = keras_attn.AttentionDecoder(
        layers.GRUCell(8), keras_attn.BahdanauAttention(8)
    )
    return model(decoder)


MAKERS = {
    "pre": pre,
    "greedy": greedy,
    "feeding": feeding,
    "stack": stack,
    "words": words,
    "transformer": transformer,
    "compiled": compiled,
}
