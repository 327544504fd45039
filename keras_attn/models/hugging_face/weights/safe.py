"""`SafeWeights`: a file in the format of safetensors."""

import pathlib

import numpy as np

_DTYPES = {
    "F16": "float16",
    "BF16": "bfloat16",
    "F32": "float32",
    "F64": "float64",
}


class SafeWeights:
    """The weights in a `.safetensors` file.

    Args:
        path: The file.

    Raises:
        ImportError: If the package `safetensors` is not installed.
        ValueError: If the file is not of this format.
    """

    def __init__(self, path: pathlib.Path):
        try:
            import safetensors
        except ImportError as error:
            raise ImportError(
                f"{path.name} needs the package `safetensors`. Install it "
                'with `pip install "keras-attn[hugging-face]"`.'
            ) from error
        try:
            self._file = safetensors.safe_open(str(path), framework="numpy")
        except (safetensors.SafetensorError, OSError) as error:
            raise ValueError(
                f"`{path.name}` must be a file of safetensors. Received: "
                f"{path}, which is not, or is cut off: {error}. If it is "
                "small, it may be a pointer of Git LFS: get it again."
            ) from error

    def names(self) -> list[str]:
        """Returns the names of the weights."""
        return list(self._file.keys())

    def dtype(self, name: str) -> str:
        """Returns the name of a weight's dtype."""
        own = self._file.get_slice(name).get_dtype()
        return _DTYPES.get(own, own)

    def shape(self, name: str) -> tuple:
        """Returns the shape of a weight."""
        return tuple(self._file.get_slice(name).get_shape())

    def read(self, name: str, first=0, last=None) -> np.ndarray:
        """Returns a weight, or some of its rows."""
        if last is None:
            return self._file.get_tensor(name)
        return self._file.get_slice(name)[first:last]
