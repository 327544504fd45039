"""The two ways from strings to ids and back: a vocabulary's, a part's own.

Both first read strings, as pieces or as ids, which a `Text` may cut, and
then make ids of what is left.
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
        """Returns the text of ids `(..., time)`, whose tokens may be known."""
        if tokens is None:
            tokens = self._vocabulary.lookup(ids)
        return by_rows(tokens, ids, self._splitter.join)


class ByOwnIds:
    """Leaves it to a part that has ids of its own.

    Args:
        splitter: `Splitter` with `tokens`.
        vocabulary: `Vocabulary` of these.
    """

    def __init__(self, splitter, vocabulary):
        self._splitter = splitter
        self._vocabulary = vocabulary

    def read(self, strings) -> tf.RaggedTensor:
        """Returns the ids of strings `(batch,)`."""
        ids = tf.cast(self._splitter.ids(strings), tf.int32)
        return ids.with_flat_values(self._known(ids.flat_values))

    def ids(self, ids) -> tf.RaggedTensor:
        """Returns what `read()` returned."""
        return ids

    def pieces(self, strings) -> tf.RaggedTensor:
        """Returns the tokens of strings `(batch,)`, as they are written.

        Unknown ones read `<unk>` where the part does not split.
        """
        if self._splitter.writes("split"):
            return self._splitter.split(strings)
        ids = self.read(strings)
        return ids.with_flat_values(self._vocabulary.lookup(ids.flat_values))

    def strings(self, ids, tokens=None) -> tf.Tensor:
        """Returns the text of ids `(..., time)`."""
        return by_rows(self._known(ids), ids, self._splitter.strings)

    def _known(self, ids):
        """Ids of which those that stand for nothing are unknown."""
        ids = tf.cast(ids, tf.int32)
        size = len(self._vocabulary.tokens)
        return tf.where((ids < UNKNOWN) | (ids >= size), UNKNOWN, ids)


def by_rows(values, ids, join) -> tf.Tensor:
    """Joins values `(..., time)`; those of padding, start and end stay out.

    Args:
        values: Tokens, or the ids themselves.
        ids: Integers `(..., time)`.
        join: Function of ragged values `(rows, ragged)`.
    """
    # Not -1, which a time of zero would leave open.
    rows = tf.reduce_prod(tf.shape(ids)[:-1])
    size = tf.stack([rows, tf.shape(ids)[-1]])
    flat, values = tf.reshape(ids, size), tf.reshape(values, size)
    silent = (flat == PAD) | (flat == START) | (flat == END)
    joined = join(tf.ragged.boolean_mask(values, ~silent))
    return tf.reshape(joined, tf.shape(ids)[:-1])
