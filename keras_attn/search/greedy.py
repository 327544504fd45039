"""Greedy search: the likeliest token at every step."""

import dataclasses
from typing import Any
from typing import NamedTuple

import tensorflow as tf

from keras_attn.search.candidates import extend
from keras_attn.search.task import Hypotheses
from keras_attn.search.task import Task
from keras_attn.search.task import banned
from keras_attn.search.task import check_lengths
from keras_attn.search.task import loop
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
        state = _Greedy(
            time=tf.constant(0),
            last=tf.fill([batch, 1], task.start_token),
            done=tf.zeros([batch, 1], tf.bool),
            score=tf.zeros([batch, 1]),
            state=task.start(1),
            tokens=tf.TensorArray(tf.int32, length),
            alignments=tf.TensorArray(tf.float32, length),
        )
        state = loop(
            lambda state: tf.logical_not(tf.reduce_all(state.done)),
            lambda state: self._advance(task, state),
            state,
            length,
        )
        # (T, B, 1, ...) -> (B, 1, T, ...)
        tokens = tf.transpose(state.tokens.stack(), [1, 2, 0])
        alignments = tf.transpose(state.alignments.stack(), [1, 2, 0, 3])
        # The loop goes on until all rows are done: past a row's end token
        # comes what nobody asked for.
        ends = tokens == task.end_token
        end = tf.argmax(ends, axis=-1, output_type=tf.int32)
        lengths = tf.where(state.done, end + 1, length)
        real = tf.sequence_mask(lengths, length)
        return Hypotheses(
            tokens=tf.where(real, tokens, 0),
            lengths=lengths,
            scores=state.score,
            finished=state.done,
            alignments=zero_past(alignments, lengths),
        )

    def _advance(self, task, state):
        logits, alignments, model = task.step(state.last, state.state)
        score, _, token = extend(
            tf.cast(logits, tf.float32),
            state.score,
            1,
            banned(task, self.min_length, state.time),
        )
        return _Greedy(
            time=state.time + 1,
            last=token,
            done=state.done | (token == task.end_token),
            score=tf.where(state.done, state.score, score),
            state=model,
            tokens=state.tokens.write(state.time, token),
            alignments=state.alignments.write(state.time, alignments),
        )


class _Greedy(NamedTuple):
    time: Any
    last: Any  # (B, 1)
    done: Any  # (B, 1)
    score: Any  # (B, 1)
    state: Any  # the model's
    tokens: Any  # TensorArray of T x (B, 1)
    alignments: Any  # TensorArray of T x (B, 1, S)
