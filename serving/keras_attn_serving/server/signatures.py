"""Signatures of a SavedModel as plain records."""

from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf


class Tensor(NamedTuple):
    """An input or output of a signature.

    Attributes:
        name: Name of the tensor in the graph.
        dtype: Its dtype; `None` for an operation without a value.
        shape: Its sizes, each `None` if not fixed; `None` if the rank is not
            fixed.
    """

    name: str
    dtype: tf.DType | None
    shape: tuple[int | None, ...] | None


class Signature(NamedTuple):
    """The inputs and outputs of a signature, by alias.

    Attributes:
        inputs: Its inputs.
        outputs: Its outputs.
        defaults: Default values, as arrays, of the inputs that may be left out.
    """

    inputs: dict[str, Tensor]
    outputs: dict[str, Tensor]
    defaults: dict[str, np.ndarray]


def read(definition: Any) -> Signature:
    """Reads a `SignatureDef` that TensorFlow loaded with a SavedModel."""
    return Signature(
        {alias: _tensor(x) for alias, x in definition.inputs.items()},
        {alias: _tensor(x) for alias, x in definition.outputs.items()},
        {alias: tf.make_ndarray(x) for alias, x in definition.defaults.items()},
    )


def _tensor(info):
    shape = None
    if not info.tensor_shape.unknown_rank:
        sizes = [dim.size for dim in info.tensor_shape.dim]
        shape = tuple(None if size < 0 else size for size in sizes)
    dtype = tf.as_dtype(info.dtype) if info.dtype else None
    return Tensor(info.name, dtype, shape)
