"""A decoder's step with fewer matrix products in the loop of a search.

Rows can be multiplied by a matrix before one of them is looked up. They can
also be multiplied before a weighted sum: W (sum_s a_s m_s) = sum_s a_s (W m_s).
So if the inputs of all tokens form a small table, the table is multiplied by
the cell's kernel once. And if a context is only emitted, the memory is
multiplied instead of every context. The more hypotheses share the memory, the
more this saves.
"""

import dataclasses
from typing import Any

from keras import layers
from keras import ops

from keras_attn.layers import cells
from keras_attn.layers.decoder.emission import Attentional
from keras_attn.layers.decoder.emission import CellAlone
from keras_attn.layers.decoder.order import After
from keras_attn.layers.decoder.recurrence import Recurrence
from keras_attn.placement import keeps


@dataclasses.dataclass(frozen=True)
class Hoisted:
    """A recurrence that computes the same as a decoder's, with fewer products.

    Attributes:
        recurrence: The decoder's `Recurrence` with some parts replaced.
        source: The decoder's `Source`, perhaps with multiplied values.
        looks_up: Whether the recurrence reads ids of tokens.
    """

    recurrence: Recurrence
    source: Any
    looks_up: bool


def hoist(recurrence, cell, source, table=None):
    """Moves matrix products out of a loop of steps, if possible.

    Args:
        recurrence: The `Recurrence` of a decoder.
        cell: The decoder's cell.
        source: The decoder's `Source`.
        table: The inputs of each token, of shape `(vocabulary, dim)`, or
            `None` if inputs depend on more than the token or the vocabulary
            is too large.

    Returns:
        A `Hoisted`, or `None` if no product can be hoisted.
    """
    looks_up = (
        table is not None
        and recurrence.order.at_top
        and cells.is_tabulable(cell)
    )
    if looks_up:
        runner = _LookUp(cells.TabulatedCell(cell, table))
        recurrence = dataclasses.replace(
            recurrence, order=recurrence.order.with_runner(runner)
        )
    hoisted = Hoisted(recurrence, source, looks_up)
    width = cells.output_size(cell)
    if _emits_alone(recurrence, source, width):
        return _emit_before(hoisted, width)
    return hoisted if looks_up else None


class _LookUp:
    """Runs a `TabulatedCell` on token ids; takes the place of a `Runner`."""

    def __init__(self, tabulated):
        self._tabulated = tabulated

    def run(self, tokens, beside, states, training, joined=None):
        return self._tabulated.run(tokens, beside, states)


class _Summed(CellAlone):
    """Emits like `Attentional`, from contexts already multiplied by `Wc`.

    Args:
        dense: The dense layer with the kernel `Wc`.
        kernel: The first rows of `Wc`, which multiply the cell's output.
    """

    def __init__(self, dense, kernel):
        self._dense, self._kernel = dense, kernel

    def emit(self, output, context):
        width = self._kernel.shape[0]
        rows = ops.matmul(ops.reshape(output, (-1, width)), self._kernel)
        rows = rows + ops.reshape(context, (-1, rows.shape[-1]))
        emitted = self._dense.activation(rows)
        beams = ops.shape(output)[1]
        return ops.reshape(emitted, (-1, beams, rows.shape[-1]))


def _emits_alone(recurrence, source, width):
    """Whether each context is only emitted, and is a plain weighted sum."""
    order, emission = recurrence.order, recurrence.emission
    return (
        isinstance(order, After)
        and order.at_top
        and "context" not in recurrence.query.names
        and recurrence.readers.sum_values
        and isinstance(emission, Attentional)
        and _is_plain_dense(emission.dense)
        # Wider products would make the sums cost more than is saved.
        and width <= source.memories[0].values.shape[-1]
    )


def _emit_before(hoisted, width):
    """Multiplies the memory's values instead of the contexts."""
    (memory,) = hoisted.source.memories
    dense = hoisted.recurrence.emission.dense
    kernel = ops.cast(dense.kernel, memory.values.dtype)
    of_output, of_context = kernel[:width], kernel[width:]
    values = ops.matmul(memory.values, of_context)
    memories = (memory._replace(values=values),)
    return dataclasses.replace(
        hoisted,
        recurrence=dataclasses.replace(
            hoisted.recurrence, emission=_Summed(dense, of_output)
        ),
        source=hoisted.source._replace(memories=memories),
    )


def _is_plain_dense(layer):
    """Whether a layer is a plain `Dense` without bias and without changes."""
    return (
        type(layer) is layers.Dense
        and not layer.use_bias
        and layer.quantization_mode is None
        and keeps(layer, "call")
    )
