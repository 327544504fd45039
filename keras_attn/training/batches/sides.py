"""The sources or the targets of all pairs: lines, features or streams."""

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from keras_attn.caller import warn
from keras_attn.text.lines import encode_lines
from keras_attn.text.text import Text

_CHUNK = 10_000  # number of lines that are turned into ids at a time


class Side:
    """The sources or the targets of all pairs, from a list or a stream.

    Args:
        text: `Text` of the lines. If its splitter draws, the items are lines,
            which are split anew in each batch. Otherwise the items are ids.
        name: Name of the lines in messages.
        is_target: Whether these are targets, which begin with a start token.

    Attributes:
        text: The argument `text`.
        name: The argument `name`.
        longest: Maximum number of ids of a line.
        padded: Shape to which the items of a batch are padded.
        padding: Value with which they are padded.
        pad: Id of padding in a batch, `None` for a side without ids.
    """

    def __init__(self, text: Text, name: str, is_target=False):
        self.text, self.name, self._is_target = text, name, is_target
        self._draws = text.splitter.draws
        special = text.special
        self.pad = special.pad
        around = (*special.source_start, *special.ends_source)
        if is_target:
            around = (*special.start, special.end)
        self.longest = len(around) + text.max_length
        self.padded: list = [] if self._draws else [None]
        self.padding = "" if self._draws else special.pad

    def columns(self, lines):
        """Returns lengths of lines, the items, and the number of lines cut.

        Lengths are int32 `(lines,)`. The items are ragged ids `(lines,
        ragged)`, or the lines themselves if the splitter draws. The number of
        lines cut is a scalar.
        """
        ids = self._ragged(lines)
        column = lines if self._draws else ids
        return (
            tf.cast(ids.row_lengths(), tf.int32),
            column,
            self.cut(lines, ids),
        )

    def cut(self, lines, ids):
        """Returns the number of lines that were cut to `max_length`."""
        # Only rows of full length can have been cut, so only these are split
        # again.
        full = tf.boolean_mask(lines, ids.row_lengths() == self.longest)
        truncated = self.text.without_sampling.is_truncated(full)
        return tf.reduce_sum(tf.cast(truncated, tf.int32))

    def ids(self, batch):
        """Returns the padded ids of a batch of items."""
        if not self._draws:
            # At least one column, as in `Text.ids()`.
            missing = tf.cast(tf.shape(batch)[1] == 0, tf.int32)
            more = [[0, 0], [0, missing]]
            return tf.pad(batch, more, constant_values=self.pad)
        if self._is_target:
            return self.text.ids(batch, start=True)
        return self.text.source_ids(batch)

    def _ragged(self, lines):
        """Returns ragged ids of lines, of the likeliest splits."""
        text = self.text.without_sampling
        if self._is_target:
            return text.ragged_ids(lines, start=True)
        return text.ragged_source_ids(lines)


class LineSide(Side):
    """Lines in memory.

    Args:
        lines: List of bytes.
        text: Their `Text`.
        name: Name of the lines in messages.
        is_target: Whether these are targets.

    Attributes:
        lengths: Number of ids of each line, by its likeliest split if the
            splitter draws.
    """

    def __init__(self, lines, text, name, is_target=False):
        super().__init__(text, name, is_target)
        ids = self._all_ids(lines)
        self.lengths = ids.row_lengths().numpy()
        self._lines = tf.constant(lines) if self._draws else None
        self._values = ids.values
        self._starts = ids.row_splits

    def row(self, i):
        """Returns the item of line `i`: its ids, or the line itself."""
        if self._draws:
            return self._lines[i]
        return self._values[self._starts[i] : self._starts[i + 1]]

    def _all_ids(self, lines):
        """Returns the ragged ids of all lines; warns of cut lines."""
        chunks, cut = [], 0
        for i in range(0, len(lines), _CHUNK):
            chunk = tf.constant(lines[i : i + _CHUNK])
            ids = self._ragged(chunk)
            chunks.append(ids)
            cut += int(self.cut(chunk, ids))
        if cut:
            warn(
                f"{cut} of {len(lines)} {self.name} have more tokens than "
                f"their Text's max_length of {self.text.max_length} and were "
                "cut to it."
            )
        return tf.concat(chunks, axis=0)


class ArraySide:
    """Arrays in memory, one for each pair, such as pictures or frames.

    Args:
        rows: List of arrays of one dtype, as returned by `rows_of`. They have
            one shape, or differ in the length of their first axis.

    Attributes:
        lengths: Length of each array if the lengths differ. Otherwise 0, and
            the buckets depend on the other sides only.
        longest: The largest of `lengths`.
        padded: Shape to which the arrays of a batch are padded.
        padding: 0, in their dtype.
        pad: `None`, as the arrays are not ids.
    """

    pad = None

    def __init__(self, rows):
        lengths = np.array([len(x) for x in rows])
        self._differ = len({*lengths}) > 1
        self.lengths = lengths if self._differ else np.zeros_like(lengths)
        self.longest = int(self.lengths.max())
        shape, dtype = rows[0].shape, rows[0].dtype
        self.padded = [None, *shape[1:]] if self._differ else [*shape]
        self.padding = np.zeros([], dtype)
        if self._differ:
            self._starts = tf.constant(np.cumsum([0, *lengths]))
        self._values = tf.constant(
            np.concatenate(rows) if self._differ else np.stack(rows)
        )

    def row(self, i):
        """Returns the array of pair `i`."""
        if self._differ:
            return self._values[self._starts[i] : self._starts[i + 1]]
        return self._values[i]

    def ids(self, batch):
        """Returns a batch unchanged, as it has no ids."""
        return batch


def rows_of(arrays, name) -> list[np.ndarray]:
    """Returns a caller's features as a list of arrays."""
    if isinstance(arrays, (str, bytes, Mapping, Text)) or not hasattr(
        arrays, "__iter__"
    ):
        raise ValueError(
            f"`{name}` without a `Text` must be an array, or a list of "
            f"arrays, with a row for each pair. Received: {arrays!r:.80}"
        )
    rows = [np.asarray(x) for x in arrays]
    if any(x.dtype.kind not in "biufc" for x in rows):
        raise ValueError(
            f"`{name}` without a `Text` must be numbers. Received: rows of "
            f"dtype {rows[0].dtype}. Pass a `Text` of the lines instead of "
            "`None`."
        )
    rows = [x.astype("float32") if x.dtype == "float64" else x for x in rows]
    kinds = {(x.dtype.name, x.ndim, x.shape[1:]) for x in rows}
    if len(kinds) > 1 or any(not x.ndim for x in rows):
        raise ValueError(
            f"`{name}` must be arrays of one dtype that differ in no axis but "
            "the first, such as frames of `(time, features)`. Received: "
            f"{sorted({(x.dtype.name, x.shape) for x in rows})!r:.200}"
        )
    return rows


def lines_of(lines, name) -> list[bytes]:
    """Returns a caller's lines as a list of bytes."""
    if isinstance(lines, Text) or not hasattr(lines, "__iter__"):
        raise ValueError(
            f"`{name}` must be a list of lines. Received: {lines!r:.80}. Call "
            "`pairs(sources, targets, source_text, target_text)`, in this "
            "order."
        )
    return encode_lines(lines, name)
