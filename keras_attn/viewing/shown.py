"""A result as plots and pages show it: readable tokens, text direction."""

import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from keras_attn.viewing.words import by_words

END_TOKENS = {"</s>", "<end>", "<eos>", "[END]", "[EOS]"}


class Shown(NamedTuple):
    """The attention of one hypothesis, checked."""

    alignment: np.ndarray  # (target, source), float32
    source_tokens: Sequence[str]
    tokens: Sequence[str]

    @classmethod
    def of(cls, function, result, words=False) -> "Shown":
        """Reads a result.

        Args:
            function: Name of the public function, for errors.
            result: An object with `alignment`, `source_tokens`, `tokens`.
            words: Whether to join subwords into words.
        """
        try:
            parts = result.alignment, result.source_tokens, result.tokens
        except AttributeError:
            raise ValueError(
                f"`{function}` shows results, objects with `alignment`, "
                "`source_tokens` and `tokens`. Received: "
                f"{type(result).__name__}. Pass results of a `Translator`, all "
                "of them or one as in `results[0]`."
            ) from None
        return cls.checked(*parts).joined(words)

    @classmethod
    def checked(cls, alignment, source_tokens, tokens) -> "Shown":
        """Checks the shape of an alignment."""
        alignment = np.asarray(alignment, "float32")
        expected = (len(tokens), len(source_tokens))
        if alignment.shape != expected or not alignment.size:
            raise ValueError(
                "`alignment` needs a row for each target token and a column "
                "for each source token, and at least one of both. Received: "
                f"alignment of shape {alignment.shape} for {len(tokens)} "
                f"tokens and {len(source_tokens)} source tokens. Remove rows "
                "and columns of padding."
            )
        return cls(alignment, source_tokens, tokens)

    def joined(self, words: bool) -> "Shown":
        """Returns the attention between words, or itself if not `words`."""
        return Shown(*by_words(*self)) if words else self

    @property
    def rows(self) -> list[str]:
        """The target tokens, readable."""
        return list(map(legible, self.tokens))

    @property
    def columns(self) -> list[str]:
        """The source tokens, readable."""
        return list(map(legible, self.source_tokens))


def are_several(results) -> bool:
    """Whether these are several results rather than one.

    A single result of the serving client is a tuple too.
    """
    is_one = any(hasattr(results, x) for x in ("alignment", "words"))
    several = isinstance(results, Sequence) and not isinstance(results, str)
    return several and not is_one


def legible(token: str) -> str:
    """Returns a token as it is shown: `⏎` for the end, `␣` for a space."""
    if token in END_TOKENS:
        return "⏎"
    if token and not token.strip(" "):
        return "␣" * len(token)
    if unicodedata.combining(token[:1] or " "):  # needs a base letter
        return "◌" + token
    if not token.isprintable():
        return token.encode("unicode_escape").decode()
    return token


def is_right_to_left(tokens) -> bool:
    """Whether most letters of some tokens are written from right to left."""
    kinds = [unicodedata.bidirectional(x) for token in tokens for x in token]
    right = sum(kind in ("R", "AL") for kind in kinds)
    return right > kinds.count("L")


def score_of(result) -> str:
    """Returns a result's score as it is shown, "" without one."""
    score = getattr(result, "score", None)
    if score is None:
        return ""
    return f"{score:.3f}".replace("-", "−").replace("inf", "∞")
