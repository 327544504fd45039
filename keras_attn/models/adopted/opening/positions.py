"""Tables with a row for each position of a target."""

import keras
import numpy as np
from keras import ops


class TableOfLayer:
    """A table that a layer computes from numbers of positions.

    Args:
        layer: The layer, for example an `Embedding`.
        args, kwargs: Arguments with which it was called, among them one
            array of numbers of positions.
    """

    def __init__(self, layer, args, kwargs):
        self.layers = [layer]
        self._args, self._kwargs = args, kwargs
        given = map(as_numbers, keras.tree.flatten((args, kwargs)))
        (self._numbers,) = (x for x in given if x is not None)
        self._axis = int(np.argmax(self._numbers.shape))
        self._first = int(self._numbers.flat[0])
        size = getattr(layer, "input_dim", None)
        self.longest = None if size is None else size - self._first

    def rows(self, positions):
        """Returns the rows `(positions, ...)` at some positions."""
        shape = [1] * self._numbers.ndim
        shape[self._axis] = -1
        here = ops.reshape(positions + self._first, shape)
        here = ops.cast(here, self._numbers.dtype.name)
        args, kwargs = keras.tree.map_structure(
            lambda x: x if as_numbers(x) is None else here,
            (self._args, self._kwargs),
        )
        found = self.layers[0](*args, **kwargs)
        return ops.reshape(found, (-1, *found.shape[self._axis + 1 :]))


class TableOfNumbers:
    """Fixed numbers, such as sinusoids.

    Args:
        numbers: Array `(positions, ...)`.
    """

    layers = ()

    def __init__(self, numbers):
        self._numbers = numbers
        self.longest = len(numbers)

    def rows(self, positions):
        """Returns the rows `(positions, ...)` at some positions."""
        return ops.take(ops.convert_to_tensor(self._numbers), positions, axis=0)


class WithPositions(keras.layers.Layer):
    """Calls an operation with a tensor of the target and rows of a table.

    It is never part of a model that is saved.

    Args:
        operation: The operation.
        args, kwargs: Its arguments, with `table` and `symbol` in them.
        symbol: The symbolic tensor that the input replaces.
        table: A table, for the operation's other tensor.
    """

    def __init__(self, operation, args, kwargs, symbol, table):
        super().__init__(autocast=False)
        self.supports_masking = True
        self.built = True
        self.parts = list(table.layers)
        if table.longest is not None:
            self.max_length = table.longest
        # Keras must not track what is inside.
        self._call = _Template(operation, (args, kwargs), symbol, table)

    def call(self, inputs, start_index=0):
        """Returns the result for positions from `start_index` on."""
        positions = start_index + ops.arange(ops.shape(inputs)[1])
        return self._call.run(inputs, self._call.table.rows(positions))

    def compute_output_spec(self, inputs, start_index=0):
        return keras.KerasTensor(inputs.shape, dtype=self._call.dtype)


class _Template:
    def __init__(self, operation, arguments, symbol, table):
        self.operation, self.arguments = operation, arguments
        self.symbol, self.table = symbol, table
        self.dtype = symbol.dtype

    def run(self, inputs, rows):
        args, kwargs = keras.tree.map_structure(
            lambda x: (
                inputs
                if x is self.symbol
                else ops.cast(rows, self.dtype)
                if x is self.table
                else x
            ),
            self.arguments,
        )
        return self.operation(*args, **kwargs)


def as_array(x):
    """Returns the array behind a tensor with a value, else `None`."""
    if isinstance(x, (keras.KerasTensor, keras.Variable)):
        return None
    if not (isinstance(x, np.ndarray) or ops.is_tensor(x)):
        return None
    try:
        return np.asarray(ops.convert_to_numpy(x))
    except Exception:  # a tensor of a graph has no value
        return None


def as_numbers(x):
    """Returns an array of consecutive integers, else `None`.

    Axes along which it repeats them, such as rows, have the size 1.
    """
    array = as_array(x)
    if array is None or array.ndim == 0:
        return None
    for axis in range(array.ndim):
        first = np.take(array, [0], axis=axis)
        if np.array_equal(np.broadcast_to(first, array.shape), array):
            array = first
    if array.size < 2 or array.size != max(array.shape):
        return None
    steps = np.diff(array.reshape(-1).astype("float64"))
    return array if np.all(steps == 1) else None
