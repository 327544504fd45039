"""A translator of LSTMs with random weights, for benchmarks."""

import keras
import tensorflow as tf
from keras import layers

import keras_attn


def graph(translator):
    """Returns a function of ids that searches."""
    ids = tf.TensorSpec([None, None], tf.int32)
    return tf.function(
        translator.decode_ids, input_signature=[ids], autograph=False
    )


def model(size, units):
    source = keras.Input((None,), dtype="int32")
    target = keras.Input((None,), dtype="int32")
    memory, h, c = layers.LSTM(units, return_sequences=True, return_state=True)(
        layers.Embedding(size, units, mask_zero=True)(source)
    )
    hidden = keras_attn.AttentionDecoder(
        layers.LSTMCell(units), keras_attn.BahdanauAttention(units)
    )(
        layers.Embedding(size, units, mask_zero=True)(target),
        memory,
        initial_state=[h, c],
    )
    return keras.Model([source, target], layers.Dense(size)(hidden))
