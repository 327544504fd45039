"""`PickledWeights`: a file of PyTorch, read without PyTorch.

The file is a zip archive of raw numbers, and of a pickle that assigns them to
weights. A pickle may run any code, so this one is read by an unpickler that
knows tensors and their storages, and refuses every other name.
"""

import collections
import math
import pathlib
import pickle
import zipfile
from typing import Any
from typing import ClassVar
from typing import NamedTuple

import ml_dtypes
import numpy as np

_STORAGES = {
    "FloatStorage": np.dtype("float32"),
    "HalfStorage": np.dtype("float16"),
    "BFloat16Storage": np.dtype(ml_dtypes.bfloat16),
    "DoubleStorage": np.dtype("float64"),
    "LongStorage": np.dtype("int64"),
    "IntStorage": np.dtype("int32"),
    "ShortStorage": np.dtype("int16"),
    "CharStorage": np.dtype("int8"),
    "ByteStorage": np.dtype("uint8"),
    "BoolStorage": np.dtype("bool"),
}


class PickledWeights:
    """The weights in a `pytorch_model.bin`.

    Args:
        path: The file.

    Raises:
        ValueError: If the file is not of this format, or if its pickle names
            anything but tensors.
    """

    def __init__(self, path: pathlib.Path):
        self._path = path
        try:
            self._archive = zipfile.ZipFile(path)
        except (zipfile.BadZipFile, OSError) as error:
            raise ValueError(
                f"`{path.name}` must be a zip archive, as PyTorch writes it "
                f"since 1.6. Received: {path}, which is none: {error}. If it "
                "is older, write it again with PyTorch: `import torch; "
                f"torch.save(torch.load({path.name!r}, weights_only=True), "
                f"{path.name!r})`. If it is small, it may be a pointer of Git "
                "LFS: get it again."
            ) from error
        names = self._archive.namelist()
        pickled = next((x for x in names if x.endswith("/data.pkl")), None)
        if pickled is None:
            raise ValueError(
                f"`{path.name}` must have weights of PyTorch in it. Received: "
                f"a zip archive of {', '.join(names[:5])}."
            )
        self._folder = pickled.removesuffix("data.pkl")
        self._require_order_of_bytes()
        self._tensors = self._read_pickle(pickled)

    def names(self) -> list[str]:
        """Returns the names of the weights."""
        return list(self._tensors)

    def dtype(self, name: str) -> str:
        """Returns the name of a weight's dtype."""
        return self._tensors[name].storage.dtype.name

    def shape(self, name: str) -> tuple:
        """Returns the shape of a weight."""
        return self._tensors[name].shape

    def read(self, name: str, first=0, last=None) -> np.ndarray:
        """Returns a weight, or some of its rows."""
        storage, offset, shape, strides = self._tensors[name]
        place = f"{self._folder}data/{storage.key}"
        if last is not None and strides != _row_by_row(shape):
            return self.read(name)[first:last]
        size = storage.dtype.itemsize
        begin, count = offset * size, -1
        if last is not None:
            shape = last - first, *shape[1:]
            begin, count = begin + strides[0] * first * size, strides[0] * size
            count *= last - first
        try:
            with self._archive.open(place) as file:
                file.seek(begin)
                content = file.read(count)
        except (KeyError, zipfile.BadZipFile, OSError) as error:
            raise ValueError(
                f"The numbers of the weight '{name}' must be in "
                f"`{self._path.name}`. Received: no whole `{place}` in it. Get "
                "the file again."
            ) from error
        numbers = np.frombuffer(content, storage.dtype)
        end = sum(
            (n - 1) * step for n, step in zip(shape, strides, strict=True)
        )
        if 0 not in shape and not 0 <= end < len(numbers):
            raise ValueError(
                f"The weight '{name}' must lie within its numbers. Received: "
                f"{len(numbers)} numbers in `{place}`, and the shape {shape}. "
                "Get the file again."
            )
        return np.lib.stride_tricks.as_strided(
            numbers,
            shape,
            [step * size for step in strides],
            writeable=False,
        )

    def _require_order_of_bytes(self):
        place = f"{self._folder}byteorder"
        if place in self._archive.namelist():
            order = self._archive.read(place)
            if order != b"little":
                raise ValueError(
                    f"`{self._path.name}` must have the low byte of a number "
                    f"first. Received: {order!r:.20}. Write it again on a "
                    "little-endian machine."
                )

    def _read_pickle(self, place):
        with self._archive.open(place) as file:
            try:
                found = _Unpickler(file).load()
            except ValueError:
                raise
            except Exception as error:  # what a broken pickle raises varies
                raise ValueError(
                    f"`{self._path.name}` must have a whole pickle in it. "
                    f"Received: one that cannot be read: {error}. Get the "
                    "file again."
                ) from error
        if not isinstance(found, dict) or not all(
            isinstance(x, str) and isinstance(y, _Tensor)
            for x, y in found.items()
        ):
            raise ValueError(
                f"`{self._path.name}` must have tensors by name. Received: a "
                f"{type(found).__name__} of other things. It must be what "
                "`torch.save(model.state_dict(), ...)` wrote."
            )
        return dict(found)


def _row_by_row(shape):
    """Returns the strides of a tensor whose rows lie one after another."""
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))


class _Storage(NamedTuple):
    key: str
    dtype: np.dtype


class _Tensor(NamedTuple):
    storage: _Storage
    offset: int
    shape: tuple
    strides: tuple


def _tensor(storage, offset, shape, strides, *others) -> _Tensor:
    """Replaces `torch._utils._rebuild_tensor_v2`."""
    whole = all(
        isinstance(x, int) and x >= 0 for x in (offset, *shape, *strides)
    )
    if not isinstance(storage, _Storage) or not whole:
        raise ValueError(
            "A tensor of PyTorch must have a storage, and sizes of at least 0. "
            f"Received: {(storage, offset, shape, strides)!r:.200}"
        )
    return _Tensor(storage, offset, tuple(shape), tuple(strides))


def _parameter(tensor, *others) -> _Tensor:
    """Replaces `torch._utils._rebuild_parameter`."""
    return tensor


_KNOWN: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
    ("torch._utils", "_rebuild_parameter"): _parameter,
    # By name, as a pickle could change an object for the whole process.
    **{("torch", name): name for name in _STORAGES},
}


class _Unpickler(pickle._Unpickler):
    """Knows only tensors, their storages and dictionaries of them.

    It extends the unpickler written in Python, because the one in C does not
    let us replace how it sets an object's state.
    """

    def _without_state(self):
        self.stack.pop()

    dispatch: ClassVar[Any] = {
        **pickle._Unpickler.dispatch,
        pickle.BUILD[0]: _without_state,
    }

    def find_class(self, module, name):
        """Returns the substitute for a name of PyTorch; refuses all others."""
        found = _KNOWN.get((module, name))
        if found is None:
            raise ValueError(
                "A file of weights must name tensors alone, since other names "
                f"in a pickle may run any code. Received: `{module}.{name}`. "
                "Do not open this file elsewhere if you do not know who made "
                "it."
            )
        return found

    def persistent_load(self, pid):
        """Returns the storage that a tensor names."""
        if not (
            isinstance(pid, tuple)
            and len(pid) == 5
            and pid[0] == "storage"
            and isinstance(pid[1], str)
            and pid[1] in _STORAGES
            and isinstance(pid[2], str)
        ):
            raise ValueError(
                "A tensor of PyTorch must name a storage of numbers. "
                f"Received: {pid!r:.200}"
            )
        return _Storage(pid[2], _STORAGES[pid[1]])
