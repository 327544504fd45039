"""`distill()`: a teacher generates targets for a corpus, however long.

The file grows by a few batches at a time, and repeating an interrupted call
resumes it.
"""

import collections
import itertools
import os
import pathlib
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np

from keras_attn import arguments
from keras_attn.progress import Bar
from keras_attn.progress import is_shown
from keras_attn.training.distillation.distilled import Distilled
from keras_attn.training.distillation.distilled import Record

# Batches in one call of the teacher, which batches lines of similar length
# together. With more, a kill would lose more work.
_BATCHES = 16
# Number of records to generate again, to check that the teacher is the same. A
# single one may differ because of a tie.
_TRIED = 8


def distill(
    teacher: Callable[..., Any],
    sources: str | os.PathLike | Iterable[str],
    path: str | os.PathLike,
    num_best: int = 1,
    batch_size: int = 64,
    seed: int = 0,
    verbose: str | int = "auto",
) -> Distilled:
    """Generates targets with a teacher, to train a smaller model on.

    A student learns more easily from targets that its teacher generated than
    from human targets (Kim and Rush, 2016), and the teacher can also translate
    sources without targets. The teacher is a large model or an ensemble: any
    `Translator`.

    Each line of the file is a JSON object with a source, its targets, best
    first, their scores, and what the teacher reports: which targets its search
    cut, whether it cut the source, and so on. `Distilled` reads the file. If
    the program is killed, the same call resumes and completes the file as if
    it had not been interrupted. The teacher and the sources must then be the
    same. This is checked: all sources in the file are compared, and the last
    of them are decoded again.

    Args:
        teacher: `Translator`. Or a function of a list of lines and
            `batch_size=` that returns the `Translations` of a translator, for
            example to pass prefixes to it.
        sources: Iterable of lines, such as a list, a generator or a
            `tf.data.Dataset`. Or the path of a UTF-8 text file with one source
            a line. They are not kept in memory.
        path: Path of the file to write, such as `"distilled.jsonl"`.
        num_best: Maximum number of targets per source. The teacher's search
            must return as many: `BeamSearch(5, num_hypotheses=5)`.
        batch_size: Number of sources that are decoded together.
        seed: Integer seed for a teacher whose search draws, such as
            `Sampling`.
        verbose: Whether to show a progress bar: 0, 1, or `"auto"`, which
            shows it on a terminal.

    Returns:
        The `Distilled` of the file. `keras_attn.pairs(*distilled.best(),
        source_text, target_text)` makes batches of it.

    Raises:
        ValueError: If an argument is invalid, or if the file at `path` has
            other sources, was written by another teacher, or not by
            `distill`.

    Reference:
        - [Kim and Rush, 2016](https://arxiv.org/abs/1606.07947)

    Example:
        >>> text = keras_attn.Text.from_lines(["ab"], split="characters")
        >>> source = keras.Input((None,), dtype="int32")
        >>> target = keras.Input((None,), dtype="int32")
        >>> embed = keras.layers.Embedding(text.size, 8, mask_zero=True)
        >>> hidden = keras_attn.AttentionDecoder(
        ...     keras.layers.GRUCell(8), keras_attn.BahdanauAttention(8))(
        ...     embed(target), embed(source))
        >>> model = keras.Model(
        ...     [source, target], keras.layers.Dense(text.size)(hidden))
        >>> teacher = keras_attn.Translator(
        ...     model, text, text, keras_attn.BeamSearch(2, max_length=30))
        >>> found = keras_attn.distill(
        ...     teacher, ["ab", "b", "ba"], "distilled.jsonl")
        >>> [record.source for record in found]
        ['ab', 'b', 'ba']
        >>> sources, targets = found.best()  # for `keras_attn.pairs`
    """
    _check(teacher, num_best, batch_size, seed, verbose)
    path = pathlib.Path(path)
    stream, count = _lines(sources), _count(sources)
    write = _Teacher(teacher, num_best, batch_size, seed)
    size = _BATCHES * batch_size
    begin = 0
    if path.exists():
        begin, stream = _go_on(path, stream, size, write)
    if begin and is_shown(verbose):
        print(f"Goes on after {begin} sources, from {path}.")
    bar = Bar(verbose, None if count is None else count - begin, "source")
    path.parent.mkdir(parents=True, exist_ok=True)
    done = 0
    with open(path, "ab") as file:
        while chunk := list(itertools.islice(stream, size)):
            file.writelines(x.to_json() for x in write(chunk, begin + done))
            file.flush()
            done += len(chunk)
            bar.add(len(chunk))
    bar.end()
    return Distilled(path)


class _Teacher:
    """Generates the records of some sources.

    Args:
        teacher, num_best, batch_size, seed: As for `distill`.
    """

    def __init__(self, teacher, num_best, batch_size, seed):
        self._teacher, self._num_best = teacher, num_best
        self._batch_size, self._seed = batch_size, seed
        self._draws = getattr(getattr(teacher, "search", None), "draws", False)

    def __call__(self, sources, first) -> list[Record]:
        """Returns the records of sources.

        Args:
            sources: List of lines.
            first: Index of the first of them among all sources, from 0.
        """
        options = {}
        if self._draws:  # the seed of a source depends on its index alone
            numbers = range(first, first + len(sources))
            options["seed"] = [self._seed_of(x) for x in numbers]
        found = list(
            self._teacher(sources, batch_size=self._batch_size, **options)
        )
        parts = "text", "score", "alternatives"
        fits = all(hasattr(x, part) for x in found for part in parts)
        if len(found) != len(sources) or not fits:
            raise ValueError(
                "The teacher must return a `Translation` for each source, as a "
                f"`Translator` does. Received: {len(found)} results for "
                f"{len(sources)} sources, {found[:1]!r:.80}. Return the result "
                "of a `Translator`."
            )
        return [
            Record.of(source, x, self._num_best)
            for source, x in zip(sources, found, strict=True)
        ]

    def _seed_of(self, number):
        drawn = np.random.SeedSequence([self._seed, number]).generate_state(1)
        return int(drawn[0]) >> 1  # seeds of rows are int32


def _go_on(path, stream, size, write):
    """Prepares a file to resume; returns what to keep and what remains.

    An incomplete chunk is generated anew, because scores are rounded
    differently in other batches.

    Args:
        path: Path of the file.
        stream: Iterator of all sources.
        size: Number of sources in a chunk.
        write: `_Teacher`.

    Returns:
        The number of records to keep, and an iterator of the sources after
        them.
    """
    number, last = 0, collections.deque(maxlen=_TRIED)
    again = []  # sources of a chunk that is not complete
    for number, record in enumerate(Distilled(path), 1):
        source = next(stream, None)
        if record.source != source:
            given = "no more" if source is None else f"{source!r:.80}"
            raise ValueError(
                f"To resume {path}, `distill` needs the same sources as when "
                f"it began. Received: {given} as source {number}, where "
                f"the file has {record.source!r:.80}. Pass the same sources, "
                "or another path."
            )
        last.append(record)
        again.append(source)
        if len(again) == size:
            again.clear()
    part = _part_at_end(path)
    if last:
        _require_same_teacher(path, [*last], number, write)
    following = next(stream, None)
    if following is None:  # all is there
        if part:
            os.truncate(path, path.stat().st_size - len(part))
        return number, stream
    kept = number - len(again)
    with open(path, "rb") as file:
        length = sum(map(len, itertools.islice(file, kept)))
    os.truncate(path, length)
    return kept, itertools.chain(again, [following], stream)


def _part_at_end(path):
    """Returns the incomplete line at the end of the file, or nothing."""
    part, begin = b"", b'{"source": '
    with open(path, "rb") as file:
        for line in file:
            part = line
    if part.endswith(b"\n"):
        return b""
    if not (part.startswith(begin) or begin.startswith(part)):
        raise ValueError(
            "`path` must be that of a file of `distill`, or of a new file. "
            f"Received: {path}, which ends with {part[-80:]!r}. Pass another "
            "path."
        )
    return part


def _require_same_teacher(path, before, count, write):
    """Raises if most of a teacher's records differ from those of the file.

    Scores are compared, not texts: rounding may change the choice between two
    equally likely targets, but their scores are about equal.

    Args:
        path: Path of the file.
        before: The last records of the file.
        count: Number of records in the file.
        write: `_Teacher`.
    """
    sources = [x.source for x in before]
    now = write(sources, count - len(before))
    unlike = [
        (one, other)
        for one, other in zip(before, now, strict=True)
        if len(one.scores) != len(other.scores)
        # Scores near 0 are mostly rounding errors.
        or not np.allclose(one.scores[:1], other.scores[:1], 0.05, 1e-3)
    ]
    if len(unlike) > len(before) / 2:
        one, other = unlike[-1]
        raise ValueError(
            f"To resume {path}, `distill` needs the same teacher, `num_best` "
            "and `seed` as when it began. Received: a teacher that "
            f"answers {one.source!r:.80} by {other.targets!r:.80} with the "
            f"scores {other.scores!r:.80}, but the file has "
            f"{one.targets!r:.80} with {one.scores!r:.80}. Pass the same "
            "arguments, or another path."
        )


def _lines(sources) -> Iterator[str]:
    """Returns the sources one by one, as strings."""
    if isinstance(sources, (str, os.PathLike)):
        path = pathlib.Path(sources)
        if not path.is_file():
            raise ValueError(
                "`sources` must be lines, or the path of a text file. "
                f"Received: {str(sources)!r:.80}, where there is no file. "
                "Pass a single line in a list of one."
            )
        return _lines_of(path)
    if isinstance(sources, Mapping) or not isinstance(sources, Iterable):
        raise ValueError(_NEEDS_LINES + f" Received: {sources!r:.80}")
    return _strings(sources)


_NEEDS_LINES = (
    "`sources` must be lines of text, or the path of a text file. For other "
    "kinds of sources, call the translator yourself."
)


def _lines_of(path):
    """Yields the lines of a file as `tf.data.TextLineDataset` does."""
    with open(path, "rb") as file:
        for line in file:
            line = line.removesuffix(b"\n").removesuffix(b"\r")
            yield line.decode("utf-8", "replace")


def _strings(sources):
    for number, source in enumerate(sources):
        line = source
        if hasattr(source, "numpy"):  # from a `tf.data.Dataset`
            line = source.numpy()
        if isinstance(line, bytes):
            line = line.decode("utf-8", "replace")
        if not isinstance(line, str):
            raise ValueError(
                f"{_NEEDS_LINES} Received: sources[{number}]={source!r:.80} "
                f"(of type {type(source).__name__})."
            )
        yield str(line)


def _count(sources):
    """Returns the number of sources, or `None` if it is unknown."""
    if isinstance(sources, (str, os.PathLike)):
        return sum(1 for _ in _lines_of(sources))
    try:
        return len(sources)
    except TypeError:  # a generator, or a dataset of unknown size
        return None


def _check(teacher, num_best, batch_size, seed, verbose):
    if isinstance(teacher, keras.Model) or not callable(teacher):
        raise ValueError(
            "The teacher must write text, as a `Translator` does. Received: "
            f"teacher={teacher!r:.80}. Make one: `Translator(model, "
            "source_text, target_text, search)`."
        )
    arguments.positive(num_best, "num_best")
    arguments.positive(batch_size, "batch_size")
    arguments.index(seed, "seed")
    is_shown(verbose)  # refuses other values
    search = getattr(teacher, "search", None)
    most = getattr(search, "num_hypotheses", num_best)
    if num_best > most:
        raise ValueError(
            "The teacher's search must return as many hypotheses as "
            f"`num_best`. Received: num_best={num_best}, with a search of "
            f"num_hypotheses={most}. Make the translator with "
            f"`BeamSearch({max(num_best, 5)}, num_hypotheses={num_best})`."
        )
