"""`WholeTokens`: tokens that are found in a text before it is split."""

import re
from collections.abc import Callable
from collections.abc import Sequence

import tensorflow as tf
import tensorflow_text


class WholeTokens:
    """Finds tokens in a text as they are written.

    Args:
        tokens: The tokens.
    """

    def __init__(self, tokens: Sequence[str]):
        self._tokens = list(tokens)
        # Longer ones first, since one may begin with another.
        longest_first = sorted(tokens, key=len, reverse=True)
        self._pattern = "|".join(map(re.escape, longest_first))

    def split(self, strings, split: Callable, values) -> tf.RaggedTensor:
        """Finds the tokens in strings, and splits the text between by `split`.

        Args:
            strings: Strings `(batch,)`.
            split: Function from strings `(batch,)` to pieces or ids `(batch,
                ragged)`, none for an empty string.
            values: The piece or id of each token, of the dtype that `split`
                returns.

        Returns:
            Pieces or ids `(batch, ragged)`.
        """
        if not self._tokens:
            return split(strings)
        parts = tensorflow_text.regex_split(
            strings, self._pattern, self._pattern
        )
        same = parts.flat_values[:, None] == tf.constant(self._tokens)
        is_whole = tf.reduce_any(same, axis=1)
        between = split(tf.where(is_whole, "", parts.flat_values))
        number = tf.argmax(tf.boolean_mask(same, is_whole), axis=1)
        found = tf.RaggedTensor.from_row_lengths(
            tf.gather(tf.cast(values, between.dtype), number),
            tf.cast(is_whole, between.row_splits.dtype),
        )
        pieces = tf.concat([between, found], axis=1)
        return tf.RaggedTensor.from_row_splits(
            pieces.flat_values, tf.gather(pieces.row_splits, parts.row_splits)
        )
