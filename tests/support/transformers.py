"""A small Transformer of Keras layers."""

import keras
from keras import layers

import keras_attn
from support import toys
from support.toys import SOURCE
from support.toys import TARGET


def transformer(own, seed=3):
    source = keras.Input((None,), dtype="int32")
    target = keras.Input((None,), dtype="int32")
    memory = layers.Embedding(SOURCE.size, 8, mask_zero=True)(source)
    x = layers.Embedding(TARGET.size, 8)(target)
    x = keras_attn.SinePositionEncoding()(x)
    x = layers.Add()([x, own(x, x, use_causal_mask=True)])
    x = layers.Add()([x, layers.MultiHeadAttention(2, 4)(x, memory)])
    x = layers.LayerNormalization()(x)
    x = layers.Add()([x, own(x, x, use_causal_mask=True)])
    made = keras.Model([source, target], layers.Dense(TARGET.size)(x))
    toys.speak_up(made, seed=seed)
    return made
