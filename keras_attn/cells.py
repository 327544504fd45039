"""Running any Keras RNN cell, or stack of cells, one step at a time.

States are flat tuples of tensors `(batch, beams, width)`, in the order of
`cell.state_size`; a cell itself sees a row for each beam.
"""

import contextlib
import inspect

import keras
from keras import layers
from keras import ops


@keras.saving.register_keras_serializable("keras_attn")
class GRUCell(layers.GRUCell):
    """Keras's `GRUCell`, faster to train on a CPU.

    It has Keras's arguments, weights and results. Keras cuts the recurrent
    projection into slices, whose gradients each fill a tensor with zeros;
    splitting it in one operation saves 6 % of a training step. Without bias,
    with `reset_after=False` or with dropout it computes what Keras does.

    `AttentionDecoder` does so for any Keras `GRUCell` by itself. The class is
    for encoders on a CPU, `keras.layers.RNN(keras_attn.GRUCell(units))` in
    the place of `keras.layers.GRU(units)`; on a GPU the latter is faster.

    Example:

    >>> encoder = keras.layers.RNN(
    ...     keras_attn.GRUCell(8), return_sequences=True)
    >>> encoder(np.ones((2, 5, 4))).shape
    TensorShape([2, 5, 8])
    """

    def call(self, inputs, states, training=False):
        if not _is_plain_gru(self, training):
            return super().call(inputs, states, training)
        (state,) = _call_gru(self, inputs, keras.tree.flatten(states), training)
        return state, [state] if keras.tree.is_nested(states) else state


def state_sizes(cell):
    """Widths of all states of a cell, flat."""
    return keras.tree.flatten(cell.state_size)


def hidden_index(cell):
    """Which of the flat states is the hidden one of the (top) cell."""
    if not isinstance(cell, layers.StackedRNNCells):
        return 0
    below = len(keras.tree.flatten(cell.state_size[:-1]))
    return below + hidden_index(cell.cells[-1])


def initial_state(cell, batch, dtype):
    """The cell's own first state: what it defines, or zeros."""
    if hasattr(cell, "get_initial_state"):
        return cell.get_initial_state(batch_size=batch)
    return [ops.zeros((batch, size), dtype) for size in state_sizes(cell)]


def run(cell, inputs, states, training):
    """One step of a cell.

    Args:
        cell: A Keras RNN cell.
        inputs: Tensor of shape `(batch, beams, dim)`.
        states: Flat tuple of tensors `(batch, beams, width)`.
        training: Whether dropout applies.

    Returns:
        The new states, like `states`.
    """
    beams = ops.shape(inputs)[1]
    rows = [ops.reshape(x, (-1, x.shape[-1])) for x in (inputs, *states)]
    call = _call_gru if _is_plain_gru(cell, training) else _call
    new_states = call(cell, rows[0], rows[1:], training)
    # The cell may have a dtype policy of its own.
    return tuple(
        ops.cast(ops.reshape(new, (-1, beams, new.shape[-1])), old.dtype)
        for new, old in zip(keras.tree.flatten(new_states), states, strict=True)
    )


def _call(cell, inputs, states, training):
    structure = cell.state_size
    if not keras.tree.is_nested(structure):
        structure = [structure]
    states = keras.tree.pack_sequence_as(structure, states)
    kwargs = {"training": training} if _takes_training(cell) else {}
    _, states = cell(inputs, states, **kwargs)
    return states


def _is_plain_gru(cell, training):
    if type(cell) not in (layers.GRUCell, GRUCell):
        return False
    drops = training and (cell.dropout or cell.recurrent_dropout)
    return cell.reset_after and cell.use_bias and not drops


def _call_gru(cell, inputs, states, training):
    # The cell may have a dtype policy of its own, as in its `__call__`.
    kernel, recurrent_kernel, bias, inputs, state = (
        ops.cast(x, cell.compute_dtype)
        for x in (
            cell.kernel,
            cell.recurrent_kernel,
            cell.bias,
            inputs,
            *states,
        )
    )
    input_bias, recurrent_bias = ops.unstack(bias, axis=0)
    projected = ops.matmul(inputs, kernel) + input_bias
    recurrent = ops.matmul(state, recurrent_kernel) + recurrent_bias
    x_z, x_r, x_h = ops.split(projected, 3, axis=-1)
    h_z, h_r, h_h = ops.split(recurrent, 3, axis=-1)
    update = cell.recurrent_activation(x_z + h_z)
    reset = cell.recurrent_activation(x_r + h_r)
    candidate = cell.activation(x_h + reset * h_h)
    return [candidate + update * (state - candidate)]


@contextlib.contextmanager
def dropout_drawn_before(cell, step):
    """Draws the cells' dropout masks before a loop; forgets them after it.

    Keras cells draw a mask when first called and keep it for all steps. A
    mask drawn inside a loop cannot leave it, and one kept from an earlier
    trace is out of scope.

    Args:
        cell: A Keras RNN cell.
        step: Function that runs the cell once in training, outside the loop,
            or `None` when nothing is dropped.
    """
    dropping = [x for x in _leaves(cell) if hasattr(x, "reset_dropout_mask")]

    def forget():
        for leaf in dropping:
            leaf.reset_dropout_mask()
            leaf.reset_recurrent_dropout_mask()

    forget()
    try:
        if step and any(x.dropout or x.recurrent_dropout for x in dropping):
            step()
        yield
    finally:
        forget()


def _leaves(cell):
    """A cell and all cells that it stacks or wraps."""
    yield cell
    for inner in (*getattr(cell, "cells", ()), getattr(cell, "cell", None)):
        if inner is not None:
            yield from _leaves(inner)


def _takes_training(cell):
    if isinstance(cell, layers.StackedRNNCells):
        return True
    return "training" in inspect.signature(cell.call).parameters
