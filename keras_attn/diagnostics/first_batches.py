"""Reads the first batches of a model's data as NumPy arrays."""

import itertools
from typing import NamedTuple

import keras
import numpy as np

BATCHES = 4  # number of batches to check
# Rows of the batches that are cut from whole arrays. The loss is computed for
# the first, which is as large as a batch of `fit`, as it takes memory.
_ROWS = 32, 256, 256, 256


class Batch(NamedTuple):
    """One batch of the data.

    Attributes:
        inputs: A list of arrays, in the order of the model's inputs.
        target: The array of targets of the loss.
        weight: The array of sample weights, or `None`.
    """

    inputs: list
    target: np.ndarray
    weight: np.ndarray | None


class Unusable(ValueError):
    """The error for data whose form does not fit the model."""


def first_batches(data, inputs, outputs) -> list[Batch]:
    """Returns the first few batches of data.

    Args:
        data: Data in any form that `model.fit` takes, except a generator.
        inputs: The model's inputs.
        outputs: Names of the model's outputs.

    Raises:
        Unusable: If the data is a generator, or does not have a form that
            fits the model.
    """
    fixed = next((x.shape[0] for x in inputs if x.shape[0]), None)
    elements = _elements(data, len(inputs), len(outputs), fixed)
    return [_batch(given, inputs, outputs[0]) for given in elements]


def _elements(data, inputs, outputs, fixed):
    if _is_arrays(data, inputs, outputs):
        lengths = {len(x) for x in keras.tree.flatten(data) if x is not None}
        if len(lengths) > 1:
            raise Unusable(
                "All arrays must have the same number of rows. Received: "
                f"arrays of shape {_form(data)}. Cut or extend them to the "
                "same number of rows."
            )
        is_fixed = fixed is not None
        rows = (fixed,) * BATCHES if is_fixed else _ROWS
        ends = np.cumsum(rows)
        parts = [slice(end - n, end) for n, end in zip(rows, ends, strict=True)]
        return [
            keras.tree.map_structure(
                lambda x, part=part: None if x is None else x[part], data
            )
            for part in parts
            if part.start < min(lengths)
            # The last rows may be too few for a batch of a fixed size.
            and (part.stop <= min(lengths) or not is_fixed or not part.start)
        ]
    if isinstance(data, keras.utils.PyDataset):
        number = data.num_batches
        number = BATCHES if number is None else min(BATCHES, number)
        return [data[i] for i in range(number)]
    if hasattr(data, "element_spec") and hasattr(data, "take"):
        return list(data.take(BATCHES))
    try:
        iterator = iter(data)
    except TypeError:
        raise Unusable(
            "`data` must have a form that `model.fit` takes. Received: "
            f"{data!r:.200}. Pass a `tf.data.Dataset`, a tuple of arrays "
            "`((source, target_in), target_out)`, a `keras.utils.PyDataset` "
            "or a list of batches."
        ) from None
    if iterator is data:
        raise Unusable(
            "`data` must not be a generator, which yields each batch once: "
            "`fit` would miss the batches that are checked here. Received: "
            f"{data!r:.200}. Pass a few of its batches as a list, or the "
            "data that the generator reads."
        )
    return list(itertools.islice(iterator, BATCHES))


def _is_arrays(data, inputs, outputs):
    """Whether data is `(x, y)` or `(x, y, weights)` of whole arrays.

    Args:
        data: Data of any form.
        inputs: The model's number of inputs.
        outputs: The model's number of outputs.
    """
    if not isinstance(data, (tuple, list)) or len(data) not in (2, 3):
        return False
    if not all(
        x is None or hasattr(x, "shape") for x in keras.tree.flatten(data)
    ):
        return False
    x, y, *_ = data
    if isinstance(y, (tuple, list)):
        # Targets of several outputs, unless `y` is the second batch of a list.
        named = isinstance(x, dict)
        return _is_flat(y, outputs) and (named or _is_flat(x, inputs))
    return hasattr(y, "shape") or isinstance(y, dict)


def _is_flat(given, count):
    """Whether this is a list or tuple of `count` arrays."""
    return (
        isinstance(given, (tuple, list))
        and len(given) == count
        and not any(isinstance(x, (tuple, list, dict)) for x in given)
    )


def _batch(given, inputs, output):
    names = [x.name for x in inputs]
    wanted = (
        f"Each batch must be `(({', '.join(names)}), target_out)`, or that "
        "and sample weights"
    )
    if not isinstance(given, (tuple, list)) or len(given) not in (2, 3):
        raise Unusable(
            f"{wanted}. Received: {_form(given)}. Without `target_out` there "
            "is nothing to learn from."
        )
    x, y, *weight = given
    if isinstance(x, dict):
        missing = [name for name in names if name not in x]
        if missing:
            raise Unusable(
                f"{wanted}. Received: inputs named {list(x)}. Name them "
                f"{names}."
            )
        found = [x[name] for name in names]
    else:
        found = keras.tree.flatten(x)
    if len(found) != len(inputs):
        hint = ""
        if len(given) == len(inputs) + 1 and len(found) == 1:
            hint = (
                " Put the inputs into a tuple of their own, because `fit` "
                "takes the third of three elements for sample weights."
            )
        raise Unusable(
            f"The model has {len(inputs)} inputs, {names}, but the data has "
            f"{len(found)}. {wanted}. Received: {_form(given)}.{hint}"
        )
    target = first_of(y, output)
    weight = first_of(weight[0], output) if weight else None
    if target is None:
        raise Unusable(f"{wanted}. Received: no target_out in {_form(given)}.")
    return Batch(
        [
            _with_rank(_array(one, x.name, x.dtype), len(x.shape), x.shape[-1:])
            for one, x in zip(found, inputs, strict=True)
        ],
        _array(target, "target_out"),
        None if weight is None else _array(weight, "sample_weight"),
    )


def first_of(structure, name):
    """Returns the part for the first output, `name`, of a structure."""
    if isinstance(structure, dict) and name in structure:
        return structure[name]
    flat = keras.tree.flatten(structure)
    return flat[0] if flat else None


def _with_rank(array, rank, last):
    """Adds or removes a last axis of size 1, as functional models do."""
    if array.ndim == rank + 1 and array.shape[-1] == 1:
        return array[..., 0]
    if array.ndim == rank - 1 and last == (1,):
        return array[..., None]
    return array


def _array(value, name, dtype="float32"):
    """Returns an array of numbers, or of strings if that is the dtype."""
    if hasattr(value, "detach"):  # a PyTorch tensor, perhaps with a gradient
        value = value.detach().cpu()
        if value.is_floating_point():
            value = value.float()  # NumPy knows no bfloat16
    try:
        if hasattr(value, "row_splits"):
            raise ValueError("ragged")
        array = np.asarray(value)
    except ValueError:
        array = np.asarray(None)
    if array.dtype.name == "bfloat16":
        array = array.astype("float32")
    if dtype == "string" and _are_strings(array):
        return array
    if array.dtype == object:
        raise Unusable(
            f"'{name}' must be an array of numbers. Received: {value!r:.200}. "
            "Pad rows of unequal length at the end; for a ragged tensor call "
            "`.to_tensor()`."
        )
    return array


def _are_strings(array):
    return array.dtype.kind in "SU" or (
        array.dtype == object
        and all(isinstance(x, (str, bytes)) for x in array.flat)
    )


def _form(given):
    """Returns the structure of a batch with shapes instead of arrays."""
    return keras.tree.map_structure(
        lambda x: tuple(x.shape) if hasattr(x, "shape") else type(x).__name__,
        given,
    )
