"""`Extensions` of beams, and their order by banks.

A bank is the set of a source's extensions that lack the same number of tokens
of required phrases. Beams are divided among the banks in turns: the best of
each bank, then the second best of each, and so on. So an extension that lacks
fewer tokens is not displaced by one that is likelier only because it has not
begun a phrase yet (Post and Vilar, 2018, algorithm 2; Hu et al., 2019, section
3.2, without loops).

References:
    - [Post and Vilar, 2018](https://arxiv.org/abs/1804.06609)
    - [Hu et al., 2019](https://aclanthology.org/N19-1090)
"""

from typing import Any
from typing import NamedTuple

import tensorflow as tf

from keras_attn.decoding.candidates import likeliest
from keras_attn.decoding.candidates import log_normalizer
from keras_attn.decoding.hypotheses import NEVER
from keras_attn.decoding.hypotheses import POSSIBLE
from keras_attn.decoding.hypotheses import gather


class Extensions(NamedTuple):
    """Candidates for the next beams, `(B, C)` each."""

    value: Any  # the number that ranks them
    parents: Any  # the beams that they extend
    tokens: Any  # the tokens that they add

    def beside(self, *others: "Extensions") -> "Extensions":
        """Returns these extensions, followed by others."""
        return Extensions(
            *(tf.concat(x, axis=1) for x in zip(self, *others, strict=True))
        )

    def without_repeats(self) -> "Extensions":
        """Returns these extensions with the value `NEVER` for repetitions."""
        same = self.parents[:, :, None] == self.parents[:, None]
        same &= self.tokens[:, :, None] == self.tokens[:, None]
        same &= (self.value > POSSIBLE)[:, None]
        number = tf.range(tf.shape(self.value)[1])
        same &= number[:, None] > number
        repeats = tf.reduce_any(same, axis=-1)
        return self._replace(value=tf.where(repeats, NEVER, self.value))

    def by_banks(self, lacking, left, count) -> "Extensions":
        """Returns `count` extensions, taken from their banks in turns.

        Extensions that cannot write all missing tokens and the end token in
        time come last.

        Args:
            lacking: Number of tokens that each extension lacks, `(B, C)`.
            left: Number of tokens that may still follow, an integer or `(B,
                1)`.
            count: Number of extensions wanted.
        """
        late = (lacking > 0) & (lacking >= left)
        _, index = tf.math.top_k(self.value, tf.shape(self.value)[1])
        sorted_, lacking, late = gather((self, lacking, late), index)
        possible = sorted_.value > POSSIBLE
        same = lacking[:, :, None] == lacking[:, None]
        number = tf.range(tf.shape(lacking)[1])
        same &= number[:, None] > number  # better ones in the same bank
        turn = tf.reduce_sum(tf.cast(same, tf.int32), axis=-1)
        # In each turn, extensions that lack the fewest tokens come first.
        most = tf.reduce_max(lacking) + 1
        place = turn * most + lacking
        place += tf.cast(late, tf.int32) * most * tf.shape(lacking)[1]
        place = tf.where(possible, place, tf.int32.max)
        _, index = tf.math.top_k(-place, count)
        return gather(sorted_, index)


def likeliest_of_each(ruled, logp) -> Extensions:
    """Returns the likeliest extension of each beam.

    Args:
        ruled: The logits after the rules, `Ruled`.
        logp: Log-probabilities of the beams, `(B, K)`.
    """
    value, tokens = likeliest(
        ruled.logits, logp, ruled.penalties, ruled.allowed
    )
    parents = tf.broadcast_to(tf.range(tf.shape(logp)[1]), tf.shape(tokens))
    return Extensions(value, parents, tokens)


def by_tokens(ruled, logp, tokens) -> Extensions:
    """Returns the extensions of each beam by the given tokens.

    Args:
        ruled, logp: As for `likeliest_of_each`.
        tokens: Ids `(B, K, M)`, -1 for none.
    """
    allowed = ruled.logits if ruled.allowed is None else ruled.allowed
    value = tf.gather(allowed, tf.maximum(tokens, 0), batch_dims=2)
    value += (logp - log_normalizer(ruled.logits))[..., None]
    for token, penalty in ruled.penalties:
        value += tf.where(tokens == token, tf.reshape(penalty, [-1, 1, 1]), 0.0)
    value = tf.where(tokens < 0, NEVER, value)
    rows, beams, many = tf.unstack(tf.shape(tokens))
    parents = tf.broadcast_to(tf.range(beams)[:, None], tf.shape(tokens))
    size = tf.stack([rows, beams * many])
    return Extensions(*(tf.reshape(x, size) for x in (value, parents, tokens)))
