"""`Prompts`: the tokens before each target of a request."""

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from keras_attn.backend import without_gradients
from keras_attn.decoding.language_prompt import LanguagePrompt
from keras_attn.text.special_tokens import SpecialTokens


@dataclasses.dataclass
class Prompts:
    """Adds each row's prompt, with the language that the model finds.

    Args:
        prompt: The `LanguagePrompt`; `None` leaves requests unchanged.
        cut: `Incremental` or `Ensemble`, which finds the language.
        special: The `SpecialTokens` of the target text.
        scope: Returns the context in which the models compute.
    """

    prompt: LanguagePrompt | None
    cut: Any
    special: SpecialTokens
    scope: Callable = contextlib.nullcontext

    @property
    def length(self) -> int:
        """Number of tokens of a prompt."""
        return 0 if self.prompt is None else self.prompt.length

    def lengths_in(self, prefix) -> tf.Tensor:
        """Counts the prompt tokens with which prefixes begin, `(batch,)`.

        They do not count towards the output's `max_length`.

        Args:
            prefix: Ids `(batch, columns)`, padded.
        """
        if self.prompt is None:
            return tf.zeros(tf.shape(prefix)[:1], tf.int32)
        names, follow, prefix = self.prompt.told(
            prefix, self.special.prompt_tokens, self.special.pad
        )
        return self.prompt.lengths_in(prefix, names, follow)

    def completed(self, inputs: tuple, request: dict) -> dict:
        """Returns a request with each row's prompt ids, as `"begun"`.

        Args:
            inputs: The model's inputs but the last.
            request: The request, with prefixes as ids. Prompt tokens are
                removed from its prefixes.
        """
        prompt, pad = self.prompt, self.special.pad
        if prompt is None or "begun" in request:
            return request
        rows = tf.shape(inputs[0])[0]
        given = request.get("prefix")
        if given is None:
            given = tf.zeros([rows, 0], tf.int32)
        names, follow, given = prompt.told(
            given, self.special.prompt_tokens, pad
        )
        languages = tf.cond(
            tf.reduce_all(names),
            lambda: tf.fill([rows], prompt.languages[0]),
            lambda: self._languages(prompt, inputs),
        )
        begun, rest = prompt.completed(given, names, follow, languages)
        request = {**request, "begun": begun}
        return request | {"prefix": rest} if "prefix" in request else request

    def _languages(self, prompt, inputs):
        """Returns the most probable language of each row."""
        with self.scope(), without_gradients():
            reader = self.cut.heads_at_once(())
            begun = tf.tile([self.special.start], [tf.shape(inputs[0])[0], 1])
            logits, _ = reader(reader.encode(inputs), begun)
            return prompt.best(logits[:, -1])
