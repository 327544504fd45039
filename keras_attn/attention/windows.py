"""Looking at a source through a window that each query chose."""

from keras import ops

from keras_attn.backend import take_rows


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
        positions = ops.expand_dims(first, -1) + ops.arange(width)
        self.inside = ops.logical_and(positions >= 0, positions < source)
        self._positions = ops.clip(positions, 0, source - 1)

    def look(self, x):
        """`(batch, source, dim)` -> `(batch * target, window, dim)`."""
        x = take_rows(x, self._positions)
        return ops.reshape(x, (-1, self._width, x.shape[-1]))

    def pick(self, x):
        """`(batch, target, source)` -> `(batch, target, window)`."""
        shape = ops.shape(self._positions)
        rows = ops.reshape(x, (-1, self._source))
        positions = ops.reshape(self._positions, (-1, self._width))
        return ops.reshape(take_rows(rows, positions), shape)

    def spread(self, weights):
        """`(batch, target, window)` -> `(batch, target, source)`."""
        place = ops.arange(self._source) - ops.expand_dims(self._first, -1)
        inside = ops.logical_and(place >= 0, place < self._width)
        shape = ops.shape(place)
        spread = take_rows(
            ops.reshape(weights, (-1, self._width)),
            ops.reshape(
                ops.clip(place, 0, self._width - 1), (-1, self._source)
            ),
        )
        return ops.where(inside, ops.reshape(spread, shape), 0.0)
