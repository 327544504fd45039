"""Two ways to turn strings into ids: by a vocabulary or by the splitter.

Both first split strings into pieces or ids, which a `Text` may then cut. Then
they turn what remains into ids.
"""

import functools
import operator

import tensorflow as tf

from keras_attn.text.whole import WholeTokens

_FEW = 8  # up to this many ids, comparing with one after another is faster


class ByVocabulary:
    """Splits strings into pieces and looks them up.

    Args:
        splitter: `Splitter`.
        vocabulary: `Vocabulary` of the pieces.
    """

    def __init__(self, splitter, vocabulary):
        self._splitter = splitter
        self._vocabulary = vocabulary

    def read(self, strings, keep_unknown=False) -> tf.RaggedTensor:
        """Returns the pieces of strings `(batch,)`, unknown ones too."""
        return self._splitter.split(strings)

    def ids(self, pieces) -> tf.RaggedTensor:
        """Returns the ids of what `read()` returned."""
        return pieces.with_flat_values(self._vocabulary.ids(pieces.flat_values))

    def pieces(self, strings) -> tf.RaggedTensor:
        """Returns the tokens of strings `(batch,)`, as they are written."""
        return self._splitter.split(strings)

    def strings(self, ids, tokens=None) -> tf.Tensor:
        """Returns the text of ids `(..., time)`, or of `tokens` if given."""
        if tokens is None:
            tokens = self._vocabulary.lookup(ids)
        special = self._vocabulary.special
        return by_rows(tokens, ids, self._splitter.join, special)


class ByOwnIds:
    """Uses the ids of a splitter that has its own.

    Args:
        splitter: `Splitter` with `tokens`.
        vocabulary: `Vocabulary` of these tokens.
    """

    def __init__(self, splitter, vocabulary):
        self._splitter = splitter
        self._vocabulary = vocabulary
        special = vocabulary.special
        self._in_text = special.spelled_tokens
        self._whole_ids = [*special.prompt_tokens, *self._in_text]
        self._names = [vocabulary.tokens[i] for i in self._whole_ids]
        finds = splitter.finds_special
        self._whole = WholeTokens([] if finds else self._names)

    def read(self, strings, keep_unknown=False) -> tf.RaggedTensor:
        """Returns the ids of strings `(batch,)`.

        Special tokens spelled in a text become unknown. `prompt_tokens` and
        `spelled_tokens` keep their ids.

        Args:
            strings: The strings.
            keep_unknown: If there is no unknown token, whether what would be
                unknown gets the id -1 instead of being left out.
        """
        special = self._vocabulary.special
        split = self._splitter.ids
        if keep_unknown:
            split = self._splitter.marked_ids
        ids = self._whole.split(strings, split, self._whole_ids)
        ids = tf.cast(ids, tf.int32)
        flat = self._known(ids.flat_values)
        silent = is_one_of(
            flat, [x for x in special.non_text_ids if x not in self._in_text]
        )
        found = ids.with_flat_values(tf.where(silent, special.unknown, flat))
        if special.unknown < 0 and not keep_unknown:
            return tf.ragged.boolean_mask(found, found >= 0)
        return found

    def ids(self, ids) -> tf.RaggedTensor:
        """Returns its argument: `read()` returned ids already."""
        return ids

    def pieces(self, strings) -> tf.RaggedTensor:
        """Returns the tokens of strings `(batch,)`, as they are written.

        If the splitter has no `split()`, an unknown token is returned as
        `<unk>`.
        """
        if self._splitter.writes("split"):
            return self._whole.split(strings, self._splitter.split, self._names)
        ids = self.read(strings)
        return ids.with_flat_values(self._vocabulary.lookup(ids.flat_values))

    def strings(self, ids, tokens=None) -> tf.Tensor:
        """Returns the text of ids `(..., time)`."""
        special = self._vocabulary.special
        known = self._known(ids)
        return by_rows(known, known, self._splitter.strings, special)

    def _known(self, ids):
        """Replaces ids outside the vocabulary by the unknown token.

        If there is no unknown token, they become padding, which has no text.
        """
        special = self._vocabulary.special
        # Not int32 yet, where a larger id would become that of a token.
        ids = tf.cast(ids, tf.int64)
        outside = (ids < 0) | (ids >= len(self._vocabulary.tokens))
        instead = special.pad if special.unknown < 0 else special.unknown
        return tf.where(outside, instead, tf.cast(ids, tf.int32))


def is_one_of(ids, these) -> tf.Tensor:
    """Returns whether each id is in `these`, which must not be empty."""
    if len(these) > _FEW:
        same = ids[..., None] == tf.constant(list(these), ids.dtype)
        return tf.reduce_any(same, axis=-1)
    return functools.reduce(operator.or_, (ids == x for x in these))


def by_rows(values, ids, join, special) -> tf.Tensor:
    """Joins values `(..., time)` without padding, start and end tokens.

    Args:
        values: Tokens, or the ids themselves.
        ids: Integers `(..., time)`.
        join: Function of ragged values `(rows, ragged)`.
        special: `SpecialTokens`.
    """
    # Not -1: if time is 0, the number of rows cannot be inferred.
    rows = tf.reduce_prod(tf.shape(ids)[:-1])
    size = tf.stack([rows, tf.shape(ids)[-1]])
    flat, values = tf.reshape(ids, size), tf.reshape(values, size)
    silent = is_one_of(flat, special.without_text)
    joined = join(tf.ragged.boolean_mask(values, ~silent))
    return tf.reshape(joined, tf.shape(ids)[:-1])
