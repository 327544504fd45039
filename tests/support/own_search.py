"""Mirostat, as a search of a user's own, importable by another process."""

import math
from typing import Any
from typing import NamedTuple

import tensorflow as tf

import keras_attn
from keras_attn.decoding import Integer
from keras_attn.decoding import Real


class Bound(NamedTuple):
    """The state of Mirostat, one bound per hypothesis."""

    bits: Any  # (batch, N): largest surprise of a token that may be drawn


class Mirostat(keras_attn.Search):
    """Draws from the likeliest tokens, so that surprise stays near a target.

    It keeps the number of likeliest tokens at which, by Zipf's law, the last
    one's surprise equals the bound. The bound falls after a token that was
    more surprising than the target, and rises after one that was less.

    Args:
        target: Surprise aimed at, in bits per token. Defaults to `3.0`.
        rate: Learning rate of the bound. Defaults to `0.1`.
        likeliest: Number of tokens that estimate Zipf's exponent. Defaults to
            `100`.
        num_hypotheses: Number of draws per source. Defaults to `1`.

    References:
        - [Basu et al., 2021](https://arxiv.org/abs/2007.14966), algorithm 1
    """

    target: float = Real(
        default=3.0,
        low=0,
        above=True,
        request=True,
        meaning="is a surprise in bits",
    )
    rate: float = Real(default=0.1, low=0, high=1, request=True)
    likeliest: int = Integer(default=100, low=2, advice="The paper takes 100.")
    num_hypotheses: int = Integer(default=1, low=1)

    draws = True

    def start(self, search_input):
        ones = tf.ones([search_input.batch, self.num_hypotheses])
        return Bound(2 * self.target * ones)

    def choose(self, step, state):
        logp = step.log_probabilities
        size = logp.shape[-1]
        ordered, _ = tf.math.top_k(logp, size)
        count = self._count(ordered, state.bits)
        last = tf.cast(tf.clip_by_value(count, 1, size), tf.int32) - 1
        least = tf.gather(ordered, last[..., None], batch_dims=2)
        return step.pick(tf.where(logp >= least, tf.exp(logp), 0.0))

    def update(self, step, tokens, scores, state):
        bits = (step.scores - scores) / math.log(2)
        return Bound(state.bits - self.rate * (bits - self.target))

    def _count(self, ordered, bits):
        """Returns how many tokens stay, `(batch, N)`, before rounding."""
        ordered, size = ordered[..., : self.likeliest], ordered.shape[-1]
        places = tf.range(1, ordered.shape[-1], dtype="float32")
        t = tf.math.log((places + 1) / places)
        b = ordered[..., :-1] - ordered[..., 1:]
        known = ordered[..., 1:] > -1e9  # tokens that may come
        zipf = tf.math.divide_no_nan(
            tf.reduce_sum(tf.where(known, t * b, 0.0), axis=-1),
            tf.reduce_sum(tf.where(known, t * t, 0.0), axis=-1),
        )
        zipf = tf.maximum(zipf, 1e-2)
        above = zipf - 1
        above = tf.where(tf.abs(above) < 1e-3, 1e-3, above)
        share = above / (1 - float(size) ** -above)
        return tf.round((share * 2.0**bits) ** (1 / zipf))
