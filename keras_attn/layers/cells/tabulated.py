"""A cell that looks up products of its kernel and inputs by token id."""

from keras import layers
from keras import ops

from keras_attn.layers.cells.gru import is_plain_gru
from keras_attn.layers.cells.projected import ProjectedCell
from keras_attn.layers.cells.step import run
from keras_attn.layers.cells.step import stacked
from keras_attn.layers.cells.step import state_sizes
from keras_attn.placement import keeps


def is_tabulable(cell):
    """Whether `TabulatedCell` computes the same as this cell or stack."""
    bottom, *_ = stacked(cell)
    known = layers.LSTMCell, layers.SimpleRNNCell
    return is_plain_gru(bottom) or (
        type(bottom) in known and keeps(bottom, "call")
    )


class TabulatedCell:
    """Runs a cell on token ids, with a table of products of its kernel.

    The inputs of each token, such as its embedding, are multiplied by the
    kernel once, before a loop. A step in the loop then looks up a row of these
    products instead of a row of the inputs.

    Args:
        cell: A built cell or stack for which `is_tabulable()` is true.
        table: The inputs of each token, `(vocabulary, dim)`. The cell may
            read further inputs, concatenated after these.
    """

    def __init__(self, cell, table):
        bottom, *self._above = stacked(cell)
        self._bottom = ProjectedCell(bottom)
        dim, kernel = table.shape[-1], self._bottom.kernel
        self._kernel_beside = kernel[dim:]
        products = self._bottom.multiply(table, kernel[:dim])
        self._products = self._bottom.add_bias(products)

    def run(self, tokens, beside, states):
        """Runs one step, without dropout.

        Args:
            tokens: Ids of the tokens to read, `(batch, beams)`.
            beside: Inputs that are concatenated after those of the tokens, a
                tensor `(batch, beams, dim)`, or `None`.
            states: Flat tuple of tensors `(batch, beams, width)`.

        Returns:
            The output `(batch, beams, dim)`, and the new states.
        """
        beams = ops.shape(tokens)[1]
        # Ids may have any dtype, as for an `Embedding`.
        ids = ops.cast(ops.reshape(tokens, (-1,)), "int32")
        products = ops.take(self._products, ids, axis=0)
        if beside is not None:
            products = products + self._bottom.multiply(
                _rows(beside), self._kernel_beside
            )
        count = len(states) - len(state_sizes(self._above))
        first = tuple(
            ops.cast(ops.reshape(new, (-1, beams, new.shape[-1])), old.dtype)
            for new, old in zip(
                self._bottom.step(products, map(_rows, states[:count])),
                states[:count],
                strict=True,
            )
        )
        output, others = run(
            self._above, first[0], states[count:], training=False
        )
        return output, first + tuple(others)


def _rows(x):
    return ops.reshape(x, (-1, x.shape[-1]))
