"""Folds wide tensors, so that those who compare them hold fewer numbers."""

import numpy as np
from keras import ops

_WIDE = 2**14  # columns, from which a tensor is folded
_COLUMNS = 16  # that make one


def folded(x):
    """Returns sums of neighbouring columns of a wide tensor, and the largest.

    Logits of a large vocabulary may fill more memory than their model. Where
    two of them differ, so do their sums, in which each column has a weight of
    its own. The largest tells whether all are minus infinity; any other
    number that is not finite spoils its sum, too.

    Args:
        x: Tensor of floats, `(..., columns)`.

    Returns:
        Tensor `(..., columns / 16 + 1)`, rounded up; `x` itself if it is not
        wide.
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
    # Not by a product of matrices, which GPUs round.
    sums = ops.sum(x * ops.cast(weights, x.dtype), axis=-1)
    return ops.concatenate([sums, largest], axis=-1)
