"""The source positions that each query looks at: all of them, or a window.

`B` in shapes is the batch times the heads.
"""

from keras import ops

from keras_attn.backend import never_empty
from keras_attn.backend import reshape
from keras_attn.backend import take_rows
from keras_attn.layers.attention.heads import join_axes


class Everywhere:
    """Lets every query look at its whole source."""

    window = None

    def compare(self, query, keys):
        """Returns the queries and keys for the score to compare."""
        return query, keys

    def scores(self, scores):
        """Returns the scores to align, `(B, target, positions)`."""
        return scores

    def allowed(self, allowed):
        """Returns the mask of the positions that queries may look at."""
        return allowed

    def sum(self, weights, values, kept):
        """Returns the weighted sums of the values, after dropout.

        Args:
            weights: Tensor of shape `(B, target, positions)`.
            values: Tensor of shape `(B, source, dim)`.
            kept: Dropout's factors for the weights, `(B, target, source)`, or
                `None` for no dropout.
        """
        return _weigh(weights, values, kept)

    def spread(self, weights):
        """Returns the weights over the whole source."""
        return weights


class Windows:
    """Lets every query look at its own window.

    Args:
        window: The `Window` that an alignment chose.
        width: Number of positions in a window.
        source: Number of positions in a source.
        score_all: Whether to score all keys and pick the scores in the
            windows afterwards, for a score that depends on where a key is in
            the source.
    """

    def __init__(self, window, width, source, score_all):
        self.window = window
        # A window may begin before the source and end after it.
        self._first, self._width, self._source = window.first, width, source
        self._score_all = score_all
        self._shape = ops.shape(self._first)
        self._rows = self._shape[0] * self._shape[1]
        positions = ops.expand_dims(self._first, -1) + ops.arange(
            width, dtype="int32"
        )
        self._inside = ops.logical_and(positions >= 0, positions < source)
        last = ops.cast(ops.maximum(source - 1, 0), "int32")
        self._positions = ops.clip(positions, 0, last)

    def compare(self, query, keys):
        """Returns each query as a row, with the keys in its window."""
        if self._score_all:
            return query, keys
        return _row_each(query), self._look(keys)

    def scores(self, scores):
        """Returns scores `(B, target, window)`."""
        if self._score_all:
            return self._pick(scores)
        return ops.reshape(scores, (*self._shape, self._width))

    def allowed(self, allowed):
        """Returns `(B, target, window)`: inside the source, and allowed."""
        if allowed is None:
            return self._inside
        shape = (*self._shape, self._source)
        return self._inside & self._pick(ops.broadcast_to(allowed, shape))

    def sum(self, weights, values, kept):
        """Returns the weighted sums of the values in the windows."""
        kept = None if kept is None else _row_each(self._pick(kept))
        context = _weigh(_row_each(weights), self._look(values), kept)
        return reshape(context, (*self._shape, context.shape[-1]))

    def spread(self, weights):
        """`(B, target, window)` -> `(B, target, source)`."""
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

    def _look(self, x):
        """`(B, source, dim)` -> `(B * target, window, dim)`."""
        x = take_rows(never_empty(x, 1), self._positions)
        return ops.reshape(x, (-1, self._width, x.shape[-1]))

    def _pick(self, x):
        """`(B, target, source)` -> `(B, target, window)`."""
        shape = ops.shape(self._positions)
        rows = ops.reshape(x, (self._rows, self._source))
        positions = ops.reshape(self._positions, (-1, self._width))
        rows = never_empty(rows, 1)
        return ops.reshape(take_rows(rows, positions), shape)


def _weigh(weights, values, kept):
    factors = ops.cast(weights, values.dtype)
    if kept is not None:
        factors = factors * kept
    return ops.matmul(factors, values)


def _row_each(x):
    """`(B, target, ...)` -> `(B * target, 1, ...)`."""
    return ops.expand_dims(join_axes(x), 1)
