"""`IndependentHypotheses`: the run of independent hypotheses, token by token.

Greedy search, sampling and most searches of a user's own run this way. They
differ only in the tokens they choose.
"""

from typing import Any
from typing import NamedTuple

import tensorflow as tf

from keras_attn.decoding.described import described
from keras_attn.decoding.limits import Limits
from keras_attn.decoding.options import is_fixed
from keras_attn.decoding.rules import Rules
from keras_attn.decoding.step import Step
from keras_attn.decoding.task import POSSIBLE
from keras_attn.decoding.task import Hypotheses
from keras_attn.decoding.task import gather
from keras_attn.decoding.task import zero_past
from keras_attn.decoding.threefry import uniform

CUT = -1  # recorded instead of a token where all tokens are forbidden


class Chain(NamedTuple):
    """The state of the hypotheses after `time` tokens."""

    time: Any
    last: Any  # (B, N)
    done: Any  # (B, N)
    scores: Any  # (B, N)
    history: Any  # (B, N, T), or None if no rule needs it
    own: Any  # the search's own state


class IndependentHypotheses:
    """One run of a search over a task, with independent hypotheses.

    Args:
        search: The `Search`, whose `start`, `choose` and `update` are called.
        task: The `Task`.

    Attributes:
        beams: Number of hypotheses per source that the model steps.
        recorded: Dtypes of the tensors that each step records for
            `results()`.
    """

    recorded = (tf.int32, tf.float32)  # tokens, alignments

    def __init__(self, search, task):
        self._search, self._task = search, task
        self._with_request = search.with_request(task)
        self._limits = Limits.of(search, task)
        self._rules = Rules(search, task, self._limits)
        self.beams = search.num_hypotheses
        self._numbers = None
        if search.draws:
            self._numbers = uniform(task.seed, self.beams, search.max_length)

    def first(self) -> Chain:
        """Returns the state before the first token."""
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
            own=self._with_request.start(self._task),
        )

    def advance(self, chain: Chain, logits, alignments) -> tuple:
        """Extends every hypothesis by one token.

        Args:
            chain: The state so far.
            logits, alignments: The model's output for the last tokens.

        Returns:
            The new state; None instead of parents, since no hypothesis
            replaces another; and a tuple of the tensors to record, the
            tokens `(batch, N)`, `CUT` where all were forbidden, and the
            alignments `(batch, N, source)`.
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
            chain.done,
        )
        chosen = self._with_request.choose(step, chain.own)
        token = self._require_tokens(chosen, raw.shape[-1])
        scores = step.scores_with(token)
        if rules.forces:
            forced, prefix, logp = rules.forced(raw, time)
            forced = forced[:, None]
            token = tf.where(forced, prefix[:, None], token)
            scores = tf.where(forced, chain.scores + logp, scores)
        own = self._with_request.update(step, token, scores, chain.own)
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

    def _require_tokens(self, chosen, vocabulary):
        """Returns what `choose` returned, or refuses it."""
        if not (
            tf.is_tensor(chosen)
            and chosen.dtype.is_integer
            and chosen.shape.rank == 2
            and chosen.shape[1] in (None, self.beams)
        ):
            raise TypeError(
                f"`{type(self._search).__name__}.choose` must return the "
                "tokens of the hypotheses, an integer tensor of shape "
                f"(batch, {self.beams}). Received: {described(chosen)}. For "
                "example return `step.argmax()`, or "
                "`step.pick(weights)` of weights (batch, hypotheses, "
                "vocabulary). The scores follow from the tokens."
            )
        if tf.executing_eagerly():
            outside = chosen[(chosen < 0) | (chosen >= vocabulary)]
            if tf.size(outside):
                raise ValueError(
                    f"`{type(self._search).__name__}.choose` must return ids "
                    f"of the vocabulary, 0 to {vocabulary - 1}. Received: "
                    f"{described(chosen)}, in which {int(outside[0])} is "
                    "none. Take them from `step`, whose logits have a column "
                    "for each id."
                )
        return tf.cast(chosen, tf.int32)  # `tf.argmax` gives int64

    def results(self, chain: Chain, tokens, alignments) -> Hypotheses:
        """Returns the hypotheses, best first.

        Args:
            chain: The state at the end.
            tokens, alignments: The recorded tensors, time first.
        """
        # (T, B, N, ...) -> (B, N, T, ...)
        tokens = tf.transpose(tokens, [1, 2, 0])
        alignments = tf.transpose(alignments, [1, 2, 0, 3])
        # The loop runs until all rows are done, so a hypothesis that is done
        # earlier is followed by tokens that do not belong to it.
        longest = self._limits.longest
        if not is_fixed(longest):
            longest = longest[:, None]
        if self._rules.may_exhaust:
            longest = tf.minimum(longest, _first(tokens == CUT))
        end = _first(tokens == self._task.end_token)
        finished = end < longest
        lengths = tf.minimum(end + 1, longest)
        # A hypothesis without tokens, or with an impossible one, is dropped.
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
    """Returns the index of the first True along T of `(B, N, T)`, or T."""
    length = true.shape[-1]
    return tf.reduce_min(tf.where(true, tf.range(length), length), axis=-1)
