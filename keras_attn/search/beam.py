"""Beam search with a pool of finished hypotheses beside the beams."""

import dataclasses
from typing import Any
from typing import NamedTuple

import tensorflow as tf

from keras_attn.search.candidates import extend
from keras_attn.search.task import IMPOSSIBLE
from keras_attn.search.task import Hypotheses
from keras_attn.search.task import Task
from keras_attn.search.task import banned
from keras_attn.search.task import check_lengths
from keras_attn.search.task import loop
from keras_attn.search.task import require_integers
from keras_attn.search.task import zero_past


@dataclasses.dataclass(frozen=True)
class BeamSearch:
    """Keeps the `width` likeliest beginnings at every step.

    Of the `2 * width` best extensions of a source, those among the first
    `width` that end go to a pool of finished hypotheses, scored once and
    ranked there; the best `width` that do not end go on. Twice the width is
    enough, since at most `width` extensions end. A pool holds `width`
    hypotheses.

    When to stop a source before the maximum length (`early_stopping`):

    - `True`: as soon as the pool is full.
    - `False`: when the pool is full and the best beginning, scored as if it
      ended now, is no better than the worst of the pool. A heuristic.
    - `"never"`: when the pool is full and no beginning can ever beat the
      worst of the pool, even at the length that favours it most. With a
      width large enough this is exhaustive search.

    If fewer hypotheses than asked for have ended, the best beginnings, cut
    at the maximum length, come after those and are flagged as not finished.

    Args:
        width: Number of beginnings kept, the beams.
        num_hypotheses: Number of results a source, at most `width`.
        length_penalty: The exponent `alpha` of the penalty, at least 0.
        penalty: `"gnmt"` or `"power"`, the formula of the penalty.
        early_stopping: `True`, `False` or `"never"`.
        max_length: Longest output in tokens, the end token counted.
        min_length: Fewest tokens, the end token counted.

    References:
        - [Wu et al., 2016](https://arxiv.org/abs/1609.08144), equation 14
    """

    width: int = 5
    num_hypotheses: int = 1
    length_penalty: float = 0.0
    penalty: str = "gnmt"
    early_stopping: bool | str = False
    max_length: int = 100
    min_length: int = 1

    def __post_init__(self):
        check_lengths(self)
        require_integers(self, "width", "num_hypotheses")
        if self.width < 1:
            raise ValueError(
                "`width` is the number of beams, at least 1. Received: "
                f"width={self.width!r}"
            )
        if not 1 <= self.num_hypotheses <= self.width:
            raise ValueError(
                "`num_hypotheses` must be between 1 and the width. Received: "
                f"num_hypotheses={self.num_hypotheses!r}, "
                f"width={self.width!r}. A wider search finds more."
            )
        if not self.length_penalty >= 0:
            raise ValueError(
                "`length_penalty` must be at least 0. Received: "
                f"length_penalty={self.length_penalty!r}. 0 ranks by "
                "log-probability, more favours longer hypotheses."
            )
        if self.penalty not in ("gnmt", "power"):
            raise ValueError(
                '`penalty` must be "gnmt" or "power". Received: '
                f"penalty={self.penalty!r}"
            )
        stopping = self.early_stopping
        if not (isinstance(stopping, bool) or stopping == "never"):
            raise ValueError(
                '`early_stopping` must be True, False or "never". Received: '
                f"early_stopping={self.early_stopping!r}"
            )

    def normalise(self, log_probability, length):
        """Returns the score of a hypothesis of this length."""
        length = tf.cast(length, tf.float32)
        if self.penalty == "gnmt":
            length = (5.0 + length) / 6.0
        return log_probability / length**self.length_penalty

    def __call__(self, task: Task) -> Hypotheses:
        """Decodes, inside a `tf.function` or eagerly."""
        batch, width, length = task.batch, self.width, self.max_length
        first = tf.one_hot(0, width, 0.0, IMPOSSIBLE)  # all beams are alike
        empty = tf.zeros([batch, width, length], tf.int32)
        state = _Beams(
            time=tf.constant(0),
            last=tf.fill([batch, width], task.start_token),
            logp=tf.tile(first[None], [batch, 1]),
            done=tf.zeros([batch], tf.bool),
            tokens=empty,
            slots=empty,
            pool=_Pool(
                scores=tf.fill([batch, width], IMPOSSIBLE),
                lengths=tf.zeros([batch, width], tf.int32),
                tokens=empty,
                slots=empty,
            ),
            state=task.start(width),
            alignments=tf.TensorArray(tf.float32, length),
        )
        state = loop(
            lambda state: tf.logical_not(tf.reduce_all(state.done)),
            lambda state: self._advance(task, state),
            state,
            length,
        )
        return self._collect(state)

    def _advance(self, task, state):
        width = self.width
        logits, alignments, model = task.step(state.last, state.state)
        logp, parents, tokens = extend(
            tf.cast(logits, tf.float32),
            state.logp,
            min(2 * width, width * logits.shape[-1]),
            banned(task, self.min_length, state.time),
        )
        length = state.time + 1

        # Only the first `width` candidates may end; a beginning that is
        # impossible stays so, and never ends. (A mask and not a slice: XLA
        # compiles the slice of a top_k into a full sort, ten times slower.)
        is_end = tokens == task.end_token
        first = tf.range(tokens.shape[1]) < width
        ends = is_end & first & (logp > IMPOSSIBLE / 2)
        pool = self._pool_up(state, logp, parents, tokens, ends)

        # The best `width` candidates that do not end go on.
        going = tf.where(is_end, 2 * IMPOSSIBLE, logp)
        logp, chosen = tf.math.top_k(going, width)
        logp = tf.maximum(logp, IMPOSSIBLE)
        parents = tf.gather(parents, chosen, batch_dims=1)
        tokens = tf.gather(tokens, chosen, batch_dims=1)
        return _Beams(
            time=length,
            last=tokens,
            logp=logp,
            done=state.done | self._stops(logp, pool, length),
            tokens=_append(state.tokens, parents, tokens, state.time),
            slots=_append(state.slots, parents, parents, state.time),
            pool=pool,
            state=tf.nest.map_structure(
                lambda x: tf.gather(x, parents, batch_dims=1), model
            ),
            alignments=state.alignments.write(state.time, alignments),
        )

    def _pool_up(self, state, logp, parents, tokens, ends):
        """Merges the candidates that ended into the pool."""
        pool, width, length = state.pool, self.width, state.time + 1
        accepted = ends & tf.logical_not(state.done)[:, None]
        scores = tf.where(accepted, self.normalise(logp, length), IMPOSSIBLE)
        ended = _Pool(
            scores=scores,
            lengths=tf.fill(tf.shape(scores), length),
            tokens=_append(state.tokens, parents, tokens, state.time),
            slots=_append(state.slots, parents, parents, state.time),
        )
        both = tf.nest.map_structure(
            lambda old, new: tf.concat([old, new], axis=1), pool, ended
        )
        _, best = tf.math.top_k(both.scores, width)
        return tf.nest.map_structure(
            lambda x: tf.gather(x, best, batch_dims=1), both
        )

    def _stops(self, logp, pool, length):
        worst = pool.scores[:, -1]
        full = worst > IMPOSSIBLE / 2
        if self.early_stopping is True:
            return full
        # Log-probabilities only fall, so the best score a beginning can
        # still reach is that of its present sum at the longest length.
        at = self.max_length if self.early_stopping == "never" else length
        reachable = self.normalise(logp[:, 0], at)
        return full & (worst >= reachable)

    def _collect(self, state):
        """Finished hypotheses, best first; then those that were cut."""
        finished = state.pool.scores > IMPOSSIBLE / 2
        cut = state.logp > IMPOSSIBLE / 2
        both = _Pool(
            scores=tf.concat(
                [state.pool.scores, self.normalise(state.logp, state.time)], 1
            ),
            lengths=tf.concat(
                [state.pool.lengths, tf.fill(tf.shape(cut), state.time)], 1
            ),
            tokens=tf.concat([state.pool.tokens, state.tokens], 1),
            slots=tf.concat([state.pool.slots, state.slots], 1),
        )
        exists = tf.concat([finished, cut], axis=1)
        finished = tf.pad(finished, [[0, 0], [0, self.width]])
        # Both halves are sorted, and top_k keeps the order of equals.
        _, best = tf.math.top_k(tf.cast(exists, tf.int32), self.num_hypotheses)
        both, exists, finished = tf.nest.map_structure(
            lambda x: tf.gather(x, best, batch_dims=1),
            (both, exists, finished),
        )
        lengths = tf.where(exists, both.lengths, 0)
        real = tf.sequence_mask(lengths, self.max_length)
        # (T, B, K, S) -> (B, T, K, S), then the slot of each step
        attended = tf.transpose(state.alignments.stack(), [1, 0, 2, 3])
        attended = tf.gather(
            attended, tf.transpose(both.slots, [0, 2, 1]), batch_dims=2
        )
        return Hypotheses(
            tokens=tf.where(real, both.tokens, 0),
            lengths=lengths,
            scores=tf.where(exists, both.scores, float("-inf")),
            finished=finished,
            alignments=zero_past(tf.transpose(attended, [0, 2, 1, 3]), lengths),
        )


class _Pool(NamedTuple):
    """Finished hypotheses of each source, best first."""

    scores: Any  # (B, K), `IMPOSSIBLE` where empty
    lengths: Any  # (B, K)
    tokens: Any  # (B, K, T)
    slots: Any  # (B, K, T)


class _Beams(NamedTuple):
    time: Any
    last: Any  # (B, K)
    logp: Any  # (B, K), best first
    done: Any  # (B,)
    tokens: Any  # (B, K, T)
    slots: Any  # (B, K, T): in which beam each step was attended from
    pool: Any
    state: Any  # the model's
    alignments: Any  # TensorArray of T x (B, K, S), by beam


def _append(history, parents, new, time):
    """Continues each parent's history `(B, K, T)` with `new (B, K)`."""
    history = tf.gather(history, parents, batch_dims=1)
    here = tf.range(history.shape[-1]) == time
    return tf.where(here, new[..., None], history)
