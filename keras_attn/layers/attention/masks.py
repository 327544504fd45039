"""Masks of the positions that a query may look at, and query numbers."""

from keras import ops


def for_each_query(mask):
    """Adds a target axis: `(batch, source)` -> `(batch, 1, source)`."""
    return None if mask is None else ops.expand_dims(mask, 1)


def causal(batch, target, source):
    """Returns a causal mask `(batch, target, source)`.

    Query `t` may look at source positions up to `t`, which are True.
    """
    rows = ops.expand_dims(ops.arange(target, dtype="int32"), 1)
    not_past = ops.expand_dims(rows >= ops.arange(source, dtype="int32"), 0)
    return ops.broadcast_to(not_past, (batch, target, source))


def positions(query, query_mask):
    """Returns the number of each query among the real ones of its row."""
    batch, target = ops.shape(query)[:2]
    if query_mask is None:
        return ops.broadcast_to(
            ops.arange(target, dtype="int32"), (batch, target)
        )
    numbers = ops.cumsum(ops.cast(query_mask, "int32"), axis=1) - 1
    return ops.maximum(numbers, 0)


def extent(mask, batch, source):
    """Returns the begin and the length of each source, each `(batch, 1)`.

    A source reaches from its first real position to its last. Anything
    before or after is padding.
    """
    if mask is None:
        begin = ops.zeros((batch, 1), dtype="int32")
        return begin, begin + source
    mask = ops.cast(mask, "int32")
    number = ops.arange(1, source + 1, dtype="int32")  # 0 for padding
    # `argmax`, and `max` without `initial`, refuse an empty source.
    end = ops.max(mask * number, axis=1, keepdims=True, initial=0)
    before = ops.cast(ops.cumsum(mask, axis=1) == 0, "int32")
    begin = ops.sum(before, axis=1, keepdims=True)
    return begin, ops.maximum(end - begin, 0)
