"""Looking at a source through a window that each query chose."""

from keras import ops

from keras_attn.attention.calling import call_alignment
from keras_attn.attention.calling import call_score
from keras_attn.attention.calling import weigh
from keras_attn.attention.calling import weights_of
from keras_attn.attention.heads import join_axes
from keras_attn.attention.heads import repeat
from keras_attn.attention.masks import extent
from keras_attn.backend import take_rows


def attend_in_windows(
    attention, query, keys, values, mask, allowed, given, aligning, kept
):
    """Scores and sums only what is inside of each query's window.

    Args:
        attention: An `Attention` whose alignment has a window.
        query: Tensor of shape `(B, target, dim)`, `B` being the batch times
            the heads.
        keys, values: Tensors of shape `(B, source, dim)`.
        mask: Boolean tensor of shape `(batch, source)`, or `None`.
        allowed: Boolean tensor that broadcasts to `(B, target, source)`, or
            `None`.
        given: What the score may name, by name.
        aligning: What the alignment may name.
        kept: Dropout's factors `(B, target, source)`, or `None`.

    Returns:
        What the alignment returned for the windows, the contexts and the
        weights `(B, target, source)`.
    """
    batch, target, source = (*ops.shape(query)[:2], ops.shape(keys)[1])
    begin, length = extent(mask, batch, source)
    if attention.projections and mask is not None:
        begin, length = repeat((begin, length), attention.heads)
    score, alignment = attention.score, attention.alignment
    window = alignment.choose(query, given["position"], begin, length)
    width = alignment.window_width
    windows = Windows(window.first, width, source)

    def rows(x):
        # (B, T, ...) -> (B * T, 1, ...): every query its own source.
        return ops.expand_dims(join_axes(x), 1)

    if score.takes("history") or score.takes("position"):
        # It may ask where a key is in the source: score all, then cut.
        scores = windows.pick(call_score(score, given, query, keys))
    else:
        scores = call_score(score, given, rows(query), windows.look(keys))
        scores = ops.reshape(scores, (batch, target, width))
    inside = windows.inside
    if allowed is not None:
        shape = (batch, target, source)
        inside = inside & windows.pick(ops.broadcast_to(allowed, shape))
    aligning = {**aligning, "window": window}
    aligned = call_alignment(alignment, aligning, scores, inside)
    weights = weights_of(aligned)
    kept = None if kept is None else rows(windows.pick(kept))
    context = weigh(rows(weights), windows.look(values), kept)
    context = ops.reshape(context, (-1, target, context.shape[-1]))
    return aligned, context, windows.spread(weights)


class Windows:
    """The windows of all queries on their sources.

    Args:
        first: int32 tensor `(batch, target)`, the first position of each;
            it may lie before the source, and the last one behind.
        width: Number of positions in a window.
        source: Number of positions in a source.
    """

    def __init__(self, first, width, source):
        self._first, self._width, self._source = first, width, source
        self._rows = ops.shape(first)[0] * ops.shape(first)[1]
        positions = ops.expand_dims(first, -1) + ops.arange(
            width, dtype="int32"
        )
        self.inside = ops.logical_and(positions >= 0, positions < source)
        last = ops.cast(ops.maximum(source - 1, 0), "int32")
        self._positions = ops.clip(positions, 0, last)

    def look(self, x):
        """`(batch, source, dim)` -> `(batch * target, window, dim)`."""
        x = take_rows(_never_empty(x, self._source), self._positions)
        return ops.reshape(x, (-1, self._width, x.shape[-1]))

    def pick(self, x):
        """`(batch, target, source)` -> `(batch, target, window)`."""
        shape = ops.shape(self._positions)
        rows = ops.reshape(x, (self._rows, self._source))
        positions = ops.reshape(self._positions, (-1, self._width))
        rows = _never_empty(rows, self._source)
        return ops.reshape(take_rows(rows, positions), shape)

    def spread(self, weights):
        """`(batch, target, window)` -> `(batch, target, source)`."""
        place = ops.arange(self._source, dtype="int32") - ops.expand_dims(
            self._first, -1
        )
        inside = ops.logical_and(place >= 0, place < self._width)
        shape = ops.shape(place)
        spread = take_rows(
            ops.reshape(weights, (-1, self._width)),
            ops.reshape(
                ops.clip(place, 0, self._width - 1), (self._rows, self._source)
            ),
        )
        return ops.where(inside, ops.reshape(spread, shape), 0.0)


def _never_empty(x, length):
    """One more position in axis 1 where there is none to take.

    Nothing is copied where there are some.
    """
    if isinstance(length, int):
        missing = int(length == 0)
        if not missing:
            return x
    else:
        missing = ops.cast(length == 0, "int32")
    rest = [(0, 0)] * (len(x.shape) - 2)
    return ops.pad(x, [(0, 0), (0, missing), *rest])
