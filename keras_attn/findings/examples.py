"""Made-up inputs for a model that nobody has trained yet."""

import keras
import numpy as np

from keras_attn.keras_internals import layers_within

# Rows; target positions, more than any usual window reaches; source positions
# without and with padding. Smaller ones are for models that take no more, and
# the larger source for convolutions with strides.
_SIZES = (
    (16, 23, 13, 18),
    (16, 23, 3, 5),
    (16, 23, 37, 46),
    (16, 7, 13, 18),
    (16, 7, 3, 5),
    (16, 4, 2, 3),
    (16, 2, 1, 2),
)


class Examples:
    """Random inputs of some sizes.

    Args:
        model: A functional model.
        tables: For each input how many ids its embeddings know, or `None`.
        rows: Number of rows, where the model leaves it open.
        target: Length of the targets, where the model leaves it open.
        source: Length of the sources without padding.
        padded: Length of the sources with padding.
        random: A NumPy generator.
    """

    def __init__(self, model, tables, rows, target, source, padded, random):
        self.inputs = model.inputs
        self._tables = tables
        self.rows = self.inputs[-1].shape[0] or rows
        self.target = self.inputs[-1].shape[1] or target
        self.source, self.padded = source, padded
        self._random = random

    @property
    def padding(self):
        """Which inputs can be padded: ids, and features in time."""
        return [
            x.shape[1:2] == (None,)
            and None not in x.shape[2:]
            and (len(x.shape) > 2 or "int" in x.dtype)
            for x in self.inputs[:-1]
        ]

    def draw(self):
        """An array for each input, without padding."""
        return [self._array(i) for i in range(len(self.inputs))]

    def pad(self, arrays):
        """The same with padding after the sources."""
        more = self.padded - self.source
        return [
            np.pad(x, [(0, 0), (0, more)] + [(0, 0)] * (x.ndim - 2))
            if padded
            else x
            for x, padded in zip(arrays, [*self.padding, False], strict=True)
        ]

    def reads_ids(self, number):
        """Whether an input is known to be ids."""
        return self._tables[number] is not None

    def _array(self, number):
        symbol = self.inputs[number]
        is_target = number == len(self.inputs) - 1
        length = self.target if is_target else self.source
        sizes = [size or length for size in symbol.shape[1:]]
        shape = [self.rows, *sizes]
        if symbol.dtype == "bool":
            return np.ones(shape, "bool")
        if symbol.dtype == "string":
            return np.full(shape, "a")
        if "int" not in symbol.dtype:
            return self._random.normal(size=shape).astype("float32")
        # 0 is padding. Where nothing says how many ids there are: small ones.
        high = self._tables[number] or 3
        low = min(1, high - 1)
        return self._random.integers(low, high, shape).astype(symbol.dtype)


def examples_for(model, tables, taken, works, random):
    """The first examples that a model takes.

    Args:
        model: A functional model.
        tables: For each input how many ids its embeddings know, or `None`.
        taken: Sizes that tensors of the model have; none of its lengths
            should be one, so that its axis is known by its size.
        works: Function of arrays that runs the model.
        random: A NumPy generator.

    Returns:
        `Examples`, and `None`; or `None` and the error.
    """
    first = None
    for rows, target, source, padded in _SIZES:
        target = _free(target, taken)
        source = _free(source, taken | {target})
        padded = _free(max(padded, source + 1), taken | {target, source})
        rows = _free(rows, taken | {target, source, padded})
        made = Examples(model, tables, rows, target, source, padded, random)
        arrays = made.draw()
        try:
            works(arrays)
            works(made.pad(arrays))
        except Exception as error:  # any layer may raise anything
            first = first or error
            continue
        return made, None
    return None, first


def _free(size, taken):
    while size in taken:
        size += 1
    return size


def precision_of(model):
    """The coarsest precision that a model computes in."""
    found = {
        keras.backend.standardize_dtype(x.compute_dtype)
        for x in layers_within(model)
        if x.compute_dtype
    }
    return "half" if found & {"float16", "bfloat16"} else "single"
