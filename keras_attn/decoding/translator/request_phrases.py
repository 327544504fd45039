"""`RequestPhrases`: a request's required and avoided phrases, in the graph."""

import dataclasses
import functools
from typing import Any

import tensorflow as tf

from keras_attn.decoding import Hypotheses
from keras_attn.decoding.phrases.glossary import Glossary
from keras_attn.decoding.phrases.matcher import PhraseMatcher
from keras_attn.decoding.phrases.spellings import Spellings
from keras_attn.decoding.phrases.spellings import distinct
from keras_attn.decoding.phrases.spellings import phrases_in
from keras_attn.decoding.phrases.terms import Terms
from keras_attn.decoding.phrases.terms import missing
from keras_attn.decoding.phrases.without import Avoided
from keras_attn.text.text import Text

_NAMES = "terms", "avoid"


@dataclasses.dataclass
class RequestPhrases:
    """The phrases of requests and of a glossary, as strings, ids and rules.

    Args:
        text: `Text` of the target.
        max_length: Most tokens of an output.
        leading: Index of the source input that the glossary reads, and its
            `Text`; `None` without a glossary.
        glossary: The `Glossary`, or `None`.
    """

    text: Text
    max_length: int
    leading: tuple[int, Text] | None = None
    glossary: Glossary | None = None

    @functools.cached_property
    def spellings(self) -> Spellings:
        """The `Spellings`, which turn phrases into token ids."""
        with tf.init_scope():
            return Spellings(self.text, self.max_length)

    def terms(self, given: tuple, request: dict) -> tf.RaggedTensor | None:
        """Returns the required terms of each row, from request and glossary.

        Args:
            given: The tensors that the pipeline's `sources` take.
            request: The request, with phrases as strings.

        Returns:
            Strings `(batch, ragged)`, or None if there is neither a glossary
            nor `terms` in the request.
        """
        lines, found = request.get("terms"), []
        if lines is not None:
            found.append(phrases_in(lines))
        if self.glossary is not None:
            leading: Any = self.leading
            found.append(self.glossary.terms_of(given[leading[0]]))
        return distinct(tf.concat(found, axis=1)) if found else None

    def glossary_terms(self, inputs: tuple) -> tf.RaggedTensor:
        """Returns the glossary's terms of the model's source inputs."""
        glossary: Any = self.glossary
        leading: Any = self.leading
        number, text = leading
        return glossary.terms_of(text.strings(inputs[number]))

    def ids_of_terms(self, terms: tf.RaggedTensor) -> tf.Tensor:
        """Returns the ids of terms, without those that cannot all fit.

        Args:
            terms: Strings `(batch, ragged)`.
        """
        return self.spellings.of_rows(self.spellings.those_that_fit(terms))

    def ids_of(self, request: dict) -> dict:
        """Converts a request's phrases from strings to ids.

        The ids have the form that a `PhraseMatcher` takes.
        """
        found = {}
        for name in _asked(request):
            if request[name].dtype != tf.string:
                continue
            phrases = phrases_in(request[name])
            if name == "terms":
                found[name] = self.ids_of_terms(phrases)
            else:
                phrases = self.spellings.those_that_may_come(phrases)
                found[name] = self.spellings.of_rows(phrases)
        return found

    def specs(self, request: dict) -> dict:
        """Returns the `tf.TensorSpec` of each kind of phrases in a request."""
        return {
            name: tf.TensorSpec(
                [None, None, self.spellings.count, None], tf.int32
            )
            for name in _asked(request)
        }

    def rules(self, request: dict) -> tuple:
        """Returns the rules for the phrases of a request, given as ids."""
        return tuple(
            self._rule(name, PhraseMatcher(request[name], self.spellings.first))
            for name in _asked(request)
        )

    def _rule(self, name, matcher):
        if name == "terms":
            return Terms(matcher, self.text.special.end)
        return Avoided(matcher)

    def missing(self, terms: tf.RaggedTensor, found: Hypotheses) -> tf.Tensor:
        """Returns the terms that hypotheses lack, joined by line feeds.

        Args:
            terms: The terms of each row, strings `(batch, ragged)`.
            found: The hypotheses.

        Returns:
            Strings `(batch, N)`, "" if no term is missing.
        """
        ids = self.spellings.of_rows(terms)
        matcher = PhraseMatcher(ids, self.spellings.first)
        lacks = missing(matcher, found.tokens, found.lengths)
        lines = terms.to_tensor("")[:, None]
        lines = tf.where(lacks, tf.strings.join([lines, "\n"]), "")
        lines = tf.strings.reduce_join(lines, axis=-1)
        return tf.strings.strip(lines)


def _asked(request):
    return [name for name in _NAMES if name in request]
