"""`Checkpoint`: the weights in a directory, whatever their format."""

import math
from typing import Any

import numpy as np

from keras_attn.models.hugging_face.directory import Directory
from keras_attn.models.hugging_face.weights.h5 import H5Weights
from keras_attn.models.hugging_face.weights.pickled import PickledWeights
from keras_attn.models.hugging_face.weights.safe import SafeWeights

# In the order in which they are looked for; each may be split into shards.
_KINDS: dict[str, Any] = {
    "model.safetensors": SafeWeights,
    "tf_model.h5": H5Weights,
    "pytorch_model.bin": PickledWeights,
}
# What FairSeq left in old files
_NO_WEIGHTS = (
    "encoder.version",
    "decoder.version",
    "encoder.embed_positions._float_tensor",
    "decoder.embed_positions._float_tensor",
)
_PART = 2**20  # numbers that are read at once
_PREFIX = "model."  # of `...ForConditionalGeneration` and `MarianMTModel`


class Checkpoint:
    """The weights in a directory, by their names in PyTorch.

    A weight is read when it is taken, so memory never holds a second copy of
    all weights. Each must be taken once: `left()` names those that were not.

    Args:
        directory: The `Directory`.

    Raises:
        ValueError: If there are no weights, a shard is missing, or a file
            is not of its format.
    """

    def __init__(self, directory: Directory):
        self._where: dict[str, Any] = {}
        for name, path, kind in _files(directory):
            weights = kind(path)
            for given in weights.names():
                own = given.removeprefix(_PREFIX)
                if own in _NO_WEIGHTS:
                    continue
                if own in self._where:
                    raise ValueError(
                        f"A weight must be in one file. Received: '{own}' "
                        f"twice, the second time in {name}."
                    )
                self._where[own] = weights, given
        self._left = {*self._where}

    def __contains__(self, name: str) -> bool:
        return name in self._where

    def take(self, name: str, shape: tuple | None = None) -> np.ndarray:
        """Returns a weight, and marks it as used.

        Args:
            name: Its name in PyTorch, without `model.`.
            shape: Its shape there, or `None` for any.

        Raises:
            ValueError: If it is not there, or has another shape.
        """
        weights, given = self._found(name, shape)
        self._left.discard(name)
        return weights.read(given)

    def parts(self, name: str, shape: tuple):
        """Yields the number of a first row, and the rows from there on.

        Args:
            name: As in `take`.
            shape: As in `take`.
        """
        weights, given = self._found(name, shape)
        self._left.discard(name)
        count = max(1, _PART // max(1, math.prod(shape[1:])))
        for first in range(0, shape[0], count):
            last = min(first + count, shape[0])
            yield first, weights.read(given, first, last)

    def _found(self, name, shape):
        """Returns the file of a weight and its name there."""
        if name not in self._where:
            raise ValueError(
                "Each weight that the model needs must be in its file. "
                f"Received: none named '{name}', but {self._some()}. Is the "
                "file complete, and does it belong to the `config.json` beside "
                "it?"
            )
        weights, given = self._where[name]
        if not weights.dtype(given).startswith(("float", "bfloat")):
            raise ValueError(
                "Weights must be numbers with a point, of 16, 32 or 64 bits. "
                f"Received: '{name}' of dtype {weights.dtype(given)}."
            )
        found = weights.shape(given)
        if shape is not None and found != shape:
            raise ValueError(
                f"By `config.json` the weight '{name}' must have the shape "
                f"{shape}. Received: {found}. Both files must be of the same "
                "model."
            )
        return weights, given

    def left(self) -> list[str]:
        """Returns the names of the weights that were not taken."""
        return sorted(self._left)

    def skip(self, name: str) -> None:
        """Marks a weight that has no effect as used."""
        self._left.discard(name)

    def _some(self):
        names = sorted(self._where)
        more = ", ..." if len(names) > 3 else ""
        return f"{len(names)}: {', '.join(names[:3])}{more}"


def _files(directory):
    """Returns name, path and class of each file with weights."""
    for name, kind in _KINDS.items():
        path = directory.file(name)
        if path is not None:
            return [(name, path, kind)]
        index = directory.json(f"{name}.index.json")
        if index is not None:
            places = index.get("weight_map")
            if not (
                isinstance(places, dict)
                and places
                and all(isinstance(x, str) for x in places.values())
            ):
                raise ValueError(
                    f"`{name}.index.json` must tell the file of each weight. "
                    f"Received: weight_map={places!r:.80}."
                )
            return [
                (x, directory.needed(x, f"`{name}.index.json`"), kind)
                for x in sorted({*places.values()})
            ]
    raise ValueError(
        f"`from_hugging_face` needs weights, {', '.join(_KINDS)} or the shards "
        f"of one of these. Received: {directory.path}, which has "
        f"{directory.listed()}."
    )
