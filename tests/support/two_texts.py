"""A model with two source texts."""

import keras
from keras import layers

import keras_attn
from support import toys

TEXTS = {"question": toys.SOURCE, "hint": toys.WORDS}


def made(features=False, attends="question", seed=5):
    """Two encoders; the decoder attends to one and begins with the other."""
    question = keras.Input((None,), dtype="int32", name="question")
    hint = keras.Input((None,), dtype="int32", name="hint")
    speaker = keras.Input((3,), name="speaker")
    target = keras.Input((None,), dtype="int32", name="target")
    encoded = {
        "question": layers.GRU(8, return_sequences=True)(
            layers.Embedding(toys.SOURCE.size, 6, mask_zero=True)(question)
        ),
        "hint": layers.GRU(8, return_sequences=True)(
            layers.Embedding(toys.WORDS.size, 6, mask_zero=True)(hint)
        ),
    }
    memory = encoded.pop(attends)
    (other,) = encoded.values()
    state = layers.GRU(8)(other)
    inputs = [question, hint, target]
    if features:
        state = layers.Dense(8)(layers.Concatenate()([state, speaker]))
        inputs.insert(1, speaker)
    hidden = keras_attn.AttentionDecoder(
        layers.GRUCell(8), keras_attn.BahdanauAttention(5)
    )(
        layers.Embedding(toys.TARGET.size, 6, mask_zero=True)(target),
        memory,
        initial_state=state,
    )
    model = keras.Model(inputs, layers.Dense(toys.TARGET.size)(hidden))
    toys.speak_up(model, seed)
    return model
