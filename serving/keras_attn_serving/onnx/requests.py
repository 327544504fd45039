"""`Inputs` and `Rows`: a caller's sources as inputs of an ONNX model."""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_attn_serving.onnx.text_file import TextFile
from keras_attn_serving.onnx.text_file import TooLong

_MOST = 2**31  # seeds are int32


class Inputs:
    """Reads a caller's arguments as the inputs of a model.

    Args:
        inputs: The inputs of the session, as ONNX Runtime lists them.
        sources: The `TextFile` of each input that takes ids, by its name.

    Attributes:
        names: The names of the inputs that a caller passes.
        draws: Whether the model takes seeds.
    """

    def __init__(self, inputs, sources: Mapping[str, TextFile]):
        self._specs = {x.name: (_DTYPES[x.type], x.shape) for x in inputs}
        self._sources = sources
        # A model that reads one text takes `ids`, which a caller calls `text`.
        self._reads_one = [*sources] == ["ids"]
        seed = self._specs.get("seed")
        self.draws = seed is not None and len(seed[1]) == 1
        own = {"seed"} if self.draws else set()
        own |= {"lengths"} if self._reads_one else set()
        self.names = tuple(
            "text" if self._reads_one and name == "ids" else name
            for name in self._specs
            if name not in own
        )

    def read(self, given: Any) -> "Rows":
        """Returns a caller's inputs as rows.

        Raises:
            ValueError: If an input is missing, or of the wrong type or shape.
        """
        if not isinstance(given, Mapping):
            if len(self.names) != 1:
                raise ValueError(
                    f"This model has the inputs {list(self.names)}. Received: "
                    f"{type(given).__name__}. Pass a dictionary from these "
                    "names to lists or arrays."
                )
            given = {self.names[0]: given}
        if {*given} != {*self.names}:
            raise ValueError(
                f"This model has the inputs {list(self.names)}. Received: "
                f"{list(given)}."
            )
        texts: dict[str, list] = {}
        features: dict[str, np.ndarray] = {}
        errors: dict[int, str] = {}
        for name, x in given.items():
            key = "ids" if self._reads_one else name
            if key in self._sources:
                texts[key] = self._ids(name, x, self._sources[key], errors)
            else:
                features[key] = self._features(name, x)
        counts = {name: len(x) for name, x in (texts | features).items()}
        if len({*counts.values()}) != 1:
            raise ValueError(
                "Every input must have a row for each source. Received: "
                f"{counts} rows."
            )
        count = next(iter(counts.values()))
        return Rows(texts, features, errors, count, self._sources)

    def _ids(self, name, given, text, errors):
        found = []
        for i, line in enumerate(_lines(name, given)):
            try:
                found.append(text.source_ids(line))
            except TooLong as error:  # the other rows are answered
                errors.setdefault(i, str(error))
                found.append(text.source_ids(""))
        return found

    def _features(self, name, given):
        dtype, shape = self._specs[name]
        sizes = [x if isinstance(x, int) else None for x in shape]
        needed = f"{np.dtype(dtype)} of shape {_shown(sizes)}"
        try:
            found = np.asarray(given)
        except ValueError as error:
            raise ValueError(
                f"`{name}` must be an array, {needed}. Received: rows of "
                "different shapes. Pad them, or pass each in a call by itself."
            ) from error
        if found.size == 0 and len(found.shape) <= 1:
            found = np.zeros([0, *(x or 1 for x in sizes[1:])], dtype)
        fits = len(found.shape) == len(sizes) and all(
            size == wanted if wanted else size
            for size, wanted in zip(found.shape[1:], sizes[1:], strict=True)
        )
        if not fits or not _same(found, dtype):
            raise ValueError(
                f"`{name}` must be an array, {needed}. Received: {found.dtype} "
                f"of shape {found.shape}. Convert it without changing its "
                "values."
            )
        return found.astype(dtype)

    def seeds(self, seed, count: int):
        """Returns a seed for each source, or `None` if it does not sample."""
        if not self.draws:
            if seed is not None:
                raise ValueError(
                    "`seed` needs a search that draws. Received: "
                    f"seed={seed!r}. Leave it out."
                )
            return None
        if seed is None or _is_seed(seed):
            random = np.random.default_rng(seed)
            return random.integers(_MOST, size=count, dtype=np.int32)
        if (
            isinstance(seed, (str, bytes))
            or not hasattr(seed, "__len__")
            or len(seed) != count
            or not all(map(_is_seed, seed))
        ):
            raise ValueError(
                "`seed` must be an integer from 0 to 2**31 - 1, or a list with "
                f"one for each source. Received: seed={seed!r:.80} for {count} "
                "source(s)."
            )
        return np.array(list(seed), np.int32)


class Rows:
    """Sources as rows.

    Args:
        texts: Lists of ids, by the names of inputs.
        features: Arrays, by the names of inputs.
        errors: What is wrong with a row, by its number. Such a row has the ids
            of an empty text.
        count: Number of rows.
        sources: The `TextFile` of each of the texts, by the same names.
    """

    def __init__(self, texts, features, errors, count: int, sources):
        self._texts, self._features = texts, features
        self.errors: dict[int, str] = errors
        self.count, self._sources = count, sources

    def batches(self, size: int) -> list[list[int]]:
        """Returns batches of row numbers, of rows of similar length."""
        order = sorted(range(self.count), key=self._length)
        return [order[i : i + size] for i in range(0, self.count, size)]

    def _length(self, i):
        return max((len(x[i]) for x in self._texts.values()), default=0)

    def take(self, batch: list[int]) -> dict:
        """Returns the tensors of some rows, by the names of inputs."""
        found: dict[str, Any] = {
            name: x[batch] for name, x in self._features.items()
        }
        for name, every in self._texts.items():
            some = [every[i] for i in batch]
            lengths = np.array([len(x) for x in some], np.int32)
            shape = len(some), max(lengths, default=0)
            ids = np.full(shape, self._sources[name].pad, np.int32)
            for row, x in zip(ids, some, strict=True):
                row[: len(x)] = x
            found[name] = ids
            if [*self._sources] == ["ids"]:
                found["lengths"] = lengths
        return found

    def empty(self) -> np.ndarray:
        """Returns whether each row has no text in any source, `(rows,)`."""
        rows = [
            [len(x) == self._sources[name].around for x in every]
            for name, every in self._texts.items()
        ]
        found = np.all(rows, axis=0) if rows else np.zeros(self.count, bool)
        wrong = np.isin(np.arange(self.count), [*self.errors])
        return found & ~wrong


_DTYPES = {
    "tensor(int32)": np.int32,
    "tensor(int64)": np.int64,
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(double)": np.float64,
    "tensor(bool)": np.bool_,
    "tensor(uint8)": np.uint8,
    "tensor(int8)": np.int8,
    "tensor(uint16)": np.uint16,
    "tensor(int16)": np.int16,
}


def is_integer(given) -> bool:
    """Returns whether an argument is an integer and not a bool."""
    return isinstance(given, (int, np.integer)) and not isinstance(given, bool)


def _is_seed(given):
    return is_integer(given) and 0 <= given < _MOST


def _same(found, dtype):
    """Returns whether an array keeps its values in another dtype."""
    kind = np.dtype(dtype).kind
    if kind == "f":  # rounding is no loss
        return found.dtype.kind in "fiub"
    if kind == "b":
        return found.dtype.kind == "b"
    if found.dtype.kind not in "iub":
        return False
    return bool((found.astype(dtype) == found).all())


def _shown(sizes):
    named = ["batch", *("any" if x is None else str(x) for x in sizes[1:])]
    return f"({', '.join(named)})"


def _lines(name, given) -> Sequence[str]:
    if (
        isinstance(given, (str, bytes))
        or not hasattr(given, "__len__")
        or np.asarray(given, object).ndim != 1
    ):
        raise ValueError(
            f"`{name}` must be a list of texts. Received: {given!r:.80}. For "
            "one text pass a list of one."
        )
    for x in given:
        if not isinstance(x, (str, bytes)):
            raise ValueError(
                f"`{name}` must be strings, or bytes in UTF-8. Received: "
                f"{x!r:.80} (of type {type(x).__name__})."
            )
    return [
        x if isinstance(x, str) else x.decode("utf-8", "replace") for x in given
    ]
