"""`Without`: phrases that no output contains."""

import copy
from collections.abc import Iterable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_attn.decoding.hypotheses import NEVER
from keras_attn.decoding.phrases.matcher import PhraseMatcher
from keras_attn.decoding.phrases.spellings import Spellings
from keras_attn.decoding.rules import Rule
from keras_attn.decoding.rules import at_most


class Avoided(Rule):
    """Forbids the phrases of each row.

    Args:
        matcher: The `PhraseMatcher` of the phrases.
    """

    def __init__(self, matcher):
        self._matcher = matcher

    @property
    def matcher(self) -> PhraseMatcher:
        """The `PhraseMatcher` that looks for the phrases."""
        return self._matcher

    def start(self, batch, beams):
        return self.matcher.start(batch, beams)

    def apply(self, logits, written, state):
        token = self.matcher.completing(state)
        bound = tf.where(token >= 0, NEVER, float("inf"))
        return at_most(logits, tf.maximum(token, 0), bound)

    def update(self, tokens, state):
        return self.matcher.update(tokens, state)

    def take_rows(self, rows, count):
        return Avoided(self.matcher.take_rows(rows, count))

    def renumbered(self, subset):
        return Avoided(self.matcher.renumbered(subset))


@keras.saving.register_keras_serializable("keras_attn")
class Without(Avoided):
    """Forbids phrases in all outputs.

    A phrase is recognized by the tokens into which the target text splits it,
    at the beginning of a text and after a space. It is not recognized if other
    tokens spell it, or within a word, unless the tokens are characters.

    Args:
        phrases: List of phrases, as the target text writes them.

    Raises:
        ValueError: If there is no phrase, or if one is empty or only spaces. A
            `Translator` refuses phrases with unknown tokens.

    Example:
        >>> rule = keras_attn.Without(["hot dog", "cat"])
        >>> search = keras_attn.BeamSearch(3, rules=[rule])
    """

    def __init__(self, phrases):
        several = isinstance(phrases, Iterable) and not isinstance(phrases, str)
        given = list(phrases) if several else []
        fine = all(isinstance(x, str) and x.strip() for x in given)
        if not given or not fine:
            raise ValueError(
                "`phrases` of `Without` must be a list of strings with a "
                f"character at least. Received: phrases={phrases!r:.200}. Pass "
                'for example `["hot dog"]`.'
            )
        self.phrases = tuple(dict.fromkeys(x.strip() for x in given))
        self._ids: Any = None
        self._first = False

    @property
    def matcher(self):
        if self._ids is None:
            raise ValueError(
                "`Without` needs the tokens of a text, which a `Translator` "
                "provides. Received: a search alone. Pass the search to a "
                "`Translator`, or `rule.bound(text, max_length)`."
            )
        return PhraseMatcher(tf.constant(self._ids), self._first)

    def bound(self, text, max_length):
        spellings = Spellings(text, max_length)
        ids = spellings(tf.constant(self.phrases))
        known = spellings.are_known(ids).numpy()
        if not known.all():
            phrase = self.phrases[int(np.argmin(known))]
            raise ValueError(
                "A phrase of `Without` must be made of tokens that the target "
                f"text knows. Received: {phrase!r}. Leave it out: no output "
                "can contain it."
            )
        found = copy.copy(self)
        found._ids, found._first = ids.numpy()[None], spellings.first
        return found

    def take_rows(self, rows, count):
        return self

    def get_config(self):
        return {"phrases": list(self.phrases)}
