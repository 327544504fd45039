"""Attending: any number of queries at once, or one after another.

What score and alignment see has a row for each head: `B` in shapes is the
batch times the heads.
"""

from keras import ops

from keras_attn import loops
from keras_attn.alignments import Sample
from keras_attn.attention.calling import call_alignment
from keras_attn.attention.calling import call_score
from keras_attn.attention.calling import weigh
from keras_attn.attention.calling import weights_of
from keras_attn.attention.heads import apply_to_rows
from keras_attn.attention.heads import fold
from keras_attn.attention.heads import join_axes
from keras_attn.attention.heads import map_tensors
from keras_attn.attention.heads import repeat
from keras_attn.attention.heads import unfold
from keras_attn.attention.memory import Attended
from keras_attn.attention.memory import ByHead
from keras_attn.attention.memory import History
from keras_attn.attention.windows import attend_in_windows


def attend_at_once(
    attention, query, memory, allowed, history, position, draws, training
):
    """Attends for any number of queries, none of which waits for another.

    Args:
        attention: The `Attention`.
        query: Tensor of shape `(batch, target, query_dim)`.
        memory: `Memory` of the source.
        allowed: Boolean tensor that broadcasts to `(batch, target, source)`,
            or `None`.
        history: `History` of each query, or `()`.
        position: int32 tensor `(batch, target)`, the number of each query in
            its sequence, or `None`.
        draws: What the attention's `draw()` returned for these queries.
        training: Whether the model trains.

    Returns:
        `Attended`, and the new history.
    """
    heads, remembers = attention.heads, isinstance(history, History)
    kept = draws["kept"] if "kept" in draws else None
    draws = draws["alignment"] if "alignment" in draws else ()
    head_query, keys, values = query, memory.keys, memory.values
    head_history = history
    if attention.projections:
        head_query = attention.projections.split_query(query)
        keys, values = join_axes(keys), join_axes(values)
        allowed, position = repeat((allowed, position), heads)
        kept, draws = map_tensors(fold, (kept, draws))
        if remembers:
            head_history = _shared(history, heads)
    given = {
        "query": head_query,
        "history": head_history,
        "position": position,
        "training": bool(training),
    }
    own = _own(history, head_history) if remembers else history
    aligning = {**given, "history": own, "draws": draws}
    if attention.alignment.window_width is None:
        scores = call_score(attention.score, given, head_query, keys)
        aligned = call_alignment(attention.alignment, aligning, scores, allowed)
        weights = weights_of(aligned)
        context = weigh(weights, values, kept)
    else:
        aligned, context, weights = attend_in_windows(
            attention,
            head_query,
            keys,
            values,
            memory.mask,
            allowed,
            given,
            aligning,
            kept,
        )
    attended = _join(attention, query, context, weights, aligned)
    if not remembers:
        return attended, ()
    if not attention.uses_history:
        return attended, history._replace(step=history.step + 1)
    carried = attention.score.carry(
        head_history.carried, head_query, keys, weights
    )
    if attention.projections:
        carried = map_tensors(lambda x: unfold(x, heads), carried)
    by_head = history.by_head
    if by_head:
        total = by_head.total + attended.by_head
        by_head = ByHead(attended.by_head, total)
    return attended, History(
        attended.alignments,
        history.total + attended.alignments,
        history.step + 1,
        carried,
        by_head,
    )


def attend_in_turn(
    attention, query, memory, draws, query_mask, allowed, training
):
    """Attends for one target position after another; returns `Attended`."""
    batch, target = ops.shape(query)[0], ops.shape(query)[1]
    inputs = {"query": query, "draws": draws}
    if allowed is not None:
        source = ops.shape(memory.keys)[-2]
        shape = (batch, target, source)
        inputs["allowed"] = ops.broadcast_to(allowed, shape)

    def step(inputs, history):
        # (batch, ...) -> (batch, one query, ...)
        inputs = map_tensors(lambda x: ops.expand_dims(x, 1), inputs)
        attended, history = attention.attend_step(
            inputs["query"],
            memory,
            history,
            inputs["draws"],
            inputs.get("allowed"),
            training,
        )
        return map_tensors(lambda x: ops.squeeze(x, 1), attended), history

    return loops.unroll(
        step,
        inputs,
        attention.initial_history(memory),
        output_dtypes=attention.attended_dtypes(),
        mask=query_mask,
    )


def _shared(history, heads):
    """A row for each head; all are given the same alignments."""
    return History(
        *repeat(history[:3], heads), map_tensors(fold, history.carried)
    )


def _own(history, shared):
    """As shared among the heads, but each with its own alignments."""
    if not history.by_head:
        return shared
    previous, total = map_tensors(fold, history.by_head)
    return shared._replace(previous=previous, total=total)


def _join(attention, query, context, weights, aligned):
    """Makes one of the heads, and lets the gate have its say."""
    by_head, evidence = (), ((), ())
    if isinstance(aligned, Sample):
        evidence = aligned.log_probability, aligned.entropy
    if attention.projections:
        context = attention.projections.join(context)
        by_head = unfold(weights, attention.heads)
        weights = ops.mean(by_head, axis=2)
        # The heads draw apart from each other: log-probabilities add up.
        evidence = map_tensors(
            lambda x: ops.sum(unfold(x, attention.heads), axis=2), evidence
        )
    if attention.context_gate:
        context = context * apply_to_rows(attention.context_gate, query)
    return Attended(context, weights, by_head, *evidence)
