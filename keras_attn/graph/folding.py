"""Folds wide tensors, so comparisons of them need less memory."""

import numpy as np
from keras import ops

_WIDE = 2**14  # columns; tensors with at least this many are folded
_COLUMNS = 16  # columns that are summed into one


def folded(x):
    """Returns sums of neighbouring columns of a wide tensor, and its largest.

    Logits of a large vocabulary may need more memory than their model. If two
    tensors differ in a column, so do their sums, in which each column has
    another weight. The largest number shows whether all are minus infinity;
    any other number that is not finite makes its sum not finite too.

    Args:
        x: Tensor of floats, `(..., columns)`.

    Returns:
        Tensor of shape `(..., ceil(columns / 16) + 1)`, or `x` itself if it
        has fewer than 16,384 columns.
    """
    width = x.shape[-1] if len(x.shape) else None
    if width is None or width < _WIDE:
        return x
    missing = -width % _COLUMNS
    largest = ops.max(x, axis=-1, keepdims=True)
    if missing:
        x = ops.pad(x, [(0, 0)] * (len(x.shape) - 1) + [(0, missing)])
    groups = (width + missing) // _COLUMNS
    x = ops.reshape(x, (*ops.shape(x)[:-1], groups, _COLUMNS))
    weights = np.random.default_rng(0).uniform(1, 2, _COLUMNS)
    # Not a matrix product, which GPUs may compute in lower precision.
    sums = ops.sum(x * ops.cast(weights, x.dtype), axis=-1)
    return ops.concatenate([sums, largest], axis=-1)
