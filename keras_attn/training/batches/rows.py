"""All pairs as rows: a length and a column for each side, in an epoch's order.

A `Rows` is a list of sides with their lines. It says how long its pairs are,
before it is read, and gives the data set of an epoch.
"""

import numpy as np
import tensorflow as tf

from keras_attn.caller import Line
from keras_attn.training.batches.sides import ArraySide
from keras_attn.training.batches.sides import LineSide
from keras_attn.training.batches.sides import Side

WINDOW = 100_000  # lines of a stream among which the next one is drawn
_SAMPLE = 10_000  # lines of a stream by which the buckets are chosen
_CHUNK = 256  # lines of a stream that are turned into ids at a time
_UNEQUAL = (
    "The streams of sources and targets must have as many lines as each "
    "other. Received: one that ended before another."
)


class InMemory:
    """Pairs that are all in memory.

    Args:
        sides: List of `LineSide` and `ArraySide`.

    Attributes:
        lengths: The ids of each pair's longest side, int32 of shape
            `(pairs,)`.
        longest: The largest length that a pair can have.
        counted: Whether `lengths` are those of all pairs.
    """

    counted = True

    def __init__(self, sides: list[LineSide | ArraySide]):
        self.sides = sides
        self.lengths = np.max([x.lengths for x in sides], axis=0).astype(
            "int32"
        )
        self.longest = int(self.lengths.max())

    def epoch(self, number, order) -> tf.data.Dataset:
        """Returns the rows of an epoch.

        Args:
            number: Number of the epoch, an int64 scalar.
            order: `Order`, or `None` for that of the lines.
        """
        count = len(self.lengths)
        numbers = tf.data.Dataset.range(count)
        if order is not None:
            numbers = tf.data.Dataset.from_tensor_slices(
                order.permutation(count, number)
            )
        lengths = tf.constant(self.lengths)
        return numbers.map(
            lambda i: (lengths[i], *(side.row(i) for side in self.sides))
        )


class Streamed:
    """Pairs that are read anew in each epoch.

    It warns once for each side of which a line was cut: at once if that is
    among the first lines, else when the line is read. Both warnings point to
    the line that made the data.

    Args:
        sides: List of `Side`.
        streams: List of data sets of strings, one for each side.
        window: Number of pairs among which the next one is drawn.

    Attributes:
        As of `InMemory`; `lengths` are those of the first pairs.
    """

    counted = False

    def __init__(self, sides: list[Side], streams, window: int):
        self.sides = sides
        self._window = window
        self._lines = _together(streams)
        self._caller = Line.of_caller()
        self._warned = np.zeros(len(sides), bool)
        first = self._lines.take(_SAMPLE).batch(_CHUNK).map(self._columns)
        try:
            found = [(x.numpy(), cut.numpy()) for x, cut, *_ in first]
        except tf.errors.InvalidArgumentError as error:
            if _UNEQUAL not in str(error):
                raise
            raise ValueError(_UNEQUAL) from None
        if not found:
            raise ValueError(
                "`sources` and `targets` must have at least one line. "
                "Received: streams without any. Are the files empty?"
            )
        lengths, cuts = zip(*found, strict=True)
        self.lengths = np.concatenate(lengths)
        self.longest = max(x.longest for x in sides)
        self._warn(np.sum(cuts, axis=0), f"the first {len(self.lengths)} ")

    def epoch(self, number, order) -> tf.data.Dataset:
        """Returns the rows of an epoch, as `InMemory.epoch` does."""
        lines = self._lines
        if order is not None:
            lines = lines.shuffle(self._window, seed=order.seed_of(number))
        rows = lines.batch(_CHUNK).map(self._columns).map(self._watched)
        rows = rows.unbatch()
        return rows.map(lambda *row: tuple(map(tf.identity, row)))  # not ragged

    def _columns(self, *lines):
        """Returns the lengths of some pairs, lines cut, and columns."""
        lengths, columns, cut = zip(
            *(
                side.columns(x)
                for side, x in zip(self.sides, lines, strict=True)
            ),
            strict=True,
        )
        return tf.reduce_max(tf.stack(lengths), axis=0), tf.stack(cut), *columns

    def _watched(self, lengths, cut, *columns):
        """Returns lengths and columns; reading them warns of lines cut."""
        warned = tf.cond(
            tf.reduce_any(cut > 0),
            lambda: tf.numpy_function(self._warn, [cut], tf.bool),
            lambda: False,
        )
        with tf.control_dependencies([warned]):
            return (tf.identity(lengths), *columns)

    def _warn(self, cut, among=""):
        """Warns of the sides of which lines were cut, once for each."""
        for i, side in enumerate(self.sides):
            if not cut[i] or self._warned[i]:
                continue
            self._warned[i] = True
            self._caller.warn(
                f"{cut[i]} of {among or 'some later '}{side.name} have more "
                "tokens than their Text's max_length of "
                f"{side.text.max_length} and were cut to it, as all such "
                "lines of the stream are."
            )
        return np.True_


def _together(streams):
    """Returns streams side by side; reading fails if one ends before another.

    `zip` alone would leave the rest of the longer ones out.
    """
    marked = [
        x.map(lambda line: (True, line)).concatenate(
            tf.data.Dataset.from_tensors((False, ""))
        )
        for x in streams
    ]

    def check(*rows):
        goes_on = tf.stack([x for x, _ in rows])
        same = tf.reduce_all(goes_on) | ~tf.reduce_any(goes_on)
        with tf.control_dependencies([tf.debugging.Assert(same, [_UNEQUAL])]):
            return (tf.identity(goes_on[0]), *(line for _, line in rows))

    rows = tf.data.Dataset.zip(*marked).map(check)
    rows = rows.take_while(lambda goes_on, *_: goes_on)
    return rows.map(lambda _, *lines: lines)
