"""`Terms`: phrases that each output must contain."""

import tensorflow as tf

from keras_attn.decoding.candidates import size_of
from keras_attn.decoding.hypotheses import NEVER
from keras_attn.decoding.phrases.matcher import Matched
from keras_attn.decoding.phrases.matcher import PhraseMatcher
from keras_attn.decoding.rules import Rule
from keras_attn.decoding.rules import state_after


class Terms(Rule):
    """Forbids the end token until a hypothesis has all terms of its row.

    Args:
        matcher: The `PhraseMatcher` of the terms.
        end: Id of the end token.
    """

    steers = True

    def __init__(self, matcher: PhraseMatcher, end: int):
        self._matcher, self._end = matcher, end

    def start(self, batch, beams) -> Matched:
        return self._matcher.start(batch, beams)

    def apply(self, logits, written, state):
        early = tf.cast(self.lacking(state) > 0, logits.dtype)[..., None]
        return logits + NEVER * early * tf.one_hot(self._end, size_of(logits))

    def update(self, tokens, state):
        return self._matcher.update(tokens, state)

    def lacking(self, state):
        return self._matcher.lacking(state)

    def following(self, state):
        return self._matcher.following(state)

    def take_rows(self, rows, count):
        return Terms(self._matcher.take_rows(rows, count), self._end)

    def renumbered(self, subset):
        matcher = self._matcher.renumbered(subset)
        return Terms(matcher, subset.place_of[self._end])


def missing(matcher: PhraseMatcher, tokens, lengths) -> tf.Tensor:
    """Returns which phrases hypotheses lack, boolean `(B, N, P)`.

    Args:
        matcher: The `PhraseMatcher` of the phrases.
        tokens: Tokens of the hypotheses, `(B, N, T)`.
        lengths: Lengths of the hypotheses, `(B, N)`.
    """
    return ~state_after(matcher, tokens, lengths).found
