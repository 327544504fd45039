"""`Spellings`: the token ids by which a phrase may be written in a text."""

import functools

import tensorflow as tf

from keras_attn.decoding.phrases.matcher import ABSENT
from keras_attn.decoding.phrases.matcher import UNKNOWN
from keras_attn.decoding.phrases.matcher import PhraseMatcher
from keras_attn.text.text import Text
from keras_attn.text.word_groups import WITHOUT_SPACES
from keras_attn.text.word_groups import pieces_of

_TRIED = 50  # tokens on which the splitting of a text is tried
# Candidates for a word before a phrase. The first one that is split the same
# way before any word is used.
_BEFORE = ("a", ".", ",", "1", "-", "A", "e")


class Spellings:
    """Turns phrases into the token ids that they have in a text.

    If tokens include spaces, a phrase is split differently at the beginning of
    a text than after a space. In a script without spaces it may also follow a
    letter directly.

    Args:
        text: The `Text`.
        longest: Most tokens of an output. A longer phrase is cut, but stays
            longer than any output.

    Attributes:
        first: Whether the first spelling occurs only at the beginning of a
            text.
        count: Number of spellings of each phrase; some may be absent.
    """

    def __init__(self, text: Text, longest: int):
        self._text, self._longest = text, longest
        pieces = [x.decode("utf-8", "replace").strip() for x in pieces_of(text)]
        letters = [x for x in pieces if x.isalpha()]
        ranges = (f"\\x{{{a:X}}}-\\x{{{b:X}}}" for a, b in WITHOUT_SPACES)
        self._without_spaces = f"(?s)[{''.join(ranges)}].*"
        self._word: str | None = None
        self._of_word: list[int] = []
        self.first = False
        self._find_word(letters[:_TRIED])
        tight = tf.strings.regex_full_match(
            tf.constant(letters, tf.string), self._without_spaces
        )
        self._tight = self._word is not None and bool(tf.reduce_any(tight))
        self.count = 1 + self.first + self._tight

    def _find_word(self, letters):
        """Finds a word that is split the same way before any other word."""
        if not letters:
            return
        alone = self._text.uncut_ids(letters).to_list()
        for word in (*_BEFORE, *letters):
            (start,) = self._text.uncut_ids([word]).to_list()
            lines = [f"{word} {x}" for x in letters]
            after = self._text.uncut_ids(lines).to_list()
            count = len(start)
            known = self._text.special.unknown not in start
            if not known or any(x[:count] != start for x in after):
                continue
            rest = [x[count:] for x in after]
            more = {
                tuple(x[: len(x) - len(y)])
                for x, y in zip(rest, alone, strict=True)
                if x[-len(y) :] == y
            }
            same = len(more) == 1 and all(
                x[-len(y) :] == y for x, y in zip(rest, alone, strict=True)
            )
            self._word, self._of_word, self.first = word, start, not same
            return

    def __call__(self, phrases) -> tf.Tensor:
        """Returns the ids of phrases, `(phrases, count, length)`.

        Args:
            phrases: Strings `(phrases,)`, none empty.

        Returns:
            int32, padded with `ABSENT`. A spelling that a phrase does not have
            consists of padding only.
        """
        alone = self._ids(phrases)
        found = [alone]
        if self.first:
            after, fits = self._after(phrases, " ")
            found.append(_chosen(fits, after, alone))
        if self._tight:
            after, fits = self._after(phrases, "")
            fits &= tf.strings.regex_full_match(phrases, self._without_spaces)
            found.append(_chosen(fits, after, tf.fill([1, 1], ABSENT)))
        longest = functools.reduce(
            tf.maximum, [tf.shape(x)[1] for x in found], 1
        )
        return tf.stack([_padded(x, longest) for x in found], axis=1)

    def of_rows(self, phrases) -> tf.Tensor:
        """Returns the ids of phrases, `(batch, P, count, length)`, padded.

        Args:
            phrases: Strings `(batch, ragged)`, none empty.
        """
        ids = phrases.with_flat_values(self(phrases.flat_values))
        size = [None, None, self.count, None]
        return tf.ensure_shape(ids.to_tensor(ABSENT), size)

    def lengths(self, phrases) -> tf.RaggedTensor:
        """Returns the fewest tokens of phrases `(batch, ragged)`, int32."""
        matcher = PhraseMatcher(self(phrases.flat_values)[None], self.first)
        return phrases.with_flat_values(matcher.shortest[0])

    def those_that_fit(self, phrases) -> tf.RaggedTensor:
        """Drops the last phrases of rows that have too many.

        A row keeps phrases with up to twice as many tokens as the longest
        output, since phrases may overlap.
        """
        counts = tf.cumsum(self.lengths(phrases).to_tensor(), axis=1)
        fits = counts <= 2 * self._longest
        rows = phrases.row_lengths()
        fits = tf.RaggedTensor.from_tensor(fits, lengths=rows)
        return tf.ragged.boolean_mask(phrases, fits)

    def those_that_may_come(self, phrases) -> tf.RaggedTensor:
        """Drops phrases that are longer than any output."""
        may = self.lengths(phrases) <= self._longest
        return tf.ragged.boolean_mask(phrases, may)

    def are_known(self, ids) -> tf.Tensor:
        """Returns whether phrases are made of tokens that the text knows.

        Args:
            ids: The ids of the phrases, `(..., count, length)`.
        """
        unknown = self._text.special.unknown
        known = tf.reduce_all(ids != UNKNOWN, axis=[-2, -1])
        if unknown >= 0:
            known &= tf.reduce_all(ids != unknown, axis=[-2, -1])
        return known & tf.reduce_any(ids != ABSENT, axis=[-2, -1])

    def _ids(self, strings):
        ids = self._text.uncut_ids(strings)
        flat = tf.cast(ids.flat_values, tf.int32)
        # In a text without an unknown token, unknown tokens have the id -1.
        ids = ids.with_flat_values(tf.where(flat < 0, UNKNOWN, flat))
        most = self._longest + 1 + len(self._of_word)
        return ids[:, :most].to_tensor(ABSENT)

    def _after(self, phrases, between):
        """Returns the ids of phrases after the word, and whether they exist."""
        count = len(self._of_word)
        ids = self._ids(tf.strings.join([self._word + between, phrases]))
        ids = _padded(ids, tf.maximum(tf.shape(ids)[1], count + 1))
        fits = tf.reduce_all(ids[:, :count] == self._of_word, axis=1)
        return ids[:, count:], fits & (ids[:, count] != ABSENT)


def phrases_in(lines) -> tf.RaggedTensor:
    """Splits strings `(batch,)` into phrases, at line feeds.

    Repeated phrases are dropped. Spaces around a phrase are removed, and each
    run of white space becomes one space.

    Returns:
        Strings `(batch, ragged)`.
    """
    phrases = tf.strings.split(lines, "\n")
    flat = tf.strings.regex_replace(phrases.flat_values, r"\s+", " ")
    phrases = phrases.with_flat_values(tf.strings.strip(flat))
    return distinct(tf.ragged.boolean_mask(phrases, phrases != ""))


def distinct(phrases) -> tf.RaggedTensor:
    """Returns strings `(batch, ragged)` without repetitions in a row."""
    rows = tf.strings.as_string(phrases.value_rowids())
    keys = tf.strings.join([rows, phrases.flat_values], "\n")
    found, index = tf.unique(keys)
    numbers = tf.range(tf.size(keys))
    first = tf.math.unsorted_segment_min(numbers, index, tf.size(found))
    is_first = tf.gather(first, index) == numbers
    return tf.ragged.boolean_mask(phrases, phrases.with_flat_values(is_first))


def _chosen(which, ids, others):
    """Returns rows of `ids` where `which` is true, otherwise of `others`."""
    longest = tf.maximum(tf.shape(ids)[1], tf.shape(others)[1])
    return tf.where(
        which[:, None], _padded(ids, longest), _padded(others, longest)
    )


def _padded(ids, length):
    """Returns ids padded with `ABSENT` to `(rows, length)`."""
    more = [[0, 0], [0, length - tf.shape(ids)[1]]]
    return tf.pad(ids, more, constant_values=ABSENT)
