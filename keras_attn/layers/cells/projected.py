"""A cell whose inputs are multiplied by its kernel before a loop."""

from keras import layers
from keras import ops


class ProjectedCell:
    """Runs a cell on inputs that are already multiplied by its kernel.

    Args:
        cell: A built Keras cell: a `GRUCell` with `reset_after` and bias, an
            `LSTMCell` or a `SimpleRNNCell`.
    """

    def __init__(self, cell):
        self._cell = cell
        weights = cell.kernel, cell.recurrent_kernel
        # Casts as the cell's `__call__` would, by the cell's dtype policy.
        self.kernel, self._recurrent_kernel = map(self._cast, weights)
        self._bias = self._recurrent_bias = None
        if cell.use_bias:
            self._bias = self._cast(cell.bias)
            if isinstance(cell, layers.GRUCell):
                self._bias, self._recurrent_bias = ops.unstack(self._bias)

    def multiply(self, inputs, kernel):
        """Multiplies inputs `(rows, dim)` by the kernel or by rows of it."""
        return ops.matmul(self._cast(inputs), kernel)

    def add_bias(self, products):
        """Adds the bias to the sum of all products, for `step()`."""
        return products if self._bias is None else products + self._bias

    def step(self, projected, states):
        """Runs one step.

        Args:
            projected: Tensor of shape `(rows, gates * units)`, the inputs
                times the kernel, plus the bias.
            states: The cell's states, each `(rows, width)`.

        Returns:
            The new states; the first is the output.
        """
        cell = self._cell
        hidden, *carry = map(self._cast, states)
        recurrent = ops.matmul(hidden, self._recurrent_kernel)
        if self._recurrent_bias is not None:
            recurrent = recurrent + self._recurrent_bias
        if isinstance(cell, layers.GRUCell):
            return [_gru(cell, projected, recurrent, hidden)]
        if isinstance(cell, layers.LSTMCell):
            return _lstm(cell, projected + recurrent, *carry)
        return [cell.activation(projected + recurrent)]

    def _cast(self, x):
        return ops.cast(x, self._cell.compute_dtype)


def _gru(cell, projected, recurrent, state):
    x_z, x_r, x_h = ops.split(projected, 3, axis=-1)
    h_z, h_r, h_h = ops.split(recurrent, 3, axis=-1)
    update = cell.recurrent_activation(x_z + h_z)
    reset = cell.recurrent_activation(x_r + h_r)
    candidate = cell.activation(x_h + reset * h_h)
    return candidate + update * (state - candidate)


def _lstm(cell, gates, carry):
    write, keep, candidate, read = ops.split(gates, 4, axis=-1)
    write = cell.recurrent_activation(write)
    keep = cell.recurrent_activation(keep)
    carry = keep * carry + write * cell.activation(candidate)
    return [cell.recurrent_activation(read) * cell.activation(carry), carry]
