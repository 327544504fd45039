"""Hypotheses that go on one token at a time, none knowing of the others.

Greedy search, sampling and most searches of a user's own run so; they differ
in the token they choose.
"""

from typing import Any
from typing import NamedTuple

import tensorflow as tf

from keras_attn.search.limits import Limits
from keras_attn.search.options import is_fixed
from keras_attn.search.rules import Rules
from keras_attn.search.step import Step
from keras_attn.search.task import POSSIBLE
from keras_attn.search.task import Hypotheses
from keras_attn.search.task import gather
from keras_attn.search.task import zero_past
from keras_attn.search.threefry import uniform

CUT = -1  # in place of a token: none could come


class Chain(NamedTuple):
    """What is known of the hypotheses after a number of tokens."""

    time: Any
    last: Any  # (B, N)
    done: Any  # (B, N)
    scores: Any  # (B, N)
    history: Any  # (B, N, T), or None where no rule asks for it
    own: Any  # the search's own state


class Chains:
    """One run of such a search over a task.

    Args:
        search: The search: `start`, `choose` and `update` are its own.
        task: The `Task`.

    Attributes:
        beams: How many hypotheses of a source the model steps.
        recorded: Dtypes of what each step leaves for `results()`.
    """

    recorded = (tf.int32, tf.float32)  # tokens, alignments

    def __init__(self, search, task):
        self._search, self._task = search, task
        self._asked = search.asked(task)
        self._limits = Limits.of(search, task)
        self._rules = Rules(search, task, self._limits)
        self.beams = search.num_hypotheses
        self._numbers = None
        if search.draws:
            self._numbers = uniform(task.seed, self.beams, search.max_length)

    def first(self) -> Chain:
        """What is known before the first token."""
        batch, count = self._task.batch, self.beams
        history = None
        if self._rules.need_history:
            length = self._search.max_length
            history = tf.zeros([batch, count, length], tf.int32)
        return Chain(
            time=tf.constant(0),
            last=tf.fill([batch, count], self._task.start_token),
            done=tf.zeros([batch, count], tf.bool),
            scores=tf.zeros([batch, count]),
            history=history,
            own=self._asked.start(self._task),
        )

    def advance(self, chain: Chain, logits, alignments) -> tuple:
        """Takes one token for every hypothesis.

        Args:
            chain: What is known so far.
            logits, alignments: What the model says after the last tokens.

        Returns:
            What is known then; None, as no hypothesis takes the place of
            another; and the tokens `(batch, N)`, `CUT` where there is none,
            with the alignments `(batch, N, source)`.
        """
        rules, time = self._rules, chain.time
        raw = tf.cast(logits, tf.float32)
        logits, allowed = rules.apply(raw, chain.history, time)
        step = Step(
            time,
            raw,
            logits,
            allowed,
            rules.banned(time),
            alignments,
            chain.scores,
            None if self._numbers is None else self._numbers[time],
        )
        token, scores = self._asked.choose(step, chain.own)
        token = tf.cast(token, tf.int32)  # `tf.argmax` gives int64
        if rules.forces:
            forced, logp = rules.forced(raw, time)
            forced = tf.repeat(forced[:, None], self.beams, axis=1)
            token = tf.where(forced > 0, forced, token)
            scores = tf.where(forced > 0, chain.scores + logp, scores)
        own = self._asked.update(step, token, scores, chain.own)
        done, written = chain.done | (token == self._task.end_token), token
        if rules.may_exhaust:
            stuck = scores <= POSSIBLE
            scores = tf.where(stuck, chain.scores, scores)
            written = tf.where(stuck, CUT, token)
            done |= stuck
        longest = self._limits.longest
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
            scores=tf.where(chain.done, chain.scores, scores),
            history=history,
            own=own,
        )
        return chain, None, (written, alignments)

    def results(self, chain: Chain, tokens, alignments) -> Hypotheses:
        """Returns the hypotheses, best first.

        Args:
            chain: What is known at the end.
            tokens, alignments: What was recorded, time first.
        """
        # (T, B, N, ...) -> (B, N, T, ...)
        tokens = tf.transpose(tokens, [1, 2, 0])
        alignments = tf.transpose(alignments, [1, 2, 0, 3])
        # The loop goes on until all rows are done: past the end token of a
        # hypothesis, or its maximum, comes what nobody asked for.
        longest = self._limits.longest
        if not is_fixed(longest):
            longest = longest[:, None]
        if self._rules.may_exhaust:
            longest = tf.minimum(longest, _first(tokens == CUT))
        end = _first(tokens == self._task.end_token)
        finished = end < longest
        lengths = tf.minimum(end + 1, longest)
        # Without a token, or with one that the model rules out, there is none.
        exists = (lengths > 0) & (chain.scores > POSSIBLE)
        lengths = tf.where(exists, lengths, 0)
        real = tf.sequence_mask(lengths, tokens.shape[-1])
        found = Hypotheses(
            tokens=tf.where(real, tokens, 0),
            lengths=lengths,
            scores=tf.where(exists, chain.scores, float("-inf")),
            finished=finished & exists,
            alignments=zero_past(alignments, lengths),
        )
        if self.beams == 1:
            return found
        _, best = tf.math.top_k(found.scores, self.beams)
        return gather(found, best)


def _first(true):
    """Where the first True of `(B, N, T)` is, or T."""
    length = true.shape[-1]
    return tf.reduce_min(tf.where(true, tf.range(length), length), axis=-1)
