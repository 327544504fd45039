"""Runs any Keras RNN cell, or stack of cells, one step at a time.

States are flat tuples of tensors `(batch, beams, width)`, in the order of
`cell.state_size`. The cell itself sees a row for each beam.
"""

import contextlib

import keras
from keras import layers
from keras import ops

from keras_attn import arguments
from keras_attn.layers.cells.gru import GRUCell
from keras_attn.layers.cells.gru import call_gru
from keras_attn.layers.cells.gru import is_plain_gru


def state_sizes(cell):
    """Returns the widths of all states of a cell or stack, in a flat list."""
    return keras.tree.flatten([x.state_size for x in stacked(cell)])


def stacked(cell):
    """Returns the cells of a stack, bottom cell first, or a list of one."""
    if isinstance(cell, list):
        return cell
    return list(cell.cells) if _is_stack(cell) else [cell]


def output_size(cell):
    """Returns the width of the (top) cell's output."""
    if _is_stack(cell):
        return output_size(cell.cells[-1])
    return getattr(cell, "output_size", None) or state_sizes(cell)[0]


def hidden_index(cell):
    """Returns the index of the (top) cell's hidden state in the flat states."""
    if not _is_stack(cell):
        return 0
    *below, top = cell.cells
    return sum(len(state_sizes(x)) for x in below) + hidden_index(top)


def puts_out_hidden(cell):
    """Whether the (top) cell's output is known to be its hidden state."""
    known = GRUCell, layers.GRUCell, layers.LSTMCell, layers.SimpleRNNCell
    return type(stacked(cell)[-1]) in known


def initial_state(cell, batch, dtype):
    """Returns the initial states that the cell defines, or zeros."""
    if hasattr(cell, "get_initial_state"):
        return cell.get_initial_state(batch_size=batch)
    return [ops.zeros((batch, size), dtype) for size in state_sizes(cell)]


def run(cell, inputs, states, training, joined=None):
    """Runs one step of a cell.

    Args:
        cell: A Keras RNN cell, or a list of cells, the bottom one first.
        inputs: Tensor of shape `(batch, beams, dim)`.
        states: Flat tuple of tensors `(batch, beams, width)`.
        training: Whether dropout applies.
        joined: Tensor `(batch, beams, dim)`, or `None`. In a stack it is
            concatenated to the inputs of each cell but the bottom one.

    Returns:
        The output `(batch, beams, dim)`, and the new states, like `states`.
    """
    if not (isinstance(cell, list) or _is_stack(cell)):
        return _run_one(cell, inputs, states, training)
    new_states = []
    for one in stacked(cell):
        if joined is not None and new_states:
            inputs = ops.concatenate([inputs, joined], axis=-1)
        count = len(state_sizes(one))
        its_own, states = states[:count], states[count:]
        inputs, new = run(one, inputs, its_own, training)
        new_states += new
    return inputs, tuple(new_states)


def _run_one(cell, inputs, states, training):
    beams = ops.shape(inputs)[1]
    rows = [ops.reshape(x, (-1, x.shape[-1])) for x in (inputs, *states)]
    call = call_gru if is_plain_gru(cell, training) else _call
    output, new_states = call(cell, rows[0], rows[1:], training)

    def beamed(new, old):
        # The cell may have a dtype policy of its own.
        shape = (-1, beams, new.shape[-1])
        return ops.cast(ops.reshape(new, shape), old.dtype)

    new_states = keras.tree.flatten(new_states)
    # The output usually is the first state, which is then reshaped only once.
    beamed_states = tuple(
        beamed(new, old) for new, old in zip(new_states, states, strict=True)
    )
    if output is new_states[0]:
        return beamed_states[0], beamed_states
    return beamed(output, states[0]), beamed_states


def _call(cell, inputs, states, training):
    structure = cell.state_size
    if not keras.tree.is_nested(structure):
        structure = [structure]
    states = keras.tree.pack_sequence_as(structure, states)
    kwargs = {"training": training} if _takes_training(cell) else {}
    return cell(inputs, states, **kwargs)


def drops(cell):
    """Whether a cell, or a cell inside it, has dropout."""
    return any(
        getattr(x, "dropout", 0) or getattr(x, "recurrent_dropout", 0)
        for x in _leaves(cell)
    )


@contextlib.contextmanager
def dropout_drawn_before(cell, step):
    """Draws the cells' dropout masks before a loop; drops them after it.

    Keras cells draw a mask in their first call and keep it for all steps. But
    a mask that is drawn inside a loop cannot be used outside it, and a mask
    from an earlier trace is out of scope.

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
    """Yields a cell and all cells that it stacks or wraps."""
    yield cell
    for inner in (*getattr(cell, "cells", ()), getattr(cell, "cell", None)):
        if inner is not None:
            yield from _leaves(inner)


def _takes_training(cell):
    return arguments.takes(cell.call, "training")


def _is_stack(cell):
    # A subclass may have its own `call`, so it counts as a single cell.
    return type(cell) is layers.StackedRNNCells
