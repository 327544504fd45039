"""The net of the README's tour with random weights, exported."""

import keras
from keras import layers

import keras_attn

NAME = "tour"
_LETTERS = "abcdefghijklmnopqrstuvwxyz'-."
_PHONES = 70  # with the special tokens about as many as the tour's data has


def export(folder):
    """Exports the net; returns the directory of its version."""
    keras.utils.set_random_seed(0)
    source_text = keras_attn.Text.from_lines([_LETTERS], split="characters")
    target_text = keras_attn.Text.from_lines(
        [f"P{i}" for i in range(_PHONES)], split="whitespace"
    )
    source = keras.Input((None,), dtype="int32", name="source")
    target = keras.Input((None,), dtype="int32", name="target")
    memory, forward, backward = layers.Bidirectional(
        layers.GRU(128, return_sequences=True, return_state=True)
    )(layers.Embedding(source_text.size, 64, mask_zero=True)(source))
    start = layers.Dense(256, activation="tanh")(
        layers.Concatenate()([forward, backward])
    )
    decoder = keras_attn.AttentionDecoder(
        layers.GRUCell(256), keras_attn.BahdanauAttention(256)
    )
    hidden = decoder(
        layers.Embedding(target_text.size, 64, mask_zero=True)(target),
        memory,
        initial_state=start,
    )
    model = keras.Model(
        [source, target], layers.Dense(target_text.size)(hidden)
    )
    translator = keras_attn.Translator(
        model,
        source_text,
        target_text,
        search=keras_attn.BeamSearch(5, num_hypotheses=3),
    )
    return translator.export(folder)
