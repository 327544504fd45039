"""`OnnxModel`: an ONNX export that is called as a server's client is."""

import os
import pathlib
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_attn_serving.onnx.splitters import Splitter
from keras_attn_serving.onnx.text_file import TextFile
from keras_attn_serving.wire.results import Result
from keras_attn_serving.wire.results import RowError

SIGNATURES = "serving_default", "nbest", "ids"


class OnnxModel:
    """Translates by ONNX Runtime, in the caller's process.

    It reads a directory that `translator.export(..., format="onnx")` wrote,
    and needs neither TensorFlow nor keras_attn, only the extra `onnx`. Its
    answers are those of a `Client`. Several threads may call a model at once.

    Args:
        directory: The directory of a version, with `model.onnx`; or the one
            of all versions, of which the newest is taken.
        splitters: For texts that are split by a class of your own: an object
            with `ids(line)` and `text(ids)`, by the name of that class.
        session: Options of `onnxruntime.InferenceSession`, such as
            `{"providers": ["CUDAExecutionProvider"]}`.

    Attributes:
        directory: The directory of the version.
        session: The `onnxruntime.InferenceSession`.

    Raises:
        FileNotFoundError: If there is no ONNX export.
        ImportError: If a package is not installed.
        ValueError: If a text is split by a class that is not known.

    Example:
        ```python
        model = OnnxModel("models/pronounce-onnx")
        model.predict(["attention"])["text"]
        ```
    """

    def __init__(
        self,
        directory: str | os.PathLike,
        splitters: Mapping[str, Splitter] | None = None,
        session: Mapping[str, Any] | None = None,
    ):
        try:
            import onnxruntime
        except ImportError as error:
            raise ImportError(
                "`OnnxModel` needs ONNX Runtime: `pip install "
                "'keras-attn-serving[onnx]'`."
            ) from error
        self.directory = _version_in(pathlib.Path(directory))
        self._target, *texts = (
            TextFile(path, splitters or {})
            for name in ("target", "source*")
            for path in sorted(self.directory.glob(f"{name}.json"))
        )
        self._sources = {str(x.input): x for x in texts}
        options: dict[str, Any] = {"providers": ["CPUExecutionProvider"]}
        self.session = onnxruntime.InferenceSession(
            self.directory / "model.onnx", **{**options, **(session or {})}
        )
        self._inputs = {
            x.name: _DTYPES[x.type] for x in self.session.get_inputs()
        }

    def __repr__(self) -> str:
        return f"OnnxModel({str(self.directory)!r})"

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the inputs that `predict` takes."""
        reads_one_text = [*self._sources] == ["ids"]
        return tuple(
            "text" if name == "ids" and reads_one_text else name
            for name in self._inputs
            if name != "seed" and not (name == "lengths" and reads_one_text)
        )

    def predict(
        self,
        inputs: Any,
        signature: str = "serving_default",
        *,
        seed: int | Sequence[int] | None = None,
        batch_size: int = 64,
    ) -> Result:
        """Translates sources.

        Args:
            inputs: A list of texts; or a dictionary from names of inputs to
                lists of texts, or to arrays of features, with a row for each
                source.
            signature: `"serving_default"`, which returns `text` and `score`;
                `"nbest"`, which returns `texts` and `scores` of all
                hypotheses, best first; or `"ids"`, which returns the ids that
                the model wrote, their `lengths` and `scores`.
            seed: For a search that draws: an integer, or a list with one for
                each source. Defaults to new ones in each call.
            batch_size: Most sources that are decoded together. Those of
                similar length are.

        Returns:
            A `Result`, as of a client.

        Raises:
            RowError: If rows could not be decoded. Its `result` has the
                others.
            ValueError: If an input is missing, or wrong.
        """
        if signature not in SIGNATURES:
            raise ValueError(
                f"An ONNX export has the signatures {list(SIGNATURES)}. "
                f"Received: signature={signature!r}. Export a SavedModel for "
                "others."
            )
        if isinstance(batch_size, bool) or not int(batch_size) >= 1:
            raise ValueError(
                "`batch_size` must be an integer, at least 1. Received: "
                f"batch_size={batch_size!r}"
            )
        rows = self._read(inputs)
        count = len(next(iter(rows.values())))
        seeds = self._seeds(seed, count)
        order = sorted(range(count), key=lambda i: self._length(rows, i))
        batches = [
            order[i : i + batch_size] for i in range(0, count, batch_size)
        ]
        found = [self._run(rows, seeds, x) for x in batches or [[]]]
        places = np.argsort([i for batch in batches for i in batch])
        outputs = [
            np.concatenate(parts)[places.astype(int)]
            for parts in zip(*found, strict=True)
        ]
        return self._result(signature, *outputs)

    def _read(self, inputs):
        """Returns rows of ids or features by the names of inputs."""
        if not isinstance(inputs, Mapping):
            if len(self.inputs) != 1:
                raise ValueError(
                    f"This model has the inputs {list(self.inputs)}. "
                    f"Received: {type(inputs).__name__}. Pass a dictionary "
                    "from these names to lists or arrays."
                )
            inputs = {self.inputs[0]: inputs}
        if set(inputs) != set(self.inputs):
            raise ValueError(
                f"This model has the inputs {list(self.inputs)}. Received: "
                f"{list(inputs)}."
            )
        rows = {}
        for name, given in inputs.items():
            name = "ids" if name == "text" and "ids" in self._sources else name
            if name in self._sources:
                text = self._sources[name]
                rows[name] = [text.source_ids(x) for x in _texts(name, given)]
            else:
                rows[name] = np.asarray(given, self._inputs[name])
        if len({len(x) for x in rows.values()}) != 1:
            raise ValueError(
                "Every input must have a row for each source. Received: "
                f"{ {name: len(x) for name, x in rows.items()} } rows."
            )
        return rows

    def _seeds(self, seed, count):
        if "seed" not in self._inputs:
            if seed is not None:
                raise ValueError(
                    "`seed` needs a search that draws. Received: "
                    f"seed={seed!r}. Leave it out."
                )
            return None
        if seed is None or np.ndim(seed) == 0:
            random = np.random.default_rng(seed)
            return random.integers(2**31, size=count, dtype=np.int32)
        seeds = np.asarray(seed, np.int32)
        if seeds.shape != (count,):
            raise ValueError(
                "`seed` must be an integer, or a list with one for each "
                f"source. Received: {len(seeds)} for {count} source(s)."
            )
        return seeds

    def _length(self, rows, i):
        return max((len(rows[x][i]) for x in self._sources), default=0)

    def _run(self, rows, seeds, batch):
        """Returns the model's outputs for some of the rows."""
        feed: dict[str, Any] = {}
        for name, given in rows.items():
            if name not in self._sources:
                feed[name] = given[batch]
                continue
            some = [given[i] for i in batch]
            lengths = np.array([len(x) for x in some], np.int32)
            shape = len(some), max(lengths, default=0)
            ids = np.full(shape, self._sources[name].pad, np.int32)
            for row, x in zip(ids, some, strict=True):
                row[: len(x)] = x
            feed[name] = ids
            if "lengths" in self._inputs and name == "ids":
                feed["lengths"] = lengths
        if seeds is not None:
            feed["seed"] = seeds[batch]
        return self.session.run(_OUTPUTS, feed)

    def _result(self, signature, ids, lengths, scores, errors):
        named: dict[str, Any] = {"ids": ids, "lengths": lengths}
        named["scores"] = scores
        if signature != "ids":
            texts = [
                [
                    self._target.text(x[:length])
                    for x, length in zip(row, many, strict=True)
                ]
                for row, many in zip(ids, lengths, strict=True)
            ]
            named = {"texts": texts, "scores": scores}
        if signature == "serving_default":
            best = [row[0] for row in texts]
            named = {"text": best, "score": scores[:, 0]}
        version = self.directory.name
        result = Result(
            named,
            self.directory.parent.name,
            int(version) if version.isdigit() else 0,
            signature,
        )
        if bad := {i: str(x) for i, x in enumerate(errors) if x}:
            raise RowError(bad, result)
        return result


_OUTPUTS = ["target_ids", "target_lengths", "scores", "error"]
_DTYPES = {
    "tensor(int32)": np.int32,
    "tensor(int64)": np.int64,
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(double)": np.float64,
    "tensor(bool)": np.bool_,
    "tensor(uint8)": np.uint8,
}


def _version_in(directory):
    """Returns the directory of a version: this one, or its newest."""
    if (directory / "model.onnx").is_file():
        return directory
    found = [x.parent for x in directory.glob("*/model.onnx")]
    versions = [x for x in found if x.name.isdigit()]
    if not versions:
        raise FileNotFoundError(
            "`OnnxModel` needs the directory of an ONNX export, with "
            f"`model.onnx`. Received: directory={str(directory)!r}, where "
            "there is none. `translator.export(directory, format='onnx')` "
            "writes one."
        )
    return max(versions, key=lambda x: int(x.name))


def _texts(name, given):
    if isinstance(given, (str, bytes)) or not hasattr(given, "__len__"):
        raise ValueError(
            f"`{name}` must be a list of texts. Received: {given!r:.80}. For "
            "one text pass a list of one."
        )
    for x in given:
        if not isinstance(x, str):
            raise ValueError(
                f"`{name}` must be strings. Received: {x!r:.80} (of type "
                f"{type(x).__name__})."
            )
    return given
