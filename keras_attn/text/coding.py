"""Two codings from strings to ids and back: by vocabulary, by splitter.

Both first read strings as pieces or ids, which a `Text` may then cut. Then
they turn the remaining ones into ids.
"""

import tensorflow as tf

from keras_attn.special_tokens import END
from keras_attn.special_tokens import PAD
from keras_attn.special_tokens import START
from keras_attn.special_tokens import UNKNOWN


class ByVocabulary:
    """Splits strings into pieces and looks them up.

    Args:
        splitter: `Splitter`.
        vocabulary: `Vocabulary` of the pieces.
    """

    def __init__(self, splitter, vocabulary):
        self._splitter = splitter
        self._vocabulary = vocabulary

    def read(self, strings) -> tf.RaggedTensor:
        """Returns the pieces of strings `(batch,)`."""
        return self._splitter.split(strings)

    def ids(self, pieces) -> tf.RaggedTensor:
        """Returns the ids of what `read()` returned."""
        return pieces.with_flat_values(self._vocabulary.ids(pieces.flat_values))

    def pieces(self, strings) -> tf.RaggedTensor:
        """Returns the tokens of strings `(batch,)`, as they are written."""
        return self._splitter.split(strings)

    def strings(self, ids, tokens=None) -> tf.Tensor:
        """Returns the text of ids `(..., time)`, or of their `tokens`."""
        if tokens is None:
            tokens = self._vocabulary.lookup(ids)
        return by_rows(tokens, ids, self._splitter.join)


class ByOwnIds:
    """Uses the ids of a splitter that has its own.

    Args:
        splitter: `Splitter` with `tokens`.
        vocabulary: `Vocabulary` of these tokens.
    """

    def __init__(self, splitter, vocabulary):
        self._splitter = splitter
        self._vocabulary = vocabulary

    def read(self, strings) -> tf.RaggedTensor:
        """Returns the ids of strings `(batch,)`."""
        ids = tf.cast(self._splitter.ids(strings), tf.int32)
        return ids.with_flat_values(self._known(ids.flat_values))

    def ids(self, ids) -> tf.RaggedTensor:
        """Returns its argument: `read()` returned ids already."""
        return ids

    def pieces(self, strings) -> tf.RaggedTensor:
        """Returns the tokens of strings `(batch,)`, as they are written.

        If the splitter has no `split()`, unknown ones read `<unk>`.
        """
        if self._splitter.writes("split"):
            return self._splitter.split(strings)
        ids = self.read(strings)
        return ids.with_flat_values(self._vocabulary.lookup(ids.flat_values))

    def strings(self, ids, tokens=None) -> tf.Tensor:
        """Returns the text of ids `(..., time)`."""
        return by_rows(self._known(ids), ids, self._splitter.strings)

    def _known(self, ids):
        """Returns ids, with those that have no token replaced by unknown."""
        ids = tf.cast(ids, tf.int32)
        size = len(self._vocabulary.tokens)
        return tf.where((ids < UNKNOWN) | (ids >= size), UNKNOWN, ids)


def by_rows(values, ids, join) -> tf.Tensor:
    """Joins values `(..., time)` without padding, start and end tokens.

    Args:
        values: Tokens, or the ids themselves.
        ids: Integers `(..., time)`.
        join: Function of ragged values `(rows, ragged)`.
    """
    # Not -1: with a time of zero the number of rows could not be inferred.
    rows = tf.reduce_prod(tf.shape(ids)[:-1])
    size = tf.stack([rows, tf.shape(ids)[-1]])
    flat, values = tf.reshape(ids, size), tf.reshape(values, size)
    silent = (flat == PAD) | (flat == START) | (flat == END)
    joined = join(tf.ragged.boolean_mask(values, ~silent))
    return tf.reshape(joined, tf.shape(ids)[:-1])
