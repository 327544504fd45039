"""`Pool`: scored hypotheses, and functions that rank and merge them."""

from typing import Any
from typing import NamedTuple

import tensorflow as tf

from keras_attn.decoding.hypotheses import IMPOSSIBLE
from keras_attn.decoding.hypotheses import POSSIBLE
from keras_attn.decoding.hypotheses import gather


class Pool(NamedTuple):
    """Scored hypotheses of each source, all of which ended or were cut."""

    scores: Any  # (B, K), `IMPOSSIBLE` for missing hypotheses
    lengths: Any  # (B, K)
    tokens: Any  # (B, K, T)
    beam_ids: Any  # (B, K, T): the beam whose step made each token


def normalize(logp, length, penalty, alpha):
    """Returns log-probabilities divided by the length penalty.

    Args:
        logp: Sums of log-probabilities.
        length: Number of tokens, the end token counted.
        penalty: `"gnmt"` or `"power"`.
        alpha: Exponent of the penalty; 0 returns `logp` unchanged.
    """
    if not tf.is_tensor(alpha) and alpha == 0:
        return logp
    length = tf.cast(length, tf.float32)
    if penalty == "gnmt":
        length = (5.0 + length) / 6.0
    return logp / length**alpha


def empty_pool(batch, width, length):
    """Returns a pool without hypotheses, with room for `width`."""
    return Pool(
        scores=tf.fill([batch, width], IMPOSSIBLE),
        lengths=tf.zeros([batch, width], tf.int32),
        tokens=tf.zeros([batch, width, length], tf.int32),
        beam_ids=tf.zeros([batch, width, length], tf.int32),
    )


def join(*pools):
    """Concatenates pools along the axis of hypotheses."""
    return tf.nest.map_structure(lambda *x: tf.concat(x, axis=1), *pools)


def best(pool, count):
    """Returns the `count` best hypotheses, best first."""
    _, index = tf.math.top_k(pool.scores, count)
    return gather(pool, index)


def ranked(ended, cut, count, alike=None):
    """Ranks two sorted pools: those that ended, then those that were cut.

    Args:
        ended: `Pool` of hypotheses that have ended.
        cut: `Pool` of hypotheses that were cut.
        count: Number of hypotheses wanted.
        alike: Whether a row ranks both pools by score alone, `(B, 1)`, or
            `None` if no row does.

    Returns:
        `Pool` of `count` hypotheses, and whether each has ended, `(B, count)`.
    """
    both = join(ended, cut)
    beside = [[0, 0], [0, cut.scores.shape[1]]]
    finished = tf.pad(ended.scores > POSSIBLE, beside)
    if alike is not None:
        _, index = tf.math.top_k(both.scores, both.scores.shape[1])
        sorted_, has_ended = gather((both, finished), index)
        by_score = tf.nest.map_structure(
            lambda x, y: tf.where(_beside(alike, x), x, y), sorted_, both
        )
        both, finished = by_score, tf.where(alike, has_ended, finished)
    exists = both.scores > POSSIBLE
    # `top_k` keeps the order of equal values.
    _, index = tf.math.top_k(tf.cast(exists, tf.int32), count)
    return gather((both, finished), index)


def _beside(rows, x):
    """Reshapes `(B, 1)` to the rank of `x`."""
    return tf.reshape(rows, [-1, *[1] * (len(x.shape) - 1)])


def merged(pools, finished, count):
    """Ranks several pools: hypotheses that ended, then those that were cut.

    Args:
        pools: List of `Pool`s.
        finished: For each pool, whether each hypothesis has ended, `(B, K)`.
        count: Number of hypotheses wanted.

    Returns:
        `Pool` of `count` hypotheses, and whether each has ended, `(B, count)`.
    """
    pool, finished = join(*pools), tf.concat(finished, axis=1)
    _, index = tf.math.top_k(pool.scores, pool.scores.shape[1])
    pool, finished = gather((pool, finished), index)
    _, index = tf.math.top_k(tf.cast(finished, tf.int32), count)
    return gather((pool, finished), index)
