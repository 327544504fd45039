"""Hypotheses with their scores, and which of them are the best."""

from typing import Any
from typing import NamedTuple

import tensorflow as tf

from keras_attn.search.task import IMPOSSIBLE
from keras_attn.search.task import POSSIBLE
from keras_attn.search.task import gather


class Pool(NamedTuple):
    """Hypotheses of each source that have ended, or were cut."""

    scores: Any  # (B, K), `IMPOSSIBLE` where there is none
    lengths: Any  # (B, K)
    tokens: Any  # (B, K, T)
    slots: Any  # (B, K, T): in which beam each step was attended from


def normalise(logp, length, penalty, alpha):
    """Scores of hypotheses with the end token or the maximum at `length`."""
    if not tf.is_tensor(alpha) and alpha == 0:
        return logp
    length = tf.cast(length, tf.float32)
    if penalty == "gnmt":
        length = (5.0 + length) / 6.0
    return logp / length**alpha


def empty_pool(batch, width, length):
    return Pool(
        scores=tf.fill([batch, width], IMPOSSIBLE),
        lengths=tf.zeros([batch, width], tf.int32),
        tokens=tf.zeros([batch, width, length], tf.int32),
        slots=tf.zeros([batch, width, length], tf.int32),
    )


def join(*pools):
    return tf.nest.map_structure(lambda *x: tf.concat(x, axis=1), *pools)


def best(pool, count):
    """The `count` best hypotheses, in order."""
    _, index = tf.math.top_k(pool.scores, count)
    return gather(pool, index)


def ranked(ended, cut, count):
    """The best of two sorted pools; what was cut comes after what ended.

    Returns:
        `Pool` of `count` hypotheses and whether each has ended.
    """
    both = join(ended, cut)
    exists = both.scores > POSSIBLE
    finished = tf.pad(
        ended.scores > POSSIBLE, [[0, 0], [0, cut.scores.shape[1]]]
    )
    # top_k keeps the order of equals
    _, index = tf.math.top_k(tf.cast(exists, tf.int32), count)
    return gather((both, finished), index)


def merged(pools, finished, count):
    """The best of several ranked pools, those that ended first.

    Returns:
        `Pool` of `count` hypotheses and whether each has ended.
    """
    pool, finished = join(*pools), tf.concat(finished, axis=1)
    _, index = tf.math.top_k(pool.scores, pool.scores.shape[1])
    pool, finished = gather((pool, finished), index)
    _, index = tf.math.top_k(tf.cast(finished, tf.int32), count)
    return gather((pool, finished), index)


def append(history, parents, new, time):
    """Continues each parent's history `(B, K, T)` with `new (B, K)`."""
    history = tf.gather(history, parents, batch_dims=1)
    here = tf.range(history.shape[-1]) == time
    return tf.where(here, new[..., None], history)
