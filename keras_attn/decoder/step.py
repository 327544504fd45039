"""One step of a decoder, which training unrolls and a search iterates."""

from typing import NamedTuple

from keras import ops

from keras_attn import cells
from keras_attn.attention.heads import apply_to_rows
from keras_attn.decoder import past
from keras_attn.decoder.state import DecoderState


def run_cell(cell, inputs, beside, states, training, joined=None):
    """A step of a cell that reads two tensors laid end to end.

    Args:
        inputs: Tensor of shape `(batch, beams, dim)`.
        beside: Another, a context or the last output, or `None`.
        cell, states, training, joined: As of `cells.run`.
    """
    if beside is not None:
        inputs = ops.concatenate([inputs, beside], axis=-1)
    return cells.run(cell, inputs, states, training, joined)


def emit(decoder, output, context):
    """What the decoder puts out, for any number of steps."""
    if not decoder.attends:
        return output
    both = ops.concatenate([output, context], axis=-1)
    if decoder.emit == "concatenated":
        return both
    return apply_to_rows(decoder.attentional, both)


def run_step(
    decoder,
    inputs,
    state,
    source,
    draws=(),
    training=False,
    run_cell=run_cell,
    emit=emit,
):
    """A step of each hypothesis, up to what is emitted.

    Args:
        decoder: The `AttentionDecoder`.
        inputs, state, source: As in its `step()`.
        draws: What each attention drew for this step, and last what the
            self-attention drew; `()` for nothing.
        training: Whether the model trains.
        run_cell, emit: What takes the place of the functions above.

    Returns:
        The outputs, what each attention found but its context, and the new
        state. With input feeding the output belongs to the recurrence;
        without, it is left as `(output of the cell, context)`, for `emit` to
        take all steps at once.
    """

    def attend(cell):
        return _attend(decoder, inputs, state, cell, source, draws, training)

    joined = None
    if decoder.order == "pre" and decoder.attends:
        found = attend(state.cell)
        if decoder.attend == "bottom":
            joined = found.context
        output, cell = run_cell(
            decoder.cell, inputs, found.context, state.cell, training, joined
        )
    else:
        fed = state.fed if decoder.input_feeding else None
        below, above = cell_below(decoder), cells_above(decoder)
        count = len(cells.state_sizes(below)) if above else len(state.cell)
        output, cell = run_cell(
            below, inputs, fed, state.cell[:count], training
        )
        found = attend(cell)
        if above:
            joined = found.context
            both = ops.concatenate([output, joined], axis=-1)
            output, upper = cells.run(
                above, both, state.cell[count:], training, joined
            )
            cell += upper
    outputs, fed = (output, found.context), ()
    if decoder.input_feeding:
        outputs = fed = emit(decoder, *outputs)
    own_past = state.past
    if decoder.self_attention:
        hidden = cell[decoder.queried]
        own_past = past.append(own_past, decoder.self_attention, hidden)
    state = DecoderState(
        cell,
        found.histories,
        fed,
        found.context if "context" in decoder.query else (),
        own_past,
    )
    return outputs, found.attended, state


def run_whole_step(
    decoder, inputs, state, source, run_cell=run_cell, emit=emit
):
    """What `AttentionDecoder.step()` returns, given the same."""
    outputs, attended, state = run_step(
        decoder, inputs, state, source, run_cell=run_cell, emit=emit
    )
    if not decoder.input_feeding:
        outputs = emit(decoder, *outputs)
    alignments = [found.alignments for found in attended]
    if len(alignments) == 1 and not decoder.several:
        (alignments,) = alignments
    return outputs, alignments, state


def _attend(decoder, inputs, state, cell, source, draws, training):
    """What all attentions find, by the query of these states."""
    if not decoder.attends:
        return _Found((), (), ())
    parts = {
        "state": cell[decoder.queried],
        "input": inputs,
        "context": state.context,
    }
    if "condition" in decoder.query:
        parts["condition"] = for_each(inputs, source.condition)
    query = join([parts[name] for name in decoder.query])
    draws = draws or [()] * (len(decoder.attentions) + 1)
    results = [
        attention.attend_step(query, memory, history, draw, training=training)
        for attention, memory, history, draw in zip(
            decoder.attentions,
            source.memories,
            state.histories,
            draws[:-1],
            strict=True,
        )
    ]
    contexts = [attended.context for attended, _ in results]
    if decoder.self_attention:
        contexts.append(
            past.attend(
                state.past, decoder.self_attention, query, draws[-1], training
            )
        )
    return _Found(
        join_contexts(decoder, contexts),
        tuple(without_context(attended) for attended, _ in results),
        tuple(history for _, history in results),
    )


def cell_below(decoder):
    """What runs before the context is there, in the order "post"."""
    if decoder.attend == "bottom":
        return cells.stacked(decoder.cell)[0]
    return decoder.cell


def cells_above(decoder):
    """What runs after it."""
    if decoder.attend == "bottom":
        return cells.stacked(decoder.cell)[1:]
    return []


def join_contexts(decoder, contexts):
    """All contexts laid end to end, in the decoder's precision."""
    # The attentions may have dtype policies of their own.
    return join([ops.cast(x, decoder.compute_dtype) for x in contexts])


class _Found(NamedTuple):
    """What all attentions of a decoder found in a step."""

    context: object  # (batch, beams, dim), all contexts laid end to end
    attended: tuple  # each attention's `Attended`, without its context
    histories: tuple


def without_context(attended):
    """What a loop need not write down a second time."""
    return attended._replace(context=(), by_head=())


def join(tensors):
    """Lays tensors `(..., dim)` end to end."""
    return tensors[0] if len(tensors) == 1 else ops.concatenate(tensors, -1)


def for_each(inputs, condition):
    """`(batch, dim)` -> `(batch, length, dim)`, as long as the inputs."""
    # An addition: XLA cannot compile the gradient of `repeat` in a loop.
    return ops.expand_dims(condition, 1) + ops.zeros_like(inputs[..., :1])
