"""What a `Translator` gives back: plain Python and numpy, without padding."""

import dataclasses
from collections.abc import Iterator
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_attn.search import Hypotheses


@dataclasses.dataclass(frozen=True)
class Translation:
    """One hypothesis for one source."""

    text: str
    score: float
    source_tokens: list[str]  # with the end token; numbers, if not of text
    tokens: list[str]  # with the end token, if it came
    alignment: np.ndarray  # (len(tokens), len(source_tokens)), float32
    finished: bool  # False if cut at the search's maximum length
    alternatives: list["Translation"] = dataclasses.field(
        default_factory=list, repr=False
    )  # the other hypotheses, best first


class Translations(Sequence):
    """What a `Translator` returns: a `Translation` for each source."""

    def __init__(self, rows: list[Translation]):
        self._rows = rows

    def __getitem__(self, index):
        if isinstance(index, slice):
            return Translations(self._rows[index])
        return self._rows[index]

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Translation]:
        return iter(self._rows)

    def __repr__(self) -> str:
        return f"Translations({self._rows!r})"

    @property
    def text(self) -> list[str]:
        """The best text of each source."""
        return [row.text for row in self._rows]

    @property
    def scores(self) -> np.ndarray:
        """The best score of each source, float32."""
        return np.array([row.score for row in self._rows], "float32")

    @property
    def alternatives(self) -> list[list[Translation]]:
        """The other hypotheses of each source, best first."""
        return [row.alternatives for row in self._rows]

    @property
    def alignments(self) -> list[np.ndarray]:
        """The alignment of each source's best hypothesis."""
        return [row.alignment for row in self._rows]


class Token(NamedTuple):
    """A token of a stream, as `Translator.stream` yields it."""

    text: str  # what it adds to the text so far; "" for the end token
    token: str
    log_probability: float
    alignment: np.ndarray  # (len(source_tokens),), float32


@dataclasses.dataclass(frozen=True)
class Scores:
    """What `Translator.score` gives: log-probabilities of given targets."""

    tokens: list[list[str]]  # of each target, with the end token
    token_scores: list[np.ndarray]  # as long as its tokens, float32
    scores: np.ndarray  # (targets,), their sums, float32

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def perplexity(self) -> float:
        """Of all targets, a token's; the end tokens counted.

        `exp(-sum of all log-probabilities / number of all tokens)`
        """
        count = sum(map(len, self.tokens))
        if not count:
            return float("nan")
        return float(np.exp(-self.scores.sum(dtype="float64") / count))


class Decoded(NamedTuple):
    """Tensors of a batch, `N` hypotheses a source, best first."""

    source_tokens: tf.Tensor  # (batch, source), padded with ""
    source_lengths: tf.Tensor  # (batch,)
    texts: tf.Tensor  # (batch, N)
    tokens: tf.Tensor  # (batch, N, time), padded with ""
    hypotheses: Hypotheses


def translations(decoded: Decoded) -> Iterator[Translation]:
    """Translations of a batch, trimmed of padding."""
    arrays = tf.nest.map_structure(lambda x: x.numpy(), decoded)
    found = arrays.hypotheses
    for i, source_length in enumerate(arrays.source_lengths):
        source_tokens = strings(arrays.source_tokens[i, :source_length])
        hypotheses = []
        for n, length in enumerate(found.lengths[i]):
            if length:
                hypotheses.append(
                    Translation(
                        text=arrays.texts[i, n].decode("utf-8", "replace"),
                        score=float(found.scores[i, n]),
                        source_tokens=source_tokens,
                        tokens=strings(arrays.tokens[i, n, :length]),
                        alignment=found.alignments[
                            i, n, :length, :source_length
                        ],
                        finished=bool(found.finished[i, n]),
                    )
                )
        if not hypotheses:
            raise ValueError(
                "The search found no hypothesis for a source. Are the "
                "model's logits finite? Weights that became NaN do this."
            )
        best, *others = hypotheses
        yield dataclasses.replace(best, alternatives=others)


def strings(array) -> list[str]:
    """Strings of an array of bytes."""
    return [x.decode("utf-8", "replace") for x in array]
