"""Computes how large an answer is, before it is written.

Writing numbers as JSON takes far more time and memory than counting them.
"""

import math
from collections.abc import Callable
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from keras_attn_serving.server.calls import Job

Width = Callable[[np.dtype], int]


def least(job: Job, width: Width) -> int:
    """Returns the least bytes of an answer, before it is computed.

    An output whose first size is not fixed counts with as many rows as the
    request has. Any other size that is not fixed counts as 1.

    Args:
        job: What the call asks for.
        width: Returns the most bytes of a number of a dtype.
    """
    signature = job.model.signatures[job.signature]
    arrays = [x for x in job.plan.feeds.values() if x.ndim]
    rows = min(map(len, arrays), default=1)
    total = 0
    for alias in job.plan.outputs:
        output = signature.outputs[alias]
        if output.shape is None or output.dtype is None:
            continue
        if output.dtype == tf.string:
            continue
        dtype = np.dtype(output.dtype.as_numpy_dtype)
        first = [rows if x is None else x for x in output.shape[:1]]
        others = [1 if x is None else x for x in output.shape[1:]]
        total += math.prod(first + others) * width(dtype)
    return total


def most(values: Mapping[str, np.ndarray], width: Width) -> int:
    """Returns the most bytes that an answer may have.

    Args:
        values: Arrays by the names of the outputs.
        width: Returns the most bytes of a number of a dtype.
    """
    total = 0
    for array in values.values():
        if array.dtype == object:
            total += sum(map(len, array.reshape(-1))) + 4 * array.size
        else:
            total += array.size * width(array.dtype)
    return total
