"""The two orders of a decoder: it attends before its cell runs, or after.

A step runs `begin()`, attends with the hidden state that it returns, and runs
`finish()`.
"""

from typing import NamedTuple

from keras import ops

from keras_attn.layers import cells


class Ran(NamedTuple):
    """The results of the cells that have run so far in a step."""

    output: object  # (batch, beams, dim), of the top cell that ran, or None
    states: tuple  # the cells' states, flat, each (batch, beams, width)


class Runner:
    """Runs a cell on the concatenation of two tensors.

    Args:
        cell: A Keras RNN cell.
    """

    def __init__(self, cell):
        self._cell = cell

    def run(self, inputs, beside, states, training, joined=None):
        """Runs one step and returns the results of `cells.run`.

        Args:
            inputs: Tensor of shape `(batch, beams, dim)`.
            beside: A context or the last output to concatenate after
                `inputs`, a tensor `(batch, beams, dim)`, or `None`.
            states, training, joined: As for `cells.run`.
        """
        if beside is not None:
            inputs = ops.concatenate([inputs, beside], axis=-1)
        return cells.run(self._cell, inputs, states, training, joined)


class Before:
    """Attends, then runs the cell on `[input; context]`.

    Args:
        runner: A `Runner` of the cell.
        joins: Whether the context also enters the cells above the bottom one.

    Reference:
        - [Bahdanau et al., 2015](https://arxiv.org/abs/1409.0473)
    """

    def __init__(self, runner, joins=False):
        self._runner = runner
        self._joins = joins

    @property
    def at_top(self):
        """Whether the query is the state of the top cell."""
        return not self._joins

    def with_runner(self, runner):
        """Returns the same order with another runner."""
        return Before(runner, self._joins)

    def begin(self, inputs, state, training):
        """Returns the previous states: no cell runs before the attention."""
        return Ran(None, state.cell)

    def finish(self, ran, inputs, context, state, training):
        """Returns the cell's output and new states."""
        joined = context if self._joins else None
        return Ran(
            *self._runner.run(inputs, context, ran.states, training, joined)
        )


class After:
    """Runs the cell on `[input; last output]` or the input, then attends.

    Args:
        runner: A `Runner` of the cell, or of the bottom cell.
        count: Number of states of that cell.
        above: The cells above it that run after the attention. The context
            enters them all.

    Reference:
        - [Luong et al., 2015](https://arxiv.org/abs/1508.04025), section 3.3
        - [Wu et al., 2016](https://arxiv.org/abs/1609.08144), section 3, for
          the cells above
    """

    def __init__(self, runner, count, above=()):
        self._runner = runner
        self._count = count
        self._above = list(above)

    @property
    def at_top(self):
        """Whether the query is the state of the top cell."""
        return not self._above

    def with_runner(self, runner):
        """Returns the same order with another runner."""
        return After(runner, self._count, self._above)

    def begin(self, inputs, state, training):
        """Runs the cells that run before the attention."""
        fed = None if isinstance(state.fed, tuple) else state.fed
        states = state.cell[: self._count]
        return Ran(*self._runner.run(inputs, fed, states, training))

    def finish(self, ran, inputs, context, state, training):
        """Runs the cells above; returns their output, and all new states."""
        if not self._above:
            return ran
        both = ops.concatenate([ran.output, context], axis=-1)
        states = state.cell[self._count :]
        output, states = cells.run(self._above, both, states, training, context)
        return Ran(output, ran.states + states)
