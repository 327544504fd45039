"""`Extensions` of beams, and their order by banks.

The banks of a source are its extensions that lack the same number of tokens.
Beams are divided among them by turns: the best of each bank, then the second
best of each, and so on. So an extension that lacks less is not pushed out by
one that is likelier only because it has not begun a phrase yet (Post and Vilar,
2018, algorithm 2; Hu et al., 2019, section 3.2, without loops).

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

    value: Any  # by which they are ranked
    parents: Any
    tokens: Any

    def beside(self, *others: "Extensions") -> "Extensions":
        """Returns these extensions, followed by others."""
        return Extensions(
            *(tf.concat(x, axis=1) for x in zip(self, *others, strict=True))
        )

    def without_repeats(self) -> "Extensions":
        """Returns them with a value of `NEVER` for repetitions."""
        same = self.parents[:, :, None] == self.parents[:, None]
        same &= self.tokens[:, :, None] == self.tokens[:, None]
        same &= (self.value > POSSIBLE)[:, None]
        number = tf.range(tf.shape(self.value)[1])
        same &= number[:, None] > number
        repeats = tf.reduce_any(same, axis=-1)
        return self._replace(value=tf.where(repeats, NEVER, self.value))

    def by_banks(self, lacking, left, count) -> "Extensions":
        """Returns the first `count`, taken from their banks by turns.

        Those that cannot have all tokens and the end in time come last.

        Args:
            lacking: How many tokens each lacks.
            left: How many more tokens there may be, an integer or `(B, 1)`.
            count: How many are wanted.
        """
        late = (lacking > 0) & (lacking >= left)
        _, index = tf.math.top_k(self.value, tf.shape(self.value)[1])
        sorted_, lacking, late = gather((self, lacking, late), index)
        possible = sorted_.value > POSSIBLE
        same = lacking[:, :, None] == lacking[:, None]
        number = tf.range(tf.shape(lacking)[1])
        same &= number[:, None] > number  # those before in its bank
        turn = tf.reduce_sum(tf.cast(same, tf.int32), axis=-1)
        # In each turn, those that lack least come first.
        most = tf.reduce_max(lacking) + 1
        place = turn * most + lacking
        place += tf.cast(late, tf.int32) * most * tf.shape(lacking)[1]
        place = tf.where(possible, place, tf.int32.max)
        _, index = tf.math.top_k(-place, count)
        return gather(sorted_, index)


def likeliest_of_each(ruled, logp) -> Extensions:
    """Returns the likeliest extension of each beam.

    Args:
        ruled: The logits, `Ruled`.
        logp: Log-probabilities of the beams, `(B, K)`.
    """
    value, tokens = likeliest(
        ruled.logits, logp, ruled.penalties, ruled.allowed
    )
    parents = tf.broadcast_to(tf.range(tf.shape(logp)[1]), tf.shape(tokens))
    return Extensions(value, parents, tokens)


def by_tokens(ruled, logp, tokens) -> Extensions:
    """Returns the extensions of beams by some tokens each.

    Args:
        ruled, logp: As above.
        tokens: `(B, K, M)`, -1 for none.
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
