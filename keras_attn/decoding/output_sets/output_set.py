"""`OutputSet`: base class of rules that limit outputs to a set of texts."""

import copy

from keras_attn.arguments import lacking
from keras_attn.decoding.output_sets.automaton import Automaton
from keras_attn.decoding.rules import Rule
from keras_attn.text.text import Text


class OutputSet(Rule):
    """Base class of rules that limit outputs to a set of texts.

    A subclass defines the set with an `Automaton` over the tokens of the target
    text. The automaton is built when the `Translator` is made.
    """

    _automaton: Automaton | None = None
    _bound: tuple | None = None  # what the automaton was made for

    def automaton_for(self, text: Text, max_length: int) -> Automaton:
        """Returns the automaton over the tokens of a text.

        Args:
            text: The `Text` of the targets.
            max_length: Most tokens of an output, the end token counted.
        """
        raise lacking(self, "automaton_for", "an `Automaton`")

    @property
    def variables(self):
        return [] if self._automaton is None else self._automaton.variables

    def bound(self, text, max_length):
        made_for = text, max_length
        if self._bound == made_for:
            return self
        other = copy.copy(self)
        other._automaton = self.automaton_for(text, max_length)
        other._bound = made_for
        return other

    def __getstate__(self):
        """Returns the state without the automaton, which cannot be pickled."""
        own = {"_automaton", "_bound"}
        return {x: y for x, y in vars(self).items() if x not in own}

    def start(self, batch, beams):
        return self._needed().start(batch, beams)

    def apply(self, logits, written, state):
        return self._needed().allowed(logits, state, written.fixed_shapes)

    def update(self, tokens, state):
        return self._needed().after(tokens, state)

    def _needed(self):
        if self._automaton is None:
            raise ValueError(
                f"`{type(self).__name__}` needs the tokens of a text, which a "
                "`Translator` provides. Received: a search alone. Pass the "
                "search to a `Translator`, or `rule.bound(text, max_length)`."
            )
        return self._automaton
