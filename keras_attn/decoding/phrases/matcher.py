"""`PhraseMatcher`: finds the phrases of a hypothesis, token by token."""

from typing import Any
from typing import NamedTuple

import tensorflow as tf

from keras_attn.decoding.step_model import rows_of

ABSENT = -1  # pads spellings
UNKNOWN = -2  # a token that no hypothesis has


class Matched(NamedTuple):
    """The state of hypotheses: how much of `P` phrases they contain."""

    begun: Any  # (B, N), whether the hypothesis has a token
    tails: Any  # (B, N, P, V, L), whether it ends with these first tokens
    found: Any  # (B, N, P), whether it contains the phrase


class PhraseMatcher:
    """Finds phrases in hypotheses with the shift-and algorithm.

    For each beginning of a spelling, a bit says whether the hypothesis ends
    with it (Baeza-Yates and Gonnet, 1992). So phrases may overlap.

    Args:
        ids: The spellings of the phrases, `(B, P, V, L)`, padded by `ABSENT`;
            `(1, P, V, L)` if they are the same for all rows. A phrase without
            any spelling counts as found.
        first: Whether the first of the `V` spellings occurs only at the
            beginning of a hypothesis.

    References:
        - [Baeza-Yates and Gonnet, 1992](https://doi.org/10.1145/135239.135243)
    """

    def __init__(self, ids, first: bool):
        self.ids, self.first = ids, first
        # An axis for the hypotheses, (B, 1, P, V, L)
        self._ids = ids[:, None]
        self._lengths = tf.reduce_sum(
            tf.cast(self._ids != ABSENT, tf.int32), axis=-1
        )
        self._places = tf.range(tf.shape(ids)[-1])
        self._is_last = self._places == self._lengths[..., None] - 1

    def take_rows(self, rows, count) -> "PhraseMatcher":
        """Returns the matcher for the rows with these indices."""
        return PhraseMatcher(rows_of(self.ids, rows, count), self.first)

    def renumbered(self, subset) -> "PhraseMatcher":
        """Returns the matcher over the columns of a `VocabularySubset`.

        Ids without a column become `UNKNOWN`: no hypothesis can write them.
        """
        columns = subset.columns_of(self.ids, UNKNOWN)
        return PhraseMatcher(
            tf.where(self.ids == ABSENT, ABSENT, columns), self.first
        )

    @property
    def shortest(self) -> tf.Tensor:
        """The fewest tokens of each phrase, `(B, P)`, 0 without a spelling."""
        lengths = self._lengths[:, 0]
        most = tf.shape(self.ids)[-1] + 1
        found = tf.reduce_min(tf.where(lengths > 0, lengths, most), axis=-1)
        return tf.where(found == most, 0, found)

    def start(self, batch, count) -> Matched:
        """Returns the initial state of `count` hypotheses of each row."""
        phrases, spellings, length = tf.unstack(tf.shape(self.ids)[1:])
        spellings = self.ids.shape[2] or spellings
        size = [batch, count, phrases]
        none = ~tf.reduce_any(self._lengths > 0, axis=-1)  # (B, 1, P)
        return Matched(
            begun=tf.zeros([batch, count], tf.bool),
            tails=tf.zeros([*size, spellings, length], tf.bool),
            found=tf.broadcast_to(none, size),
        )

    def update(self, tokens, matched: Matched) -> Matched:
        """Returns the state of hypotheses after one more token, `(B, N)`."""
        here = self._ids == tokens[..., None, None, None]
        tails = self._begun(matched) & here
        whole = tf.reduce_any(tails & self._is_last, axis=[-2, -1])
        return Matched(
            tf.ones_like(matched.begun), tails, matched.found | whole
        )

    def lacking(self, matched: Matched) -> tf.Tensor:
        """Returns the fewest tokens that hypotheses lack, `(B, N)`.

        If several phrases are begun, progress counts for only one of them,
        since the next token may continue one and abandon the others.
        """
        most = tf.shape(self.ids)[-1] + 1
        possible = self._is_possible(matched)
        whole = tf.where(possible, self._lengths, most)
        rest = tf.where(possible, self._lengths - self._progress(matched), most)
        whole, rest = (tf.reduce_min(x, axis=-1) for x in (whole, rest))
        saved = tf.where(matched.found, 0, whole - rest)
        # One more column, in case there are no phrases.
        saved = tf.reduce_max(tf.pad(saved, [[0, 0], [0, 0], [0, 1]]), axis=-1)
        whole = tf.where(matched.found, 0, whole)
        return tf.reduce_sum(whole, axis=-1) - saved

    def following(self, matched: Matched) -> tf.Tensor:
        """Returns tokens that continue spellings, `(B, N, P * V)`.

        There is a token for each possible spelling of a phrase that a
        hypothesis lacks; the others are `ABSENT`.
        """
        at = self._places == self._progress(matched)[..., None]
        token = tf.reduce_sum(tf.where(at, self._ids, 0), axis=-1)
        wanted = self._is_possible(matched) & ~matched.found[..., None]
        return self._in_a_row(tf.where(wanted, token, ABSENT))

    def completing(self, matched: Matched) -> tf.Tensor:
        """Returns tokens that would complete spellings, `(B, N, P * V)`.

        `ABSENT` stands for none.
        """
        whole = self._begun(matched) & self._is_last
        token = tf.reduce_sum(tf.where(whole, self._ids, 0), axis=-1)
        is_one = tf.reduce_any(whole, axis=-1)
        return self._in_a_row(tf.where(is_one, token, ABSENT))

    def _begun(self, matched):
        """Returns which places of spellings the next token may take."""
        begins = tf.ones_like(matched.tails[..., :1])
        if self.first:
            first = begins[..., :1, :] & ~matched.begun[..., None, None, None]
            begins = tf.concat([first, begins[..., 1:, :]], axis=-2)
        return tf.concat([begins, matched.tails[..., :-1]], axis=-1)

    def _progress(self, matched):
        """Returns the number of tokens of each spelling that are written."""
        counts = tf.where(matched.tails, self._places + 1, 0)
        return tf.reduce_max(counts, axis=-1)

    def _is_possible(self, matched):
        """Returns whether each spelling can still be completed."""
        possible = self._lengths > 0
        if not self.first:
            return tf.broadcast_to(possible, tf.shape(matched.tails)[:-1])
        goes_on = tf.reduce_any(matched.tails, axis=-1)
        goes_on |= ~matched.begun[..., None, None]
        first = possible[..., :1] & goes_on[..., :1]
        others = possible[..., 1:] & tf.ones_like(goes_on[..., 1:])
        return tf.concat([first, others], axis=-1)

    @staticmethod
    def _in_a_row(tokens):
        rows, count = tf.unstack(tf.shape(tokens)[:2])
        each = tokens.shape[2:].num_elements()
        if each is None:
            each = tf.reduce_prod(tf.shape(tokens)[2:])
        return tf.reshape(tokens, [rows, count, each])
