"""Finds when each token is spoken, from attention weights.

The median filter and dynamic time warping follow OpenAI's code of
[Radford et al., 2022](https://arxiv.org/abs/2212.04356). The warping takes one
step for each token, not for each cell.
"""

import tensorflow as tf


def entries(gains) -> tf.Tensor:
    """Returns the column at which the best path enters each row.

    A path begins in the first cell and ends in the last. Each move goes right,
    down, or both. The best path has the largest sum of gains (Sakoe and Chiba,
    1978).

    Args:
        gains: Tensor `(rows, columns)`, at least one of each.

    Returns:
        int32 `(rows,)`, ascending.
    """
    costs = -tf.cast(gains, tf.float64)
    rows, columns = tf.unstack(tf.shape(costs))
    nothing, infinite = (
        tf.constant(x, tf.float64) for x in (0.0, float("inf"))
    )
    before = tf.cumsum(costs, axis=1, exclusive=True)

    # Within a row, the cost of a path is the sum of costs from its column of
    # entry on, so the best entry is a running minimum.
    def down(row, above, begins, diagonal):
        corner = tf.where(row == 0, nothing, infinite)
        beside = tf.concat([[corner], above[:-1]], axis=0)
        begin = tf.minimum(above, beside) - before[row]
        best = _running_minimum(begin, columns)
        total = best + before[row] + costs[row]
        begins = begins.write(row, begin)
        diagonal = diagonal.write(row, beside < above)
        return row + 1, total, begins, diagonal

    arrays = (tf.TensorArray(x, rows) for x in (tf.float64, tf.bool))
    outside = tf.fill([columns], infinite)
    _, _, begins, diagonal = tf.while_loop(
        lambda row, *_: row < rows, down, (0, outside, *arrays)
    )
    begins, diagonal = begins.stack(), diagonal.stack()

    def up(row, column, found):
        reached = begins[row, : column + 1]
        column = tf.argmin(reached, output_type=tf.int32)
        found = found.write(row, column)
        return row - 1, column - tf.cast(diagonal[row, column], tf.int32), found

    found = tf.TensorArray(tf.int32, rows)
    _, _, found = tf.while_loop(
        lambda row, *_: row >= 0, up, (rows - 1, columns - 1, found)
    )
    return found.stack()


def _running_minimum(x, size):
    """Returns the minima of `x[:1]`, `x[:2]` and so on, by doubling."""

    def double(reach, x):
        moved = tf.pad(x[:-reach], [[reach, 0]], constant_values=x.dtype.max)
        return 2 * reach, tf.minimum(x, moved)

    _, found = tf.while_loop(
        lambda reach, _: reach < size,
        double,
        (1, x),
        shape_invariants=(tf.TensorShape([]), tf.TensorShape([None])),
    )
    return found


def median_filtered(x, width: int) -> tf.Tensor:
    """Returns running medians along the last axis.

    The ends are reflected. If there are too few columns to reflect, `x` is
    returned unchanged.

    Args:
        x: Tensor `(..., columns)`.
        width: Width of the filter, an odd number.
    """
    half = width // 2
    if not half:
        return x
    columns = tf.shape(x)[-1]
    return tf.cond(
        columns > half, lambda: _medians(x, columns, half), lambda: x
    )


def _medians(x, columns, half):
    around = [[0, 0]] * (len(x.shape) - 1) + [[half, half]]
    x = tf.pad(x, around, "REFLECT")
    rest = [x[..., i : i + columns] for i in range(2 * half + 1)]
    # Bubble-sorts only the larger half: its last maximum is the median.
    for _ in range(half + 1):
        for i in range(len(rest) - 1):
            one, other = rest[i], rest[i + 1]
            rest[i], rest[i + 1] = (
                tf.minimum(one, other),
                tf.maximum(one, other),
            )
        median = rest.pop()
    return median
