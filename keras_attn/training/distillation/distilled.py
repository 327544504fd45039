"""`Distilled`: a teacher's targets for a corpus, in the form for `pairs`.

The file has one line for each source, a JSON object:

    {"source": "a cat", "targets": ["un chat"], "scores": [-0.5],
     "finished": [true], "truncated": false, "unknown": 0, "empty": false}

The last four may be missing, and any other fields are ignored, because another
program may have written the file.
"""

import json
import os
import pathlib
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

import numpy as np

from keras_attn.training.metrics import bleu


class Record(NamedTuple):
    """A source, and the targets that a teacher generated for it."""

    source: str
    targets: list[str]  # hypotheses, best first
    scores: list[float]  # a score for each target
    finished: list[bool] | None = None  # False for a target cut by the search
    truncated: bool = False  # whether the source was cut at its max_length
    unknown: int = 0  # number of unknown tokens in the source
    empty: bool = False  # whether the source has no token

    @classmethod
    def of(cls, source, translation, num_best=None) -> "Record":
        """Makes a record of a `Translation`, with up to `num_best` targets."""
        several = [translation, *translation.alternatives][:num_best]
        return cls(
            source,
            [x.text for x in several],
            [_shortest(x.score) for x in several],
            [bool(getattr(x, "finished", True)) for x in several],
            bool(getattr(translation, "truncated", False)),
            int(getattr(translation, "unknown", 0)),
            bool(getattr(translation, "empty", False)),
        )

    @classmethod
    def of_answer(cls, answer: Mapping[str, Any]) -> "Record":
        """Makes a record of a source and an export's answer for it.

        Args:
            answer: `source`, `texts` and `scores`, best first, or `text` and
                `score`; and any of the other fields.
        """
        texts, scores = answer.get("texts"), answer.get("scores")
        if texts is None or scores is None:
            texts, scores = [answer["text"]], [answer["score"]]
        finished = answer.get("finished")
        ends = np.full(len(scores), True) if finished is None else finished
        ends = np.atleast_1d(ends)  # a scalar if there is a single `text`
        # A missing hypothesis has a score of minus infinity.
        found = [
            x for x in zip(texts, scores, ends, strict=True) if x[1] > -np.inf
        ]
        return cls(
            answer["source"],
            [text for text, _, _ in found],
            [_shortest(score) for _, score, _ in found],
            # Exports of keras-attn 0.3 do not report this.
            None if finished is None else [bool(end) for _, _, end in found],
            truncated=bool(answer.get("truncated")),
            unknown=int(answer.get("unknown") or 0),
            empty=bool(answer.get("empty")),
        )

    @classmethod
    def from_json(cls, line: bytes) -> "Record":
        """Parses a line; raises `ValueError` if it is not a record."""
        fields = json.loads(line)
        try:
            found = cls(**{x: fields[x] for x in cls._fields if x in fields})
            count = len(found.targets)
            has_scores = len(found.scores) == count
            has_finished = found.finished is None or (
                len(found.finished) == count
            )
        except TypeError as error:
            raise ValueError("it has no source, targets and scores") from error
        if not has_scores:
            raise ValueError("it needs a score for each target")
        if not has_finished:
            raise ValueError("`finished` needs a value for each target")
        return found

    def to_json(self) -> bytes:
        """Returns the line of the file, including the newline."""
        fields = self._asdict()
        try:
            line = json.dumps(fields, ensure_ascii=False).encode()
        except UnicodeEncodeError:  # half of a surrogate pair
            line = json.dumps(fields).encode()
        return line + b"\n"

    @property
    def good(self) -> list[str]:
        """The targets to train a student on, best first.

        Targets that the search cut are left out, because a student would learn
        to stop too early. If the source was cut or is empty, there are none.
        """
        if self.truncated or self.empty:
            return []
        if self.finished is None:
            return self.targets
        pairs = zip(self.targets, self.finished, strict=True)
        return [target for target, is_whole in pairs if is_whole]


class Distilled:
    """The targets that a teacher generated, read from a file of `distill`.

    The methods return `(sources, targets)`, two lists for `pairs`. They leave
    out what a student should not learn: targets that the search cut at its
    maximum length, and sources that were cut at their `max_length` or are
    empty. The file contains these too: iterating yields a `Record` for each
    source.

    Nothing is kept in memory; each method reads the file.

    Args:
        path: Path of a file that `distill` wrote, or is still writing.

    Raises:
        ValueError: If there is no such file. The methods also raise it, for a
            line that `distill` does not write.

    Reference:
        - [Kim and Rush, 2016](https://arxiv.org/abs/1606.07947)

    Example:
        >>> lines = [
        ...     '{"source": "a", "targets": ["A B", "A"], "scores": [-1, -2]}',
        ...     '{"source": "b", "targets": ["B"], "scores": [-1]}']
        >>> with open("distilled.jsonl", "w") as file:
        ...     print(*lines, sep="\\n", file=file)
        >>> found = keras_attn.Distilled("distilled.jsonl")
        >>> found.best()
        (['a', 'b'], ['A B', 'B'])
        >>> found.n_best()
        (['a', 'a', 'b'], ['A B', 'A', 'B'])
        >>> found.nearest(["A", "C"])
        (['a', 'b'], ['A', 'B'])
    """

    def __init__(self, path: str | os.PathLike):
        self.path = pathlib.Path(path)
        if not self.path.is_file():
            raise ValueError(
                "`Distilled` reads a file that `distill` wrote. Received: "
                f"path={str(path)!r}, where there is none. Call "
                "`distill(teacher, sources, path)` first."
            )

    @classmethod
    def write(
        cls, path: str | os.PathLike, answers: Iterable[Mapping[str, Any]]
    ) -> "Distilled":
        """Writes an export's answers to a file, and returns its `Distilled`.

        Args:
            path: Path of the file, which appears only when all is written.
            answers: A dictionary for each source. It must have `source`, and
                `texts` and `scores` as returned by the signature `nbest`, best
                first, or `text` and `score`. It may have `finished`,
                `truncated`, `unknown` and `empty`.
        """
        path = pathlib.Path(path)
        unfinished = path.with_name(path.name + ".new")
        with open(unfinished, "wb") as file:
            for answer in answers:
                file.write(Record.of_answer(answer).to_json())
        unfinished.replace(path)
        return cls(path)

    def __iter__(self) -> Iterator[Record]:
        with open(self.path, "rb") as file:  # other line ends stay in texts
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):  # still being written
                    return
                try:
                    yield Record.from_json(line)
                except ValueError as error:
                    raise ValueError(
                        "Each line must be what `distill` writes for a source. "
                        f"Received: line {number} of {self.path}, "
                        f"{line[:80]!r}: {error}. Is this the right file?"
                    ) from error

    def __len__(self) -> int:
        """Returns the number of sources."""
        with open(self.path, "rb") as file:
            return sum(line.endswith(b"\n") for line in file)

    def __repr__(self) -> str:
        return f"Distilled({str(self.path)!r})"

    def best(self) -> tuple[list[str], list[str]]:
        """Returns the sources and the best target of each.

        This is sequence-level distillation (Kim and Rush, section 3.2).
        """
        return self.n_best(1)

    def n_best(self, count: int | None = None) -> tuple[list[str], list[str]]:
        """Returns all targets, and for each target its source.

        Args:
            count: Maximum number of targets per source. Defaults to all.
        """
        found = [
            (record.source, target)
            for record in self
            for target in record.good[:count]
        ]
        return _columns(found)

    def nearest(
        self,
        references: Iterable[str | list[str] | None],
        similarity: Callable[[str, str | list[str]], float] | None = None,
    ) -> tuple[list[str], list[str]]:
        """Returns the sources, and for each the target nearest to a reference.

        This is sequence-level interpolation (Kim and Rush, section 3.3). Of
        equally near targets, that with the best score is taken. If there is no
        reference, the best target is taken.

        Args:
            references: For each source in the file, a string, a list of
                several, or `None`.
            similarity: Function of a target and the source's item of
                `references`, which returns a number, greater for more similar
                texts. Defaults to smoothed sentence BLEU by sacreBLEU, which
                takes about 0.5 ms.

        Raises:
            ValueError: If there are not as many references as sources.
            ImportError: If sacreBLEU is needed and not installed.
        """
        similarity = similarity or _sentence_bleu
        found, wanted = [], iter(references)
        count = 0
        for count, record in enumerate(self, 1):
            try:
                reference = next(wanted)
            except StopIteration:
                raise self._unlike(count - 1, len(self)) from None
            targets = record.good
            if len(targets) > 1 and reference is not None:
                targets = [_nearest(targets, reference, similarity)]
            found += [(record.source, target) for target in targets[:1]]
        left = sum(1 for _ in wanted)
        if left:
            raise self._unlike(count + left, count)
        return _columns(found)

    def _unlike(self, references, sources):
        return ValueError(
            "`nearest` needs one item for each source in the file: a string, a "
            f"list of strings, or None. Received: {references} references "
            f"for the {sources} sources in {self.path}. Pass those of the "
            "whole corpus, in the same order."
        )


def _nearest(targets, reference, similarity):
    return max(targets, key=lambda x: similarity(x, reference))


def _sentence_bleu(target, reference):
    # Ignores n-grams that are longer than a short sentence.
    return bleu([target], [reference], effective_order=True)


def _columns(pairs):
    """Returns pairs as two lists."""
    return [x for x, _ in pairs], [y for _, y in pairs]


def _shortest(score):
    """Returns a float32 as the float with the fewest decimal digits."""
    return float(str(np.float32(score)))
