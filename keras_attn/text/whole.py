"""`WholeTokens`: tokens that are found in a text before it is split."""

import re
from collections.abc import Callable
from collections.abc import Mapping

import tensorflow as tf
import tensorflow_text


class WholeTokens:
    """Finds tokens in a text as they are written.

    Args:
        ids: The ids of these tokens, by their names.
    """

    def __init__(self, ids: Mapping[str, int]):
        self._names, self._ids = list(ids), list(ids.values())
        # Longer names first, since one may begin with another.
        names = sorted(self._names, key=len, reverse=True)
        self._pattern = "|".join(map(re.escape, names))

    def words(self, strings, split: Callable) -> tf.RaggedTensor:
        """Splits strings `(batch,)` at these tokens, and the rest by `split`.

        Args:
            strings: Strings `(batch,)`.
            split: Function from strings `(batch,)` to words `(batch, ragged)`.
        """
        if not self._names:
            return split(strings)
        parts = tensorflow_text.regex_split(
            strings, self._pattern, self._pattern
        )
        flat = parts.flat_values
        is_whole = self.ids(flat) >= 0
        words = split(tf.where(is_whole, "x", flat))  # "x" stays one word
        part = words.value_rowids()
        return tf.RaggedTensor.from_row_splits(
            tf.where(
                tf.gather(is_whole, part),
                tf.gather(flat, part),
                words.flat_values,
            ),
            tf.gather(words.row_splits, parts.row_splits),
        )

    def ids(self, words) -> tf.Tensor:
        """Returns the id of each word `(words,)`, -1 for any other word."""
        if not self._names:
            return tf.fill(tf.shape(words), -1)
        same = words[:, None] == tf.constant(self._names)
        found = tf.gather(self._ids, tf.argmax(same, axis=1))
        return tf.where(tf.reduce_any(same, axis=1), found, -1)
