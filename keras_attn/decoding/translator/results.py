"""The results of a `Translator`: plain Python and numpy, without padding."""

import dataclasses
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_attn.decoding import Hypotheses
from keras_attn.text.text import Text

_SHOWN = 10  # translations that `repr` shows: they fit on a screen


class Word(NamedTuple):
    """A word of a text that was spoken."""

    text: str
    start: float  # seconds from the beginning of the sound
    end: float
    probability: float  # the mean probability of its tokens


@dataclasses.dataclass(frozen=True)
class Translation:
    """One hypothesis for one source."""

    text: str
    score: float
    # With the end token; positions if the source is not text.
    source_tokens: list[str] = dataclasses.field(repr=False)
    # With the end token, if there is one.
    tokens: list[str] = dataclasses.field(repr=False)
    # (len(tokens), len(source_tokens)), float32
    alignment: np.ndarray = dataclasses.field(repr=False)
    finished: bool  # False if cut, such as at the maximum length
    alternatives: list["Translation"] = dataclasses.field(
        default_factory=list, repr=False
    )  # the other hypotheses, best first
    truncated: bool = False  # whether the source was cut at its max_length
    unknown: int = 0  # unknown source tokens among those that were read
    replaced: list[int] = dataclasses.field(
        default_factory=list, repr=False
    )  # indices of the `tokens` that replaced the model's "<unk>"
    empty: bool = False  # whether the source is empty; the text means nothing
    # Required terms that the text lacks
    missing: list[str] = dataclasses.field(default_factory=list)
    # The words and their times; only from `Translator.words`
    words: list[Word] | None = dataclasses.field(default=None, repr=False)
    # The probability that nobody speaks; only from `Translator.words`
    no_speech: float | None = dataclasses.field(default=None, repr=False)
    # The tokens before the text, joined, such as that of the language that was
    # found; can be passed as a prefix. Only from `Translator.words`
    prompt: str | None = dataclasses.field(default=None, repr=False)


class Translations(Sequence):
    """The results of a `Translator`: a `Translation` for each source."""

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
        if not self._rows:
            return "Translations([])"
        lines = [f"  {row!r}," for row in self._rows[:_SHOWN]]
        more = len(self._rows) - len(lines)
        if more:
            lines.append(f"  ... and {more} more")
        return "\n".join(["Translations([", *lines, "])"])

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

    @property
    def truncated(self) -> list[bool]:
        """Whether each source was cut at its text's `max_length`."""
        return [row.truncated for row in self._rows]

    @property
    def unknown(self) -> list[int]:
        """Number of unknown tokens of each source, among those read."""
        return [row.unknown for row in self._rows]

    @property
    def empty(self) -> list[bool]:
        """Whether each source is empty; its text then means nothing."""
        return [row.empty for row in self._rows]

    @property
    def missing(self) -> list[list[str]]:
        """The required terms that each text lacks."""
        return [row.missing for row in self._rows]


class Token(NamedTuple):
    """A token of a stream, as `Translator.stream` yields it."""

    text: str  # the token's addition to the text so far
    token: str
    log_probability: float
    alignment: np.ndarray  # (len(source_tokens),), float32


@dataclasses.dataclass(frozen=True)
class Scores:
    """Log-probabilities of given targets, as `Translator.score` returns them.

    Attributes:
        tokens: List of the tokens of each target, with the end token.
        token_scores: Log-probabilities of these tokens, a float32 array for
            each target.
        scores: Sums of the log-probabilities, a float32 array of shape
            `(targets,)`.
        truncated: For each target, whether it or its source was cut at the
            `max_length` of its `Text`. The score is that of the cut texts.
        unknown: For each target, the number of tokens in the target and its
            source that were read as `<unk>` because they are not in the
            vocabulary.
        empty: For each target, whether its source is empty.
    """

    tokens: list[list[str]] = dataclasses.field(repr=False)
    token_scores: list[np.ndarray] = dataclasses.field(repr=False)
    scores: np.ndarray
    truncated: list[bool] = dataclasses.field(default_factory=list)
    unknown: list[int] = dataclasses.field(default_factory=list)
    empty: list[bool] = dataclasses.field(default_factory=list)

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def perplexity(self) -> float:
        """Perplexity per token over all targets, end tokens counted.

        `exp(-sum of all log-probabilities / number of all tokens)`
        """
        count = sum(map(len, self.tokens))
        if not count:
            return float("nan")
        return float(np.exp(-self.scores.sum(dtype="float64") / count))


class Report(NamedTuple):
    """A report of cut rows, unknown tokens and empty sources."""

    truncated: tf.Tensor  # (batch,), whether a text was cut at `max_length`
    unknown: tf.Tensor  # (batch,), int32: unknown tokens among those read
    empty: tf.Tensor  # (batch,), whether the source has no tokens

    def beside(self, other: "Report") -> "Report":
        """Returns a joint report of sources and of another text per row."""
        return Report(
            self.truncated | other.truncated,
            self.unknown + other.unknown,
            self.empty,
        )


class Decoded(NamedTuple):
    """Tensors of a batch, `N` hypotheses a source, best first."""

    source_tokens: tf.Tensor  # (batch, source), padded with ""
    source_lengths: tf.Tensor  # (batch,)
    texts: tf.Tensor  # (batch, N)
    tokens: tf.Tensor  # (batch, N, time), padded with ""
    hypotheses: Hypotheses
    report: Report  # of the sources, and of prefixes if there are any
    # (batch, N): terms that a text lacks, joined by line feeds; () if no terms
    # are required
    missing: Any = ()


def translations(decoded: Decoded, text: Text) -> Iterator[Translation]:
    """Yields the translations of a batch, without padding.

    Args:
        decoded: The tensors.
        text: `Text` of the targets.
    """
    arrays = tf.nest.map_structure(lambda x: x.numpy(), decoded)
    found = arrays.hypotheses
    for i, source_length in enumerate(arrays.source_lengths):
        source_tokens = strings(arrays.source_tokens[i, :source_length])
        hypotheses = []
        for n, length in enumerate(found.lengths[i]):
            if length:
                tokens = strings(arrays.tokens[i, n, :length])
                hypotheses.append(
                    Translation(
                        text=arrays.texts[i, n].decode("utf-8", "replace"),
                        score=float(found.scores[i, n]),
                        source_tokens=source_tokens,
                        tokens=tokens,
                        alignment=found.alignments[
                            i, n, :length, :source_length
                        ],
                        finished=bool(found.finished[i, n]),
                        truncated=bool(arrays.report.truncated[i]),
                        unknown=int(arrays.report.unknown[i]),
                        replaced=_replaced(found.tokens[i, n], tokens, text),
                        empty=bool(arrays.report.empty[i]),
                        missing=_lines(arrays.missing, i, n),
                    )
                )
        if not hypotheses:
            raise nothing_found()
        best, *others = hypotheses
        yield dataclasses.replace(best, alternatives=others)


def nothing_found() -> ValueError:
    """Returns the error for a source without any hypothesis."""
    return ValueError(
        "A search needs finite logits from the model. Received: a source for "
        "which it found no hypothesis. Check for weights that became NaN in "
        "training, a shortlist with fewer tokens than the search needs, and "
        "rules that together forbid every token."
    )


def with_words(rows: Iterable[Translation], spoken) -> Iterator[Translation]:
    """Yields translations with the words of a `Spoken`."""
    arrays = tf.nest.map_structure(lambda x: x.numpy(), spoken)
    for i, row in enumerate(rows):
        count = arrays.counts[i]
        times = (
            arrays.starts[i, :count],
            arrays.ends[i, :count],
            arrays.probabilities[i, :count],
        )
        words = [
            Word(text, *map(float, numbers))
            for text, *numbers in zip(
                strings(arrays.words[i, :count]), *times, strict=True
            )
        ]
        yield dataclasses.replace(
            row,
            words=words,
            no_speech=float(arrays.no_speech[i]),
            prompt=strings(arrays.prompts)[i],
        )


def _lines(missing, row, number):
    """Returns the missing terms of a hypothesis as a list."""
    if isinstance(missing, tuple):
        return []
    found = missing[row, number].decode("utf-8", "replace")
    return found.split("\n") if found else []


def _replaced(ids, tokens, text):
    """Returns the indices of tokens that replaced the model's "<unk>"."""
    unknown = text.special.unknown
    return [
        i
        for i, token in enumerate(tokens)
        if ids[i] == unknown and token != text.tokens[unknown]
    ]


def strings(array) -> list[str]:
    """Returns an array of bytes as a list of strings."""
    return [x.decode("utf-8", "replace") for x in array]
