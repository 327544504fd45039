"""A whole target: the step unrolled, or what needs no loop all at once."""

import keras
from keras import ops

from keras_attn import cells
from keras_attn import loops
from keras_attn.decoder.step import emit
from keras_attn.decoder.step import for_each
from keras_attn.decoder.step import join
from keras_attn.decoder.step import join_contexts
from keras_attn.decoder.step import run_step
from keras_attn.decoder.step import without_context


def unroll(decoder, inputs, state, source, draws, mask, training):
    """Decodes a whole target.

    Args:
        decoder: The `AttentionDecoder`.
        inputs: Tensor of shape `(batch, target, dim)`.
        state: `DecoderState` before the first step, with one beam.
        source: What the decoder's `prepare()` returned.
        draws: What each attention drew, and last what the self-attention
            drew, each `(batch, target, ...)`; `()` for nothing.
        mask: Boolean tensor `(batch, target)`, True = real, or `None`.
        training: Whether the model trains.

    Returns:
        The outputs `(batch, target, output_dim)`, and the `Attended` of each
        attention.
    """
    route = _unroll_step if decoder.recurs else _unroll_cell_then_attend
    return route(decoder, inputs, state, source, draws, mask, training)


def _unroll_step(decoder, inputs, state, source, draws, mask, training):
    """Steps through the target; emits for all steps at once if it can."""

    def step(over_time, state):
        # (batch, ...) -> (batch, one beam, ...)
        inputs, draws = keras.tree.map_structure(
            lambda x: ops.expand_dims(x, 1), over_time
        )
        outputs, attended, state = run_step(
            decoder, inputs, state, source, draws, training
        )
        outputs = keras.tree.map_structure(
            lambda x: ops.squeeze(x, 1), (outputs, attended)
        )
        return outputs, state

    dtype = decoder.compute_dtype
    outputs, attended = loops.unroll(
        step,
        (inputs, draws),
        state,
        output_dtypes=(
            dtype if decoder.input_feeding else (dtype, dtype),
            tuple(
                without_context(attention.attended_dtypes())
                for attention in decoder.attentions
            ),
        ),
        mask=mask,
    )
    if not decoder.input_feeding:
        outputs = emit(decoder, *outputs)
    return outputs, attended


def _unroll_cell_then_attend(
    decoder, inputs, state, source, draws, mask, training
):
    """Steps through the cell alone; then target positions are beams."""
    hidden, output = _unroll_cell(decoder, inputs, state, mask, training)
    if not decoder.attends:
        return output, ()
    parts = {"state": hidden, "input": inputs}
    if "condition" in decoder.query:
        parts["condition"] = for_each(inputs, source.condition)
    query = join([parts[name] for name in decoder.query])
    *draws, own_draws = draws
    attended = [
        attention.attend(query, memory, draw, mask, training=training)
        for attention, memory, draw in zip(
            decoder.attentions, source.memories, draws, strict=True
        )
    ]
    contexts = [found.context for found in attended]
    if decoder.self_attention:
        own = decoder.self_attention.prepare(hidden, value_mask=mask)
        found = decoder.self_attention.attend(
            query, own, own_draws, mask, _before(hidden, mask), training
        )
        contexts.append(found.context)
    return emit(decoder, output, join_contexts(decoder, contexts)), attended


def _unroll_cell(decoder, inputs, state, mask, training):
    """The hidden states and the outputs of the cell, over the target."""
    if decoder.run_whole is not None:
        # Fused kernels want padding at the end, where it needs no mask.
        order = loops.Order(mask)
        output = decoder.run_whole(
            order.real_first(inputs),
            initial_state=[ops.squeeze(x, 1) for x in state.cell],
            training=training,
        )
        output = order.as_before(output)
        # The cell may have a dtype policy of its own.
        output = ops.cast(output, decoder.compute_dtype)
        return output, output
    alike = cells.puts_out_hidden(decoder.cell)

    def step(inputs, cell):
        output, cell = cells.run(
            decoder.cell, ops.expand_dims(inputs, 1), cell, training
        )
        hidden, output = (
            ops.squeeze(x, 1) for x in (cell[decoder.queried], output)
        )
        return hidden if alike else (hidden, output), cell

    dtype = decoder.compute_dtype
    outputs = loops.unroll(
        step, inputs, state.cell, dtype if alike else (dtype, dtype), mask
    )
    return (outputs, outputs) if alike else outputs


def _before(hidden, mask):
    """Which states stand before each: `(batch, target, target)`."""
    batch, target = ops.shape(hidden)[:2]
    rows = ops.expand_dims(ops.arange(target, dtype="int32"), 1)
    before = ops.broadcast_to(
        ops.expand_dims(rows > ops.arange(target, dtype="int32"), 0),
        (batch, target, target),
    )
    return before if mask is None else before & ops.expand_dims(mask, 1)
