"""A result as plots and pages show it: readable tokens, text direction."""

import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from keras_attn.viewing.words import by_words
from keras_attn.viewing.words import spans

END_TOKENS = {"</s>", "<end>", "<eos>", "[END]", "[EOS]"}
# Unicode's categories of joiners and marks of direction, and of spaces.
_BETWEEN = {"Cf", "Zs"}


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
        return readable(self.tokens)

    @property
    def columns(self) -> list[str]:
        """The source tokens, readable."""
        return readable(self.source_tokens)


def are_several(results) -> bool:
    """Whether these are several results rather than one.

    A single result of the serving client is a tuple too.
    """
    is_one = any(hasattr(results, x) for x in ("alignment", "words"))
    several = isinstance(results, Sequence) and not isinstance(results, str)
    return several and not is_one


def readable(tokens, words=False) -> list[str]:
    """Returns tokens, or the words that they spell, as they are shown."""
    if words:
        tokens = [word for *_, word in spans(tokens)]
    return list(map(legible, tokens))


def legible(token: str) -> str:
    """Returns a token as it is shown: `⏎` for the end, `␣` for a space.

    Characters that would not show are escaped. Joiners and special spaces are
    kept beside other characters, whose shape or place they change.
    """
    if token in END_TOKENS:
        return "⏎"
    if token and not token.strip(" "):
        return "␣" * len(token)
    kinds = [unicodedata.category(x) for x in token]
    kept = _BETWEEN if set(kinds) - _BETWEEN else set()
    shown = "".join(
        x if x.isprintable() or kind in kept else _escaped(x)
        for x, kind in zip(token, kinds, strict=True)
    )
    if kinds and kinds[0].startswith("M"):  # a mark, which needs a base letter
        return "◌" + shown
    return shown


def _escaped(character):
    return character.encode("unicode_escape").decode()


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
