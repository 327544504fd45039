"""The results of a client's calls, and the exceptions they raise."""

from collections.abc import Mapping
from collections.abc import Sequence
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
    """One text's result from the signature `align`, without padding.

    Attributes:
        text: The text returned.
        score: Its score.
        source_tokens: The tokens that the model read.
        tokens: The tokens that it wrote.
        alignment: Attention weights, an array `(tokens, source_tokens)`.
        truncated: Whether the source was cut at the export's maximum length.
        unknown: Number of unknown source tokens, among those read.
        empty: Whether the source has no tokens, so that the model made up the
            text.
        missing: Requested terms that the text lacks.
        finished: `False` if the text was cut at the search's maximum length,
            `None` if the export does not say.

    Exports made before keras-attn 0.2 do not return `truncated` and `unknown`,
    and those made by 0.3 or earlier do not return `empty`. The values are
    `False` and 0 then.
    """

    text: str
    score: float
    source_tokens: list[str]
    tokens: list[str]
    alignment: np.ndarray
    truncated: bool = False
    unknown: int = 0
    empty: bool = False
    missing: Sequence[str] = ()
    finished: bool | None = None


class Word(NamedTuple):
    """A word of a transcript, with its time."""

    text: str
    start: float  # seconds from the beginning of the sound
    end: float
    probability: float  # the mean of its tokens'


class Transcript(NamedTuple):
    """One sound's result from the signature `words`.

    Attributes:
        text: The text, with timestamps if the model writes them.
        score: Its score.
        words: Its `Word`s with their times.
        no_speech: The probability that nobody speaks.
        prompt: The tokens before the text. As the prefix of a later request,
            they select the same language and task.
        truncated: Whether the sound was cut at the export's maximum length.
        empty: Whether there is no sound, so that the model made up the text.
        finished: `False` if the text was cut at the search's maximum length,
            `None` if the export does not say.
    """

    text: str
    score: float
    words: list[Word]
    no_speech: float
    prompt: str = ""
    truncated: bool = False
    empty: bool = False
    finished: bool | None = None


class Token(NamedTuple):
    """A token of a stream."""

    text: str  # the token's addition to the text so far
    id: int  # its number in the model's target vocabulary
    log_probability: float
    alignment: np.ndarray  # weights of the source's tokens, `(source,)`


class TensorSpec(NamedTuple):
    """An input or output; `None` stands for a size or rank not fixed."""

    dtype: str
    shape: tuple[int | None, ...] | None


class Signature(NamedTuple):
    """The inputs and outputs of a signature, by name."""

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
    """A call that the server refused, or that did not reach it.

    Attributes:
        code: The `grpc.StatusCode`.
        message: The server's own words.
        hint: A remedy, "" if none is known.
    """

    def __init__(self, code: grpc.StatusCode, message: str, hint: str = ""):
        super().__init__(code, message, hint)
        self.code = code
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.code.name}: {self.message}\n{self.hint}".rstrip()


class RowError(ServingError):
    """Some rows of a request could not be answered.

    Attributes:
        errors: The error of each bad row, by its number.
        result: The `Result`, with the answers to the other rows.
    """

    def __init__(self, errors: Mapping[int, str], result: Result):
        said = " ".join(f"Row {row}: {x}" for row, x in errors.items())
        super().__init__(
            grpc.StatusCode.INVALID_ARGUMENT,
            said,
            "The attribute `result` of this error has the answers to the "
            "other rows; `errors` has the error of each bad row.",
        )
        self.errors = dict(errors)
        self.result = result

    def __reduce__(self):  # so that processes can send it to each other
        return RowError, (self.errors, self.result)


def strings(name: str, array: np.ndarray) -> list:
    """Returns an output of strings as nested lists.

    Args:
        name: Its name. If it ends in `_bytes` the items stay `bytes`, as in
            TensorFlow Serving's REST.
        array: Object array of `bytes`.
    """
    if name.endswith("_bytes"):
        return array.tolist()
    texts = np.empty(array.size, dtype=object)
    texts[:] = [item.decode("utf-8", "replace") for item in array.reshape(-1)]
    return texts.reshape(array.shape).tolist()
