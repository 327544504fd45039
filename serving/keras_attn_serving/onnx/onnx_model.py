"""`OnnxModel`: an ONNX export with the interface of a client."""

import os
import pathlib
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_attn_serving.onnx.requests import Inputs
from keras_attn_serving.onnx.requests import is_integer
from keras_attn_serving.onnx.splitters import Splitter
from keras_attn_serving.onnx.text_file import TextFile
from keras_attn_serving.wire.results import Result
from keras_attn_serving.wire.results import RowError

SIGNATURES = {  # the outputs of each
    "serving_default": ("text", "score", "empty"),
    "nbest": ("texts", "scores", "finished", "empty"),
    "ids": ("ids", "lengths", "scores", "empty"),
}


class OnnxModel:
    """Translates with ONNX Runtime, in the caller's process.

    It reads a directory that `translator.export(..., format="onnx")` wrote, and
    needs neither TensorFlow nor keras_attn, only the extra `onnx`. `predict`
    answers like the `predict` of a `Client`. Several threads may call a model
    at once.

    Args:
        directory: The directory of a version, which contains `model.onnx`; or
            the directory of all versions, of which the newest is used.
        splitters: For texts that are split by your own class: a dictionary from
            the name of that class to an object with the methods `ids(line)` and
            `text(ids)`.
        session: Options of `onnxruntime.InferenceSession`, such as
            `{"providers": ["CUDAExecutionProvider"]}`.

    Attributes:
        directory: The directory of the version.
        session: The `onnxruntime.InferenceSession`.

    Raises:
        FileNotFoundError: If there is no ONNX export.
        ImportError: If a package is not installed.
        ValueError: If a text is split by an unknown class that is not in
            `splitters`, or the files of the export do not fit together.

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
        self.directory = _version_in(pathlib.Path(directory).resolve())
        given = dict(splitters or {})
        self._target = TextFile(self.directory / "target.json", given)
        texts = [
            TextFile(path, given)
            for path in sorted(self.directory.glob("source*.json"))
        ]
        sources = {str(x.input): x for x in texts}
        options: dict[str, Any] = {"providers": ["CPUExecutionProvider"]}
        self.session = onnxruntime.InferenceSession(
            self.directory / "model.onnx", **{**options, **(session or {})}
        )
        inputs = self.session.get_inputs()
        names = {x.name for x in inputs}
        needed = {"ids"} if {"ids", "lengths"} <= names else set()
        if ({*sources} - names) | (needed - {*sources}):
            raise ValueError(
                f"{self.directory} must have the texts of its model. Received: "
                f"a model with the inputs {sorted(names)}, and texts for "
                f"{sorted(sources)}. Export again."
            )
        self._inputs = Inputs(inputs, sources)

    def __repr__(self) -> str:
        return f"OnnxModel({str(self.directory)!r})"

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the inputs that `predict` takes."""
        return self._inputs.names

    def predict(
        self,
        inputs: Any,
        signature: str = "serving_default",
        outputs: Sequence[str] | str | None = None,
        *,
        seed: int | Sequence[int] | None = None,
        batch_size: int = 64,
    ) -> Result:
        """Translates sources.

        Args:
            inputs: A list of texts, each a string or bytes in UTF-8; or a
                dictionary from names of inputs to lists of texts, or to arrays
                of features, `(sources, ...)`.
            signature: `"serving_default"`, which returns `text` and `score`;
                `"nbest"`, which returns `texts`, `scores` and `finished` of all
                hypotheses, best first; or `"ids"`, which returns the target
                `ids`, an array `(sources, hypotheses, length)`, with their
                `lengths` and `scores`. All also return `empty`: whether a
                source has no text.
            outputs: Names of the outputs to return, or one name. Defaults to
                all.
            seed: For a search that samples: an integer, or a list with one for
                each source. Defaults to new seeds in each call.
            batch_size: The most sources that are decoded together. Sources of
                similar length share a batch.

        Returns:
            A `Result`, like that of a client.

        Raises:
            RowError: If rows could not be decoded, or have a text that is
                too long. Its `result` has the answers to the other rows.
            ValueError: If an input is missing, if the signature has no such
                output, or if an argument is invalid.
        """
        if signature not in SIGNATURES:
            raise ValueError(
                f"An ONNX export has the signatures {list(SIGNATURES)}. "
                f"Received: signature={signature!r}. Export a SavedModel for "
                "others."
            )
        if not is_integer(batch_size) or batch_size < 1:
            raise ValueError(
                "`batch_size` must be an integer, at least 1. Received: "
                f"batch_size={batch_size!r}"
            )
        named = [outputs] if isinstance(outputs, str) else outputs
        unknown = [x for x in named or () if x not in SIGNATURES[signature]]
        if unknown:
            raise ValueError(
                f"The signature '{signature}' has the outputs "
                f"{list(SIGNATURES[signature])}. Received: outputs={outputs!r}."
            )
        rows = self._inputs.read(inputs)
        seeds = self._inputs.seeds(seed, rows.count)
        batches = rows.batches(int(batch_size))
        found = [self._run(rows, seeds, x) for x in batches or [[]]]
        places = np.argsort([i for batch in batches for i in batch])
        computed = [
            np.concatenate(parts)[places.astype(int)]
            for parts in zip(*found, strict=True)
        ]
        return self._result(signature, named, rows, *computed)

    def _run(self, rows, seeds, batch):
        """Returns the model's outputs for some of the rows."""
        feed = rows.take(batch)
        if seeds is not None:
            feed["seed"] = seeds[batch]
        return self.session.run(_OUTPUTS, feed)

    def _result(self, signature, wanted, rows, ids, lengths, scores, errors):
        bad = {i: str(x) for i, x in enumerate(errors) if x} | rows.errors
        wrong = [*rows.errors]
        ids[wrong], lengths[wrong], scores[wrong] = 0, 0, -np.inf
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
            last = np.maximum(lengths - 1, 0)[..., None]
            last = np.take_along_axis(ids, last, axis=2)[..., 0]
            named["finished"] = (last == self._target.end) & (lengths > 0)
        if signature == "serving_default":
            best = [row[0] for row in texts]
            named = {"text": best, "score": scores[:, 0]}
        named["empty"] = rows.empty()
        if wanted:
            named = {name: named[name] for name in wanted}
        version = self.directory.name
        result = Result(
            named,
            self.directory.parent.name,
            int(version) if version.isdigit() else 0,
            signature,
        )
        if bad:
            raise RowError(dict(sorted(bad.items())), result)
        return result


_OUTPUTS = ["target_ids", "target_lengths", "scores", "error"]


def _version_in(directory):
    """Returns the directory of a version: this one, or its newest."""
    if (directory / "model.onnx").is_file():
        if not (directory / "target.json").is_file():
            raise FileNotFoundError(
                f"{directory} has a model but no `target.json`, which maps its "
                "ids to text. Copy the whole directory of the export."
            )
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
    return _version_in(max(versions, key=lambda x: int(x.name)))
