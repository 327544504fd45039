"""A search whose hypotheses replace each other, written from outside.

Stochastic beam search (Kool et al., 2019, algorithm 1) draws hypotheses that
all differ. Each has, beside its log-probability, a number that a Gumbel noise
disturbs; a step keeps those with the largest.
"""

from typing import Any
from typing import NamedTuple

import keras
import tensorflow as tf

import keras_attn
from keras_attn import decoding


class Beams(NamedTuple):
    time: Any
    last: Any  # (batch, beams), as all that follow
    done: Any
    logp: Any
    noisy: Any  # log-probabilities, disturbed
    lengths: Any
    tokens: Any  # (batch, beams, max_length)
    beam_ids: Any  # the beam whose step made each token
    rules: tuple


class StochasticRun(decoding.Run):
    recorded = (tf.float32,)  # alignments

    def first(self):
        batch, beams = self.search_input.batch, self.beams
        none = tf.zeros([batch, beams, self.search.max_length], tf.int32)
        # One beam at first: the others would be copies of it.
        logp = tf.one_hot(0, beams, 0.0, decoding.IMPOSSIBLE)
        logp = tf.tile(logp[None], [batch, 1])
        last = tf.fill([batch, beams], self.search_input.start_token)
        rules, lengths = self.rules.start(batch, beams), tf.zeros_like(last)
        done = tf.zeros([batch, beams], tf.bool)
        return Beams(
            tf.constant(0), last, done, logp, logp, lengths, none, none, rules
        )

    def advance(self, state, logits, alignments):
        time, end = state.time, self.search_input.end_token
        step = decoding.Step(time, self.apply_rules(state, logits), alignments)
        size = logits.shape[-1]
        logp = step.log_probabilities
        stuck = tf.reduce_all(logp <= decoding.POSSIBLE, axis=-1)
        over = state.done | stuck  # goes on as it is
        same = tf.one_hot(end, size, 0.0, decoding.NEVER)
        logp = tf.where(over[..., None], same, logp) + state.logp[..., None]
        numbers = self.uniform(time, self.beams * size)
        numbers = tf.reshape(numbers, [-1, self.beams, size])
        noisy = logp - tf.math.log(-tf.math.log(tf.maximum(numbers, 1e-7)))
        # Disturbed, but so that the largest is that of the beam.
        below = noisy - tf.reduce_max(noisy, axis=-1, keepdims=True)
        beam = state.noisy[..., None]
        v = beam - noisy + tf.math.log(-tf.math.expm1(below))
        noisy = beam - tf.nn.relu(v) - tf.math.log1p(tf.exp(-tf.abs(v)))
        noisy = tf.reshape(noisy, [-1, self.beams * size])
        noisy, index = tf.math.top_k(noisy, self.beams)
        parents, token = index // size, index % size
        logp = tf.reshape(logp, [-1, self.beams * size])
        logp = tf.gather(logp, index, batch_dims=1)
        ended, lengths = decoding.gather((over, state.lengths), parents)
        written = tf.where(ended, 0, token)
        done = ended | (token == end) | (logp <= decoding.POSSIBLE)
        done |= time + 1 >= tf.reshape(self.limits.longest, [-1, 1])
        state = Beams(
            time + 1,
            token,
            done,
            logp,
            noisy,
            tf.where(ended, lengths, time + 1),
            decoding.append(state.tokens, parents, written, time),
            decoding.append(state.beam_ids, parents, parents, time),
            self.rules.update(token, state.rules, parents),
        )
        return state, parents, (alignments,)

    def results(self, state, alignments):
        ended = state.tokens == self.search_input.end_token
        found = decoding.Hypotheses(
            state.tokens,
            state.lengths,
            state.logp,
            tf.reduce_any(ended, axis=-1),
            decoding.alignments_of(alignments, state.beam_ids),
        )
        found = decoding.without_impossible(found)
        _, best = tf.math.top_k(found.scores, self.beams)
        return decoding.gather(found, best)


@keras.saving.register_keras_serializable("tests")
class StochasticBeamSearch(keras_attn.Search):
    """Draws hypotheses that all differ."""

    num_hypotheses: int = decoding.Integer(default=5, low=1)
    draws = True

    def run(self, search_input):
        return StochasticRun(self, search_input, self.num_hypotheses)
