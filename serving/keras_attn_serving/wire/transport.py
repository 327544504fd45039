"""`Transport`: carries a client's calls, by gRPC or by REST.

The methods of a client are written once, in `queries`, as coroutines. They call
a transport, which knows a protocol and nothing about texts. The coroutines of a
blocking transport never suspend, so `run_now` can run them without an event
loop; those of `AsyncClient` run in one.
"""

import abc
from collections.abc import Coroutine
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple
from typing import TypeVar

import grpc
import numpy as np

from keras_attn_serving.wire.results import Result
from keras_attn_serving.wire.results import ServingError
from keras_attn_serving.wire.results import Signature
from keras_attn_serving.wire.results import VersionStatus

_Answer = TypeVar("_Answer")

# Bytes of an answer. JSON of this size becomes half a gigabyte of numbers in
# Python.
MAX_ANSWER_BYTES = 64 * 1024**2


class ModelSpec(NamedTuple):
    """The model that a call is for."""

    name: str
    version: int | str | None  # a number, a label, or the newest


class Metadata(NamedTuple):
    """The signatures of one version of a model."""

    version: int
    signatures: dict[str, Signature]


class Transport(abc.ABC):
    """Carries calls to one server.

    Every method raises `ServingError` if the server refuses or cannot be
    reached, without a hint. `timeout` is in seconds, `None` for no limit.

    Attributes:
        address: Where the server is, for messages.
    """

    address: str

    @abc.abstractmethod
    async def predict(
        self,
        spec: ModelSpec,
        signature: str,
        inputs: Mapping[str, np.ndarray],
        outputs: Sequence[str],
        timeout: float | None,
    ) -> Result:
        """Runs a signature; without `outputs`, returns all of them."""

    @abc.abstractmethod
    async def metadata(
        self, spec: ModelSpec, timeout: float | None
    ) -> Metadata:
        """Returns the signatures of a model."""

    @abc.abstractmethod
    async def status(
        self, spec: ModelSpec, timeout: float | None
    ) -> list[VersionStatus]:
        """Returns the states of a model's versions."""

    @abc.abstractmethod
    async def ready(self, timeout: float | None) -> None:
        """Returns when the server accepts connections."""

    @abc.abstractmethod
    async def sleep(self, seconds: float) -> None:
        """Returns after some seconds."""

    @abc.abstractmethod
    async def close(self) -> None:
        """Closes the connection."""


def too_large(received: Any, most: Any) -> ServingError:
    """Returns the error of an answer that is too large to be read.

    `row_parts` recognises its words, and then sends fewer texts.

    Args:
        received: How large it is.
        most: How large it may be.
    """
    return ServingError(
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        f"An answer may have at most {most}. Received: {received}. Send fewer "
        "texts a request, or give the client a larger `max_answer_bytes`.",
    )


def run_now(coroutine: Coroutine[Any, Any, _Answer]) -> _Answer:
    """Runs a coroutine that never suspends, and returns its result."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    coroutine.close()
    raise RuntimeError("A blocking transport must not suspend.")


def require_answer_bytes(most: Any) -> int:
    """Returns the most bytes of an answer; checks a client's argument.

    Raises:
        ValueError: If it is not a positive integer.
    """
    if isinstance(most, bool) or not isinstance(most, int) or most < 1:
        raise ValueError(
            "`max_answer_bytes` must be the most bytes of an answer, a whole "
            f"number from 1. Received: max_answer_bytes={most!r}"
        )
    return min(most, 2**31 - 1)  # gRPC's largest
