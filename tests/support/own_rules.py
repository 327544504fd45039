"""Rules of a user's own."""

import keras
import tensorflow as tf

from keras_attn.decoding import NEVER
from keras_attn.decoding import Rule


@keras.saving.register_keras_serializable("tests")
class Once(Rule):
    """No token comes twice but the end; keeps a state for each hypothesis."""

    def __init__(self, size, end):
        self.size, self.end = size, end

    def start(self, batch, beams):
        return {"come": tf.zeros([batch, beams, self.size]), "none": None}

    def apply(self, logits, written, state):
        return logits + NEVER * state["come"]

    def update(self, tokens, state):
        new = tf.one_hot(tokens, self.size)
        new *= 1 - tf.one_hot(self.end, self.size)
        return {**state, "come": tf.maximum(state["come"], new)}

    def get_config(self):
        return {"size": self.size, "end": self.end}


@keras.saving.register_keras_serializable("tests")
class OnceByTokens(Rule):
    """The same, by the tokens so far."""

    needs_tokens = True

    def __init__(self, end):
        self.end = end

    def apply(self, logits, written, state):
        size = tf.shape(logits)[-1]
        come = tf.one_hot(written.tokens, size)  # (batch, N, T, size)
        here = tf.range(tf.shape(written.tokens)[-1]) < written.time
        come = tf.reduce_max(come * tf.cast(here, tf.float32)[:, None], axis=2)
        return logits + NEVER * come * (1 - tf.one_hot(self.end, size))

    def get_config(self):
        return {"end": self.end}


@keras.saving.register_keras_serializable("tests")
class Colder(Rule):
    """Divides the logits, before the softmax."""

    before_softmax, may_exhaust, reads_logits_alone = True, False, True

    def __init__(self, temperature):
        self.temperature = temperature

    def apply(self, logits, written, state):
        return logits / self.temperature

    def get_config(self):
        return {"temperature": self.temperature}


@keras.saving.register_keras_serializable("tests")
class Without(Rule):
    """Forbids some tokens, by penalties."""

    reads_logits_alone = True

    def __init__(self, ids):
        self.ids = ids

    def penalties(self, time):
        return [(token, NEVER) for token in self.ids]

    def get_config(self):
        return {"ids": self.ids}


@keras.saving.register_keras_serializable("tests")
class AtLeast(Rule):
    """A token comes so many times at least before the end."""

    steers = True

    def __init__(self, token, times, end):
        self.token, self.times, self.end = token, times, end

    def start(self, batch, beams):
        return tf.zeros([batch, beams], tf.int32)

    def apply(self, logits, written, state):
        early = tf.cast(state < self.times, tf.float32)[..., None]
        return logits + NEVER * early * tf.one_hot(
            self.end, tf.shape(logits)[-1]
        )

    def update(self, tokens, state):
        return state + tf.cast(tokens == self.token, tf.int32)

    def lacking(self, state):
        return tf.maximum(self.times - state, 0)

    def following(self, state):
        wanted = tf.where(state < self.times, self.token, -1)
        return wanted[..., None]

    def get_config(self):
        return {"token": self.token, "times": self.times, "end": self.end}
