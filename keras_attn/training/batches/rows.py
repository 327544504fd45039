"""Pairs as rows in an epoch's order: a length, and an item for each side.

`InMemory` and `Streamed` hold the sides of the pairs. Both know the lengths of
pairs before an epoch is read, and return the dataset of an epoch.
"""

import numpy as np
import tensorflow as tf

from keras_attn.caller import Line
from keras_attn.training.batches.sides import ArraySide
from keras_attn.training.batches.sides import LineSide
from keras_attn.training.batches.sides import Side

WINDOW = 100_000  # number of lines within which a stream is shuffled
_SAMPLE = 10_000  # number of lines of a stream to choose the buckets by
_CHUNK = 256  # number of lines of a stream to turn into ids at a time
_UNEQUAL = (
    "The streams of sources and targets must have the same number of lines. "
    "Received: one that ended before another."
)


class InMemory:
    """Pairs that are all in memory.

    Args:
        sides: List of `LineSide` and `ArraySide`.

    Attributes:
        lengths: Number of ids of each pair's longest side, int32 of shape
            `(pairs,)`.
        longest: Maximum length of a pair.
        counted: Whether `lengths` covers all pairs.
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
            order: `RowOrder`, or `None` for the order of the lines.

        Returns:
            A dataset of tuples: the length of a pair, and an item per side.
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

    It warns once for each side if a line is cut: at once for one of the first
    lines, otherwise when the line is read. Both warnings point to the caller's
    line of code that made the data.

    Args:
        sides: List of `Side`.
        streams: List of datasets of strings, one for each side.
        window: Number of pairs within which the stream is shuffled.

    Attributes:
        As for `InMemory`, but `lengths` covers only the first pairs.
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
                "Received: streams without lines. Are the files empty?"
            )
        lengths, cuts = zip(*found, strict=True)
        self.lengths = np.concatenate(lengths)
        self.longest = max(x.longest for x in sides)
        self._warn(np.sum(cuts, axis=0), f"the first {len(self.lengths)} ")

    def epoch(self, number, order) -> tf.data.Dataset:
        """Returns the rows of an epoch, as `InMemory.epoch` does."""
        lines = self._lines
        if order is not None:
            lines = _shuffled(lines, self._window, order.seed_of(number))
        rows = lines.batch(_CHUNK).map(self._columns).map(self._watched)
        rows = rows.unbatch()
        return rows.map(lambda *row: tuple(map(tf.identity, row)))  # not ragged

    def _columns(self, *lines):
        """Returns lengths of pairs, numbers of lines cut, and columns."""
        lengths, columns, cut = zip(
            *(
                side.columns(x)
                for side, x in zip(self.sides, lines, strict=True)
            ),
            strict=True,
        )
        return tf.reduce_max(tf.stack(lengths), axis=0), tf.stack(cut), *columns

    def _watched(self, lengths, cut, *columns):
        """Returns lengths and columns; warns of cut lines on reading."""
        warned = tf.cond(
            tf.reduce_any(cut > 0),
            lambda: tf.numpy_function(self._warn, [cut], tf.bool),
            lambda: False,
        )
        with tf.control_dependencies([warned]):
            return (tf.identity(lengths), *columns)

    def _warn(self, cut, among=""):
        """Warns once for each side whose lines were cut."""
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


def _shuffled(lines, window, seed):
    """Shuffles as `lines.shuffle(window, seed)` does without a global seed.

    `shuffle` itself combines its seed with TensorFlow's global seed, and the
    order would depend on `keras.utils.set_random_seed`.
    """
    shapes = [x.shape for x in tf.nest.flatten(lines.element_spec)]
    shuffled = tf.raw_ops.ShuffleDataset(
        input_dataset=tf.data.experimental.to_variant(lines),
        buffer_size=tf.constant(window, tf.int64),
        seed=tf.constant(87654321, tf.int64),  # TensorFlow's default
        seed2=seed,
        output_types=[tf.string] * len(shapes),
        output_shapes=shapes,
    )
    return tf.data.experimental.from_variant(shuffled, lines.element_spec)


def _together(streams):
    """Zips streams; reading fails if one ends before another.

    `zip` alone would silently drop the rest of the longer streams.
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
