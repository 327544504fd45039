"""The sources or the targets of all pairs: lists of lines, or streams."""

import warnings

import numpy as np
import tensorflow as tf

from keras_attn.text import Text
from keras_attn.text import encode_lines

_CHUNK = 10_000  # number of lines that are turned into ids at a time


class Side:
    """The sources or the targets, whether they are a list or a stream.

    Args:
        text: `Text` of the lines. If it draws, a batch's lines are split anew
            each time it is made; else a line is split once.
        is_target: Whether these are targets, which begin with a start token.

    Attributes:
        longest: The largest number of ids that a line can have.
        padded: Shape to which a batch of the column's items is padded.
        padding: Value with which they are padded.
    """

    def __init__(self, text: Text, is_target=False):
        self.text, self._is_target = text, is_target
        self._draws = text.splitter.draws
        special = text.special
        first = special.start if is_target else special.source_start
        self.longest = len(first) + text.max_length + 1
        self.padded: list = [] if self._draws else [None]
        self.padding = "" if self._draws else special.pad

    def columns(self, lines):
        """Returns lengths of lines, and the ragged ids, or the lines."""
        ids = self._ragged(lines)
        column = lines if self._draws else ids
        return tf.cast(ids.row_lengths(), tf.int32), column

    def ids(self, batch):
        """Returns the padded ids of a batch of the column's items."""
        if not self._draws:
            return batch
        if self._is_target:
            return self.text.ids(batch, start=True)
        return self.text.source_ids(batch)

    def _ragged(self, lines):
        """Returns the ids of lines, the likeliest ones if the text draws."""
        text = self.text.likeliest
        if self._is_target:
            return text.ragged_ids(lines, start=True)
        return text.ragged_source_ids(lines)


class Lines(Side):
    """Lines in memory.

    Args:
        lines: List of bytes.
        text: Their `Text`.
        name: What the lines are, for messages.
        is_target: Whether these are targets.

    Attributes:
        lengths: Number of ids of each line, of the likeliest ones if the
            text draws.
    """

    def __init__(self, lines, text, name, is_target=False):
        super().__init__(text, is_target)
        ids = self._all_ids(lines, name)
        self.lengths = ids.row_lengths().numpy()
        self._lines = tf.constant(lines) if self._draws else None
        self._values = ids.values
        self._starts = ids.row_splits

    def row(self, i):
        """Returns the item of line `i`, a scalar."""
        if self._draws:
            return self._lines[i]
        return self._values[self._starts[i] : self._starts[i + 1]]

    def _all_ids(self, lines, name):
        """Returns the ragged ids of all lines; warns of lines cut."""
        chunks, cut = [], 0
        text = self.text.likeliest
        for i in range(0, len(lines), _CHUNK):
            chunk = tf.constant(lines[i : i + _CHUNK])
            ids = self._ragged(chunk)
            chunks.append(ids)
            # Only rows of full length can have been cut, so only these are
            # checked.
            full = tf.boolean_mask(chunk, ids.row_lengths() == self.longest)
            cut += int(np.sum(text.is_truncated(full)))
        if cut:
            warnings.warn(
                f"{cut} of {len(lines)} {name} have more tokens than their "
                f"Text's max_length of {text.max_length} and were cut to it.",
                stacklevel=6,
            )
        return tf.concat(chunks, axis=0)


def lines_of(lines, name) -> list[bytes]:
    """Returns a caller's lines as a list of bytes."""
    if isinstance(lines, Text) or not hasattr(lines, "__iter__"):
        raise ValueError(
            f"`{name}` must be a list of lines. Received: {lines!r:.80}. Call "
            "`pairs(sources, targets, source_text, target_text)`, in this "
            "order."
        )
    return encode_lines(lines, name)
