"""The net of the README's tour with random weights."""

import keras
from keras import layers

import keras_attn

NAME = "tour"
_LETTERS = "abcdefghijklmnopqrstuvwxyz'-."
_PHONES = 70  # with the special tokens about as many as the tour's data has


def export(folder):
    """Exports the net; returns the directory of its version."""
    return translator().export(folder)


def translator(units=128, max_length=1000):
    """Returns the translator.

    Args:
        units: Units of each direction of the encoder; the decoder has twice
            as many.
        max_length: Most tokens of a text.
    """
    keras.utils.set_random_seed(0)
    source_text = keras_attn.Text.from_lines(
        [_LETTERS], split="characters", max_length=max_length
    )
    target_text = keras_attn.Text.from_lines(
        [f"P{i}" for i in range(_PHONES)],
        split="whitespace",
        max_length=max_length,
    )
    source = keras.Input((None,), dtype="int32", name="source")
    target = keras.Input((None,), dtype="int32", name="target")
    memory, forward, backward = layers.Bidirectional(
        layers.GRU(units, return_sequences=True, return_state=True)
    )(layers.Embedding(source_text.size, 64, mask_zero=True)(source))
    start = layers.Dense(2 * units, activation="tanh")(
        layers.Concatenate()([forward, backward])
    )
    decoder = keras_attn.AttentionDecoder(
        layers.GRUCell(2 * units), keras_attn.BahdanauAttention(2 * units)
    )
    hidden = decoder(
        layers.Embedding(target_text.size, 64, mask_zero=True)(target),
        memory,
        initial_state=start,
    )
    model = keras.Model(
        [source, target], layers.Dense(target_text.size)(hidden)
    )
    return keras_attn.Translator(
        model,
        source_text,
        target_text,
        search=keras_attn.BeamSearch(5, num_hypotheses=3),
    )
