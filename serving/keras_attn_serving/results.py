"""What a client's calls return, and the one exception they raise."""

from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

import grpc
import numpy as np


class Result(dict[str, Any]):
    """Outputs by name: lists of `str` for strings, numpy arrays for numbers.

    Attributes:
        model: Name of the model that answered.
        version: Its version.
        signature: The signature that was run.
    """

    model: str
    version: int
    signature: str

    def __init__(
        self,
        outputs: Mapping[str, Any],
        model: str = "",
        version: int = 0,
        signature: str = "",
    ):
        super().__init__(outputs)
        self.model = model
        self.version = version
        self.signature = signature


class Alignment(NamedTuple):
    """One text's result from the signature `align`, trimmed of its padding.

    Attributes:
        text: The text returned.
        score: Its score.
        source_tokens: What the model read.
        tokens: What it wrote.
        alignment: Array `(tokens, source_tokens)`: where it looked.
        truncated: Whether the text was cut at the export's longest.
        unknown: How many tokens of the text, of those read, were unknown.

    Exports made before keras-attn 0.2 tell neither: there they are `False`
    and 0.
    """

    text: str
    score: float
    source_tokens: list[str]
    tokens: list[str]
    alignment: np.ndarray
    truncated: bool = False
    unknown: int = 0


class TensorSpec(NamedTuple):
    """An input or output: `None` stands for a size or a rank not fixed."""

    dtype: str
    shape: tuple[int | None, ...] | None


class Signature(NamedTuple):
    """What a signature takes and returns, by name."""

    inputs: dict[str, TensorSpec]
    outputs: dict[str, TensorSpec]


class VersionStatus(NamedTuple):
    """State of one version of a model.

    Attributes:
        version: The number of its directory.
        state: `"START"`, `"LOADING"`, `"AVAILABLE"`, `"UNLOADING"` or `"END"`.
        error_code: 0, or the code of the error that ended it.
        error_message: That error's text.
    """

    version: int
    state: str
    error_code: int
    error_message: str


class ServingError(Exception):
    """A call that the server refused or that never reached it.

    Attributes:
        code: The `grpc.StatusCode`.
        message: The server's own words.
    """

    def __init__(self, code: grpc.StatusCode, message: str, hint: str = ""):
        super().__init__(code, message, hint)
        self.code = code
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.code.name}: {self.message}\n{self.hint}".rstrip()


class RowError(ServingError):
    """Rows of a request that cannot be answered; the others were.

    Attributes:
        errors: What is wrong with each bad row, by its number.
        result: The `Result`, with what was found for the others.
    """

    def __init__(self, errors: Mapping[int, str], result: Result):
        said = " ".join(f"Row {row}: {x}" for row, x in errors.items())
        super().__init__(
            grpc.StatusCode.INVALID_ARGUMENT,
            said,
            "The attribute `result` of this error has the answers to the "
            "other rows; `errors` has what is wrong with these.",
        )
        self.errors = dict(errors)
        self.result = result
