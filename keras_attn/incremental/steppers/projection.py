"""Projections of attention layers, each computed as one matrix product.

A step has few positions, for which such a product takes less time than the
overhead of an `EinsumDense`.
"""

import math

from keras import activations
from keras import layers
from keras import ops

from keras_attn.backend import reshape


def project(dense, x):
    """Applies an `EinsumDense` to positions `(batch, time, ...)`.

    A layer that does more than multiply each position by a kernel is called.
    """
    if not _is_product(dense, len(x.shape) - 2):
        return dense(x)
    dtype, axes = dense.compute_dtype, len(x.shape) - 2
    size, sizes = math.prod(x.shape[2:]), dense.kernel.shape[axes:]
    rows = ops.reshape(ops.cast(x, dtype), (-1, size))
    kernel = ops.reshape(ops.cast(dense.kernel, dtype), (size, -1))
    found = ops.matmul(rows, kernel)
    if dense.bias is not None:
        found = found + ops.reshape(ops.cast(dense.bias, dtype), (-1,))
    return reshape(found, (*ops.shape(x)[:2], *sizes))


def _is_product(dense, axes):
    """Whether a layer multiplies all axes of each position by a kernel.

    Args:
        dense: The layer.
        axes: Number of axes of a position.
    """
    if type(dense) is not layers.EinsumDense or "call" in vars(dense):
        return False
    if dense.activation is not activations.linear:
        return False
    if dense.quantization_mode is not None:
        return False
    given, _, found = dense.equation.partition("->")
    given, _, kernel = given.partition(",")
    return (
        len(given) == 2 + axes
        and kernel[:axes] == given[2:]
        and found == given[:2] + kernel[axes:]
        # one number for each output, or none
        and (dense.bias_axes or kernel[axes:]) == kernel[axes:]
    )
