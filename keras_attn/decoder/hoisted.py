"""A decoder's step with fewer products in the loop of a search.

A product with a matrix may be taken before a row is looked up, and before
rows are summed with weights: W (sum_s a_s m_s) = sum_s a_s (W m_s). So where
the inputs of all tokens are a small table, the table is multiplied by the
cell's kernel, once. And where a context is only emitted, the memory is
multiplied instead of every context; it pays the more, the more hypotheses
share it.
"""

import dataclasses
from typing import Any

from keras import layers
from keras import ops

from keras_attn import cells
from keras_attn.decoder.emission import Attentional
from keras_attn.decoder.emission import CellAlone
from keras_attn.decoder.order import After
from keras_attn.decoder.recurrence import Recurrence
from keras_attn.placement import keeps


@dataclasses.dataclass(frozen=True)
class Hoisted:
    """A recurrence that computes what a decoder's does.

    Attributes:
        recurrence: The decoder's, of which some parts are others.
        source: Its `Source`, perhaps with the values multiplied.
        looks_up: Whether the recurrence is given the ids of tokens.
    """

    recurrence: Recurrence
    source: Any
    looks_up: bool


def hoist(recurrence, cell, source, table=None):
    """Takes products before a loop, where that may be.

    Args:
        recurrence: The `Recurrence` of a decoder.
        cell: Its cell.
        source: The decoder's `Source`.
        table: The inputs that each token has, of shape `(vocabulary, dim)`,
            or `None` if they depend on more than the token or are too many.

    Returns:
        A `Hoisted`, or `None` where every product must stay.
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
    """Runs a cell on ids whose products were taken; like a `Runner`."""

    def __init__(self, tabulated):
        self._tabulated = tabulated

    def run(self, tokens, beside, states, training, joined=None):
        return self._tabulated.run(tokens, beside, states)


class _Summed(CellAlone):
    """Emits like `Attentional` of a context multiplied before.

    Args:
        dense: The layer.
        kernel: What meets the output of the cell, the first rows of its own.
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
    """Whether contexts are only emitted, each a weighted sum of values."""
    order, emission = recurrence.order, recurrence.emission
    return (
        isinstance(order, After)
        and order.at_top
        and "context" not in recurrence.query.names
        and recurrence.readers.sum_values
        and isinstance(emission, Attentional)
        and _is_plain_dense(emission.dense)
        # Sums of wider rows would cost more than the products save.
        and width <= source.memories[0].values.shape[-1]
    )


def _emit_before(hoisted, width):
    """Multiplies the memory in the place of contexts."""
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
    """Whether it computes what the decoder's own layer does, and here."""
    return (
        type(layer) is layers.Dense
        and not layer.use_bias
        and layer.quantization_mode is None
        and keeps(layer, "call")
    )
