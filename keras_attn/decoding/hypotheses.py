"""`Hypotheses`: the result of a search, and impossible log-probabilities."""

from typing import Any
from typing import NamedTuple

import tensorflow as tf

# The log-probability of an impossible hypothesis: far below any real sum, but
# finite, since the difference of two infinities is NaN.
IMPOSSIBLE = -1e9
POSSIBLE = IMPOSSIBLE / 2  # log-probabilities above this are possible
NEVER = 2 * IMPOSSIBLE  # the penalty of a forbidden token


class Hypotheses(NamedTuple):
    """The sequences that a search found, best first.

    `N` is the search's `num_hypotheses`. If it found fewer, the missing ones
    have length 0, a score of minus infinity, and are not finished.
    """

    tokens: tf.Tensor  # (batch, N, time), int32, zero past the length
    lengths: tf.Tensor  # (batch, N), int32, the end token counted
    scores: tf.Tensor  # (batch, N), float32
    finished: tf.Tensor  # (batch, N), False for hypotheses that were cut
    alignments: tf.Tensor  # (batch, N, time, source), float32
    columns: Any = ()  # (batch,), number of real source columns, if known


def gather(structure, index):
    """Gathers the items `index (B, N)` of axis 1 of every tensor."""
    return tf.nest.map_structure(
        lambda x: None if x is None else tf.gather(x, index, batch_dims=1),
        structure,
    )


def append(history, parents, new, time):
    """Returns the parents' histories, with `new` written at `time`.

    Args:
        history: A value for each beam and step, `(B, K, T)`.
        parents: The beam that each new beam continues, `(B, K)`.
        new: The values of this step, `(B, K)`.
        time: Number of the step, a scalar.
    """
    history = tf.gather(history, parents, batch_dims=1)
    here = tf.range(history.shape[-1]) == time
    return tf.where(here, new[..., None], history)


def alignments_of(recorded, beam_ids):
    """Returns the alignments of hypotheses that replaced each other.

    Each step records the alignments of all beams. Since beams replace each
    other, a hypothesis may have moved between beams; `beam_ids` holds, for
    each of its tokens, the beam whose step produced the token.

    Args:
        recorded: The alignments of all beams at each step, `(T, B, K, S)`.
        beam_ids: The beam whose step produced each token, `(B, N, T)`.

    Returns:
        Tensor of shape `(B, N, T, S)`.
    """
    attended = tf.transpose(recorded, [1, 0, 2, 3])  # (B, T, K, S)
    attended = tf.gather(
        attended, tf.transpose(beam_ids, [0, 2, 1]), batch_dims=2
    )
    return tf.transpose(attended, [0, 2, 1, 3])


def without_impossible(found: Hypotheses) -> Hypotheses:
    """Returns hypotheses without the impossible ones.

    Impossible ones have no tokens, or a score that is not above `POSSIBLE`.
    Tokens past a length become zero.
    """
    exists = (found.lengths > 0) & (found.scores > POSSIBLE)
    lengths = tf.where(exists, found.lengths, 0)
    real = tf.sequence_mask(lengths, found.tokens.shape[2])
    return found._replace(
        tokens=tf.where(real, found.tokens, 0),
        lengths=lengths,
        scores=tf.where(exists, found.scores, float("-inf")),
        finished=found.finished & exists,
        alignments=tf.where(real[..., None], found.alignments, 0.0),
    )
