"""`IndependentHypotheses`: the run of independent hypotheses, token by token.

Greedy search, sampling and most custom searches run this way. They differ only
in the tokens they choose.
"""

from typing import Any
from typing import NamedTuple

import tensorflow as tf

from keras_attn.decoding.described import described
from keras_attn.decoding.hypotheses import POSSIBLE
from keras_attn.decoding.hypotheses import Hypotheses
from keras_attn.decoding.hypotheses import gather
from keras_attn.decoding.hypotheses import without_impossible
from keras_attn.decoding.options import is_fixed
from keras_attn.decoding.run import Run
from keras_attn.decoding.step import Step
from keras_attn.decoding.threefry import uniform

CUT = -1  # recorded instead of a token if all tokens are forbidden


class Chain(NamedTuple):
    """The state of the hypotheses after `time` tokens."""

    time: Any
    last: Any  # (B, N)
    done: Any  # (B, N)
    scores: Any  # (B, N)
    tokens: Any  # (B, N, T), or None if no rule needs them
    rules: tuple  # the state of each rule
    own: Any  # the search's own state


class IndependentHypotheses(Run):
    """One run of a search with independent hypotheses.

    Args:
        search: The `Search`, whose `start`, `choose` and `update` are called.
        search_input: The `SearchInput`.
    """

    recorded = (tf.int32, tf.float32)  # tokens, alignments

    def __init__(self, search, search_input):
        super().__init__(search, search_input, search.num_hypotheses)
        self._with_request = search.with_request(search_input)
        self._numbers = None
        if search.draws:
            length = search.max_length
            self._numbers = uniform(search_input.seed, self.beams, length)

    def first(self) -> Chain:
        batch, count = self.search_input.batch, self.beams
        tokens = None
        if self.rules.need_tokens:
            length = self.search.max_length
            tokens = tf.zeros([batch, count, length], tf.int32)
        return Chain(
            time=tf.constant(0),
            last=self.search_input.first_tokens(count),
            done=tf.zeros([batch, count], tf.bool),
            scores=tf.zeros([batch, count]),
            tokens=tokens,
            rules=self.rules.start(batch, count),
            own=self._with_request.start(self.search_input),
        )

    def advance(self, state: Chain, logits, alignments) -> tuple:
        time = state.time
        step = Step(
            time,
            self.apply_rules(state, logits),
            alignments,
            state.scores,
            None if self._numbers is None else self._numbers[time],
            state.done,
        )
        chosen = self._with_request.choose(step, state.own)
        token = self._require_tokens(chosen, step.logits.shape[-1])
        if self.rules.prefix is not None:
            forced, prefix = self.rules.prefix.at(time)
            token = tf.where(forced[:, None], prefix[:, None], token)
        scores = step.scores_with(token)
        own = self._with_request.update(step, token, scores, state.own)
        done = state.done | (token == self.search_input.end_token)
        written = token
        if self.rules.may_exhaust:
            stuck = scores <= POSSIBLE
            scores = tf.where(stuck, state.scores, scores)
            written = tf.where(stuck, CUT, token)
            done |= stuck
        longest = self.limits.longest
        if not is_fixed(longest):
            done |= (time + 1 >= longest)[:, None]
        tokens = state.tokens
        if tokens is not None:
            here = tf.range(tokens.shape[-1]) == time
            tokens = tf.where(here, token[..., None], tokens)
        chain = Chain(
            time=time + 1,
            last=token,
            done=done,
            scores=tf.where(state.done, state.scores, scores),
            tokens=tokens,
            rules=self.rules.update(token, state.rules),
            own=own,
        )
        return chain, None, (written, alignments)

    def _require_tokens(self, chosen, vocabulary):
        """Returns the result of `choose`, or raises an error if invalid."""
        if not (
            tf.is_tensor(chosen)
            and chosen.dtype.is_integer
            and chosen.shape.rank == 2
            and chosen.shape[1] in (None, self.beams)
        ):
            raise TypeError(
                f"`{type(self.search).__name__}.choose` must return the "
                "tokens of the hypotheses, an integer tensor of shape "
                f"(batch, {self.beams}). Received: {described(chosen)}. For "
                "example return `step.argmax()`, or "
                "`step.pick(weights)` with weights (batch, hypotheses, "
                "vocabulary). The scores are computed from the tokens."
            )
        if tf.executing_eagerly():
            outside = chosen[(chosen < 0) | (chosen >= vocabulary)]
            if tf.size(outside):
                raise ValueError(
                    f"`{type(self.search).__name__}.choose` must return ids "
                    f"of the vocabulary, 0 to {vocabulary - 1}. Received: "
                    f"{described(chosen)}, in which {int(outside[0])} is "
                    "outside. Take ids from `step`, whose logits have a "
                    "column for each id."
                )
        return tf.cast(chosen, tf.int32)  # `tf.argmax` gives int64

    def results(self, state: Chain, tokens, alignments) -> Hypotheses:
        # (T, B, N, ...) -> (B, N, T, ...)
        tokens = tf.transpose(tokens, [1, 2, 0])
        alignments = tf.transpose(alignments, [1, 2, 0, 3])
        # The loop runs until all rows are done. The tokens recorded after a
        # hypothesis has ended do not belong to it.
        longest = self.limits.longest
        if not is_fixed(longest):
            longest = longest[:, None]
        if self.rules.may_exhaust:
            longest = tf.minimum(longest, _first(tokens == CUT))
        end = _first(tokens == self.search_input.end_token)
        finished = end < longest
        lengths = tf.minimum(end + 1, longest)
        found = without_impossible(
            Hypotheses(tokens, lengths, state.scores, finished, alignments)
        )
        if self.beams == 1:
            return found
        _, best = tf.math.top_k(found.scores, self.beams)
        return gather(found, best)


def _first(true):
    """Returns the index of the first True along T of `(B, N, T)`, or T."""
    length = true.shape[-1]
    return tf.reduce_min(tf.where(true, tf.range(length), length), axis=-1)
