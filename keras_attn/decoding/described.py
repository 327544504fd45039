"""Describes, for an error, the value that a user's own search returned."""

import numpy as np
import tensorflow as tf

_FIRST = 8  # values


def described(x) -> str:
    """Describes a value: a tensor by its dtype, shape and first values.

    Tuples and lists are described item by item, other values by their type.
    """
    if isinstance(x, (tuple, list)):
        parts = ", ".join(map(described, x[:_FIRST]))
        more = ", …" if len(x) > _FIRST else ""
        return f"a {type(x).__name__} of {len(x)} ({parts}{more})"
    if not (hasattr(x, "dtype") and hasattr(x, "shape")):
        return f"{x!r:.80} of type {type(x).__name__}"
    dtype = getattr(x.dtype, "name", x.dtype)
    kind = "an array" if isinstance(x, np.ndarray) else "a tensor"
    is_known = getattr(x.shape, "rank", 0) is not None
    shape = tuple(x.shape) if is_known else "unknown"
    text = f"{kind} of dtype {dtype}, shape {shape}"
    if isinstance(x, tf.RaggedTensor) or not hasattr(x, "__array__"):
        return text
    if tf.is_tensor(x) and not hasattr(x, "numpy"):  # in a graph
        return text
    values = np.ravel(x)
    first = ", ".join(map(str, values[:_FIRST]))
    more = ", …" if values.size > _FIRST else ""
    return f"{text}, values {first}{more}"
