"""Mechanisms in groups, a model for each."""

import keras
from keras import layers

import keras_attn
from support import toys

LINES = ["abc", "dead", "", "edcba", "b"]


def embedded(memories=1):
    source = keras.Input((None,), dtype="int32", name="source")
    target = keras.Input((None,), dtype="int32", name="target")
    memory = [
        layers.Embedding(toys.SOURCE.size, 4, mask_zero=True)(source)
        for _ in range(memories)
    ]
    embedding = layers.Embedding(toys.TARGET.size, 6, mask_zero=True)(target)
    return source, target, memory, embedding


def translator(source, target, hidden):
    logits = layers.Dense(toys.TARGET.size)(hidden)
    model = keras.Model([source, target], logits)
    toys.speak_up(model, seed=5)
    search = keras_attn.BeamSearch(
        3, num_hypotheses=2, min_length=3, max_length=7
    )
    return keras_attn.Translator(model, toys.SOURCE, toys.TARGET, search)


def of_group(mechanisms, wiring):
    source, target, (memory,), embedding = embedded()
    decoder = keras_attn.AttentionDecoder(
        layers.LSTMCell(4), [m.make() for m in mechanisms], **wiring
    )
    hidden = decoder(embedding, [memory] * len(mechanisms))
    return translator(source, target, hidden)
