"""A decoder's step with fewer products in the loop of a search.

A product with a matrix may be taken before a row is looked up, and before
rows are summed with weights: W (sum_s a_s m_s) = sum_s a_s (W m_s). So where
the inputs of all tokens are a small table, the table is multiplied by the
cell's kernel, once. And where a context is only emitted, the memory is
multiplied instead of every context; it pays the more, the more hypotheses
share it.
"""

from keras import layers
from keras import ops

from keras_attn import cells
from keras_attn.attention import Attention
from keras_attn.decoder.base import AttentionDecoder
from keras_attn.decoder.step import emit
from keras_attn.decoder.step import run_cell
from keras_attn.decoder.step import run_whole_step


def hoist(decoder, source, table=None):
    """Takes products before a loop, where that may be.

    Args:
        decoder: An `AttentionDecoder`.
        source: What its `prepare()` returned.
        table: The inputs that each token has, of shape `(vocabulary, dim)`,
            or `None` if they depend on more than the token or are too many.

    Returns:
        A function that returns what `AttentionDecoder.step()` does, of
        inputs `(batch, beams, dim)`, of the ids `(batch, beams)` of their
        tokens and of the state, or `None` where every product must stay; and
        whether it looks the ids up.
    """
    if _is_replaced(decoder, AttentionDecoder, "step"):
        return None, False
    cell = emit_sum = None
    if table is not None and decoder.attend == "top":
        if cells.is_tabulable(decoder.cell):
            cell = cells.TabulatedCell(decoder.cell, table)
    if _emits_alone(decoder):
        source, emit_sum = _emit_before(decoder, source)
    if cell is None and emit_sum is None:
        return None, False

    def step(inputs, tokens, state):
        def look_up(_, inputs, beside, states, *more):
            return cell.run(tokens, beside, states)

        return run_whole_step(
            decoder,
            inputs,
            state,
            source,
            run_cell=look_up if cell is not None else run_cell,
            emit=emit_sum or emit,
        )

    return step, cell is not None


def _emits_alone(decoder):
    """Whether contexts are only emitted, each a weighted sum of values."""
    if len(decoder.attentions) != 1 or decoder.self_attention:
        return False
    (attention,) = decoder.attentions
    return (
        decoder.order == "post"
        and decoder.emit == "attentional"
        and decoder.attend == "top"
        and "context" not in decoder.query
        and _is_plain_dense(decoder.attentional)
        and attention.compute_dtype == decoder.compute_dtype
        and not attention.projections
        and not attention.context_gate
        and not _is_replaced(attention, Attention, "attend_step")
        # Sums of wider rows would cost more than the products save.
        and cells.output_size(decoder.cell) <= decoder.context_dim
    )


def _emit_before(decoder, source):
    """Multiplies the memory in the place of contexts.

    Returns:
        The source with other values, and what emits of an output and their
        weighted sum.
    """
    (memory,) = source.memories
    kernel = ops.cast(decoder.attentional.kernel, decoder.compute_dtype)
    width = cells.output_size(decoder.cell)
    of_output, of_context = kernel[:width], kernel[width:]
    values = ops.matmul(memory.values, of_context)
    source = source._replace(memories=(memory._replace(values=values),))

    def emit_sum(decoder, output, context):
        rows = ops.matmul(ops.reshape(output, (-1, width)), of_output)
        rows = rows + ops.reshape(context, (-1, rows.shape[-1]))
        emitted = decoder.attentional.activation(rows)
        beams = ops.shape(output)[1]
        return ops.reshape(emitted, (-1, beams, rows.shape[-1]))

    return source, emit_sum


def _is_plain_dense(layer):
    """Whether it computes what the decoder's own layer does, and here."""
    return (
        type(layer) is layers.Dense
        and not layer.use_bias
        and layer.quantization_mode is None
        and "call" not in vars(layer)
    )


def _is_replaced(layer, base, method):
    """Whether a subclass has a method of its own, or `on_device` has it."""
    own = getattr(type(layer), method) is not getattr(base, method)
    return own or method in vars(layer)
