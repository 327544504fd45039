"""Hypotheses that go on one token at a time, none knowing of the others.

Greedy search and sampling are this loop; they differ in the token they
choose.
"""

from typing import Any
from typing import NamedTuple

import tensorflow as tf

from keras_attn.search.limits import limits
from keras_attn.search.options import check_names
from keras_attn.search.options import is_fixed
from keras_attn.search.rules import Rules
from keras_attn.search.task import POSSIBLE
from keras_attn.search.task import Hypotheses
from keras_attn.search.task import loop
from keras_attn.search.task import zero_past

CUT = -1  # in place of a token: none could come


class Chain(NamedTuple):
    """What is known of the hypotheses after a number of tokens."""

    time: Any
    last: Any  # (B, N)
    done: Any  # (B, N)
    score: Any  # (B, N)
    state: Any  # the model's
    history: Any  # (B, N, T), or None where no rule asks for it


class _Run(NamedTuple):
    chain: Chain
    tokens: Any  # TensorArray of T x (B, N)
    alignments: Any  # TensorArray of T x (B, N, S)

    @property
    def time(self):
        return self.chain.time


class Chains:
    """One run of such a search over a task.

    Args:
        search: The search, for the options that all searches have and for
            `chooser(task)`: a function of the logits to normalise by and
            those to choose by or None (see `Rules.apply`), the banned
            tokens, the log-probabilities so far `(batch, N)` and the time.
            It returns the next tokens and the log-probabilities with them,
            each `(batch, N)`.
        task: The `Task`.
    """

    def __init__(self, search, task):
        check_names(search, task.options or {})
        self._search, self._task = search, task
        self._choose = search.chooser(task)
        self._lengths = limits(search, task)
        self._rules = Rules(search, task, self._lengths)

    def first(self) -> Chain:
        """What is known before the first token."""
        task, count = self._task, self._search.num_hypotheses
        history = None
        if self._rules.need_history:
            length = self._search.max_length
            history = tf.zeros([task.batch, count, length], tf.int32)
        return Chain(
            time=tf.constant(0),
            last=tf.fill([task.batch, count], task.start_token),
            done=tf.zeros([task.batch, count], tf.bool),
            score=tf.zeros([task.batch, count]),
            state=task.start(count),
            history=history,
        )

    def advance(self, chain: Chain) -> tuple:
        """Takes one token for every hypothesis.

        Returns:
            What is known then, the tokens `(batch, N)`, `CUT` where there is
            none, and the alignments `(batch, N, source)`.
        """
        task, rules, time = self._task, self._rules, chain.time
        raw, alignments, model = task.step(chain.last, chain.state)
        raw = tf.cast(raw, tf.float32)
        logits, allowed = rules.apply(raw, chain.history, time)
        score, token = self._choose(
            logits, allowed, rules.banned(time), chain.score, time
        )
        if rules.forces:
            forced, logp = rules.forced(raw, time)
            count = self._search.num_hypotheses
            forced = tf.repeat(forced[:, None], count, axis=1)
            token = tf.where(forced > 0, forced, token)
            score = tf.where(forced > 0, chain.score + logp, score)
        done, written = chain.done | (token == task.end_token), token
        if rules.may_exhaust:
            stuck = score <= POSSIBLE
            score = tf.where(stuck, chain.score, score)
            written = tf.where(stuck, CUT, token)
            done |= stuck
        longest = self._lengths.longest
        if not is_fixed(longest):
            done |= (time + 1 >= longest)[:, None]
        history = chain.history
        if rules.need_history:
            here = tf.range(history.shape[-1]) == time
            history = tf.where(here, token[..., None], history)
        chain = Chain(
            time=time + 1,
            last=token,
            done=done,
            score=tf.where(chain.done, chain.score, score),
            state=model,
            history=history,
        )
        return chain, written, alignments

    def run(self) -> Hypotheses:
        """Goes on until all hypotheses are done."""

        def body(state):
            time = state.time
            chain, tokens, alignments = self.advance(state.chain)
            return _Run(
                chain=chain,
                tokens=state.tokens.write(time, tokens),
                alignments=state.alignments.write(time, alignments),
            )

        length = self._search.max_length
        state = loop(
            lambda state: tf.logical_not(tf.reduce_all(state.chain.done)),
            body,
            _Run(
                chain=self.first(),
                tokens=tf.TensorArray(tf.int32, length),
                alignments=tf.TensorArray(tf.float32, length),
            ),
            length,
        )
        return _collect(
            state,
            state.chain.score,
            self._task.end_token,
            self._rules,
            self._lengths.longest,
        )


def _collect(state, score, end_token, rules, longest):
    # (T, B, N, ...) -> (B, N, T, ...)
    tokens = tf.transpose(state.tokens.stack(), [1, 2, 0])
    alignments = tf.transpose(state.alignments.stack(), [1, 2, 0, 3])
    # The loop goes on until all rows are done: past the end token of a
    # hypothesis, or its maximum, comes what nobody asked for.
    if not is_fixed(longest):
        longest = longest[:, None]
    if rules.may_exhaust:
        longest = tf.minimum(longest, _first(tokens == CUT))
    end = _first(tokens == end_token)
    finished = end < longest
    lengths = tf.minimum(end + 1, longest)
    # Without a token, or with one that the model rules out, there is none.
    exists = (lengths > 0) & (score > POSSIBLE)
    lengths = tf.where(exists, lengths, 0)
    real = tf.sequence_mask(lengths, tokens.shape[-1])
    return Hypotheses(
        tokens=tf.where(real, tokens, 0),
        lengths=lengths,
        scores=tf.where(exists, score, float("-inf")),
        finished=finished & exists,
        alignments=zero_past(alignments, lengths),
    )


def _first(true):
    """Where the first True of `(B, N, T)` is, or T."""
    length = true.shape[-1]
    return tf.reduce_min(tf.where(true, tf.range(length), length), axis=-1)
