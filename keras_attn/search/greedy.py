"""Greedy search: the likeliest token at every step."""

import dataclasses
from typing import Any
from typing import NamedTuple

import tensorflow as tf

from keras_attn.search.task import Hypotheses
from keras_attn.search.task import Task
from keras_attn.search.task import check_lengths
from keras_attn.search.task import loop
from keras_attn.search.task import rules
from keras_attn.search.task import zero_past


@dataclasses.dataclass(frozen=True)
class GreedySearch:
    """Takes the likeliest token at every step.

    Args:
        max_length: Longest output in tokens, the end token counted. A
            hypothesis is cut there and flagged as not finished.
        min_length: Fewest tokens, the end token counted.

    The score of a hypothesis is the sum of its log-probabilities.
    """

    max_length: int = 100
    min_length: int = 1

    num_hypotheses = 1

    def __post_init__(self):
        check_lengths(self)

    def __call__(self, task: Task) -> Hypotheses:
        """Decodes, inside a `tf.function` or eagerly."""
        batch, length = task.batch, self.max_length
        alignments = tf.TensorArray(tf.float32, length)
        state = _Greedy(
            time=tf.constant(0),
            last=tf.fill([batch, 1], task.start_token),
            done=tf.zeros([batch], tf.bool),
            score=tf.zeros([batch]),
            tokens=tf.zeros([batch, length], tf.int32),
            lengths=tf.zeros([batch], tf.int32),
            state=task.start(1),
            alignments=alignments,
        )
        state = loop(
            lambda state: tf.logical_not(tf.reduce_all(state.done)),
            lambda state: self._advance(task, state),
            state,
            length,
        )
        finished = state.done
        attended = state.alignments.stack()[:, :, 0]  # (T, B, S)
        return Hypotheses(
            tokens=state.tokens[:, None],
            lengths=state.lengths[:, None],
            scores=state.score[:, None],
            finished=finished[:, None],
            alignments=zero_past(
                tf.transpose(attended, [1, 0, 2])[:, None],
                state.lengths[:, None],
            ),
        )

    def _advance(self, task, state):
        logits, alignments, model = task.step(state.last, state.state)
        logits = tf.cast(logits[:, 0], tf.float32)
        allowed = logits + rules(task, self.min_length, state.time, logits)
        token = tf.argmax(allowed, axis=-1, output_type=tf.int32)
        logp = tf.gather(logits, token, batch_dims=1)
        logp -= tf.reduce_logsumexp(logits, axis=-1)
        going = tf.logical_not(state.done)
        token = tf.where(going, token, 0)
        here = tf.range(self.max_length) == state.time
        return _Greedy(
            time=state.time + 1,
            last=token[:, None],
            done=state.done | (token == task.end_token),
            score=state.score + tf.where(going, logp, 0.0),
            tokens=tf.where(here, token[:, None], state.tokens),
            lengths=state.lengths + tf.cast(going, tf.int32),
            state=model,
            alignments=state.alignments.write(state.time, alignments),
        )


class _Greedy(NamedTuple):
    time: Any
    last: Any  # (B, 1)
    done: Any  # (B,)
    score: Any  # (B,)
    tokens: Any  # (B, T)
    lengths: Any  # (B,)
    state: Any  # the model's
    alignments: Any  # TensorArray of T x (B, 1, S)
