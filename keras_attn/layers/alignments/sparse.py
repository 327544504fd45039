"""Sparse attention: all positions but the best few get exactly zero weight.

Both alignments compare the scores with a threshold `τ`, which they find by
sorting each row once. The choice of the positions above the threshold has no
gradient. The threshold is then recomputed from the scores of these positions,
and the gradient flows through this computation.
"""

import keras
from keras import ops

from keras_attn.layers.alignments.alignment import Alignment


@keras.saving.register_keras_serializable("keras_attn")
class SparsemaxAlignment(Alignment):
    """Sparsemax: the Euclidean projection of the scores onto the simplex.

    The weights are `max(e - τ, 0)`, with the threshold `τ` at which they sum
    to one. A score that is 1 or more below the best gets no weight, whatever
    the others are. So the scale of the scores decides how many weights are
    zero.

    Call arguments:
        scores: Tensor of shape `(batch, target, source)`.
        allowed: Boolean tensor that broadcasts to the scores, or `None`.

    Output shape:
        `(batch, target, source)`, float32: non-negative weights that sum to
        one over the source, or a row of zeros where nothing is allowed.

    Reference:
        - [Martins and Astudillo, 2016](https://arxiv.org/abs/1602.02068),
          algorithm 1

    Example:
        >>> align = keras_attn.SparsemaxAlignment()
        >>> align(np.array([[[1.0, 0.5, -1.0]]])).numpy().tolist()
        [[[0.75, 0.25, 0.0]]]
    """

    def call(self, scores, allowed=None):
        scores, above = _above(scores, allowed, _sparsemax_thresholds)
        count = _count(above)
        total = _sum_where(above, scores)
        return ops.where(above, scores - (total - 1) / count, 0.0)


@keras.saving.register_keras_serializable("keras_attn")
class EntmaxAlignment(Alignment):
    """1.5-entmax, halfway between softmax and sparsemax.

    The weights are `max(e / 2 - τ, 0)²`, with the threshold `τ` at which they
    sum to one. They are sparse like those of sparsemax, but a weight goes to
    zero smoothly.

    Call arguments:
        scores: Tensor of shape `(batch, target, source)`.
        allowed: Boolean tensor that broadcasts to the scores, or `None`.

    Output shape:
        `(batch, target, source)`, float32: non-negative weights that sum to
        one over the source, or a row of zeros where nothing is allowed.

    Reference:
        - [Peters et al., 2019](https://arxiv.org/abs/1905.05702),
          algorithm 2

    Example:
        >>> align = keras_attn.EntmaxAlignment()
        >>> align(np.array([[[0.0, 0.0, -2.0]]])).numpy().round(4).tolist()
        [[[0.5, 0.5, 0.0]]]
    """

    def call(self, scores, allowed=None):
        scores = ops.cast(scores, "float32") / 2
        scores, above = _above(scores, allowed, _entmax_thresholds)
        count = _count(above)
        mean = _sum_where(above, scores) / count
        spread = _sum_where(above, ops.square(scores - mean))
        # The scores are above the threshold by `d` with `sum(d²) = 1`. So
        # `(1 - spread) / count = mean(d)²` is at least `1 / count²`.
        room = ops.maximum((1 - spread) / count, 1 / ops.square(count))
        threshold = mean - ops.sqrt(room)
        return ops.where(above, ops.square(scores - threshold), 0.0)


def _above(scores, allowed, thresholds):
    """Returns scores minus their row's best, and which exceed the threshold.

    Args:
        scores: Tensor of shape `(batch, target, source)`.
        allowed: Boolean tensor that broadcasts to the scores, or `None`.
        thresholds: Function of the scores in falling order and their ranks
            `k`, from 1. It returns, for each `k`, the threshold that would
            hold if exactly the first `k` scores were above it.
    """
    scores = ops.cast(scores, "float32")
    if allowed is None:
        allowed = ops.ones_like(scores, dtype="bool")
    # `max` without `initial` refuses an empty source.
    best = ops.max(
        ops.where(allowed, scores, -1e9), axis=-1, keepdims=True, initial=-1e9
    )
    # The threshold is at most 1 below the best, so lower scores are raised to
    # there. Much lower ones would cost the sums over a row their precision.
    scores = ops.where(allowed, scores - ops.stop_gradient(best), -1.0)
    scores = ops.maximum(scores, -1.0)
    falling = -ops.sort(-ops.stop_gradient(scores), axis=-1)
    number = ops.cast(
        ops.arange(1, ops.shape(scores)[-1] + 1, dtype="int32"), "float32"
    )
    tried = thresholds(falling, number)
    count = ops.sum(
        ops.cast(falling > tried, "float32"), axis=-1, keepdims=True
    )
    # Picks the threshold of rank `count` by a sum, because `take_along_axis`
    # does not work within loops.
    threshold = ops.maximum(_sum_where(number == count, tried), -1.0)
    return scores, ops.logical_and(allowed, scores > threshold)


def _sparsemax_thresholds(scores, number):
    return (ops.cumsum(scores, axis=-1) - 1) / number


def _entmax_thresholds(scores, number):
    mean = ops.cumsum(scores, axis=-1) / number
    of_squares = ops.cumsum(ops.square(scores), axis=-1) / number
    room = 1 / number - (of_squares - ops.square(mean))
    return mean - ops.sqrt(ops.maximum(room, 0.0))


def _sum_where(condition, x):
    return ops.sum(ops.where(condition, x, 0.0), axis=-1, keepdims=True)


def _count(above):
    """Returns the number of scores above, or 1 if nothing is allowed."""
    # A cast, because a sum of the constant 1.0 would have the dtype `floatx`.
    count = ops.sum(ops.cast(above, "float32"), axis=-1, keepdims=True)
    return ops.maximum(count, 1.0)
