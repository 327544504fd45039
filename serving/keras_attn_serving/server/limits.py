"""`Limits`: the size limits of requests to the development server."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING
from typing import Any
from typing import NamedTuple

import numpy as np

from keras_attn_serving.server.errors import invalid_argument
from keras_attn_serving.wire import protocol

if TYPE_CHECKING:  # it imports TensorFlow, which --help does not need
    from keras_attn_serving.server.signatures import Tensor


class Limits(NamedTuple):
    """Limits that no single request can exceed.

    TensorFlow Serving has none of them. There, a message of 40 bytes can
    declare a tensor of a gigabyte, filled with its one value.

    The default of `elements` is 128 rows of 1,000, the most tokens of a text
    that an export reads by default. With the network of the README's tour, such
    a request took 1.5 GB.

    Attributes:
        rows: Most rows of a request, for inputs with a row for each text.
        text_bytes: Most bytes of a string.
        elements: Most elements of an input: its number of rows times the length
            of the longest row, in steps, or in bytes for texts. All calls that
            run at the same time share this limit; see `Room`.
        message_bytes: Most bytes of a message, and of a tensor when decoded.
        answer_bytes: Most bytes of an answer.
        run_seconds: Seconds after which a run is cancelled, whatever the
            client's deadline.
        queued_calls: Most calls that wait for a thread, and most that wait for
            `Room`. Together they may have four times `message_bytes`.
    """

    rows: int = 128
    text_bytes: int = 16 * 1024
    elements: int = 128_000
    message_bytes: int = 16 * 1024**2
    answer_bytes: int = 16 * 1024**2
    run_seconds: float = 60.0
    queued_calls: int = 256

    def require_header(self, alias: str, tensor: Any, wanted: "Tensor") -> None:
        """Checks a `TensorProto` before it is decoded.

        Args:
            alias: Name of the input.
            tensor: A `TensorProto` of the wanted dtype and rank.
            wanted: The input, as the signature describes it.

        Raises:
            StatusError: If it has too many rows, elements or bytes.
        """
        sizes = [dim.size for dim in tensor.tensor_shape.dim]
        self.require_rows(alias, sizes, wanted)
        self.require_elements(alias, sizes, wanted)
        kind = protocol.KINDS[tensor.dtype]
        size = 8 if kind.stored is None else kind.stored.itemsize
        if math.prod(sizes) * size > self.message_bytes:
            raise invalid_argument(
                f'Input "{alias}" may have at most {self.message_bytes} bytes. '
                f"Received: shape {sizes} of {kind.name}. Send it in several "
                "requests, or start the server with a larger "
                "--max_message_bytes."
            )

    def require_array(
        self, alias: str, array: np.ndarray, wanted: "Tensor"
    ) -> None:
        """Raises `StatusError` if an array is too large in any way."""
        self.require_rows(alias, array.shape, wanted)
        self.require_elements(alias, array.shape, wanted)
        self.require_texts(alias, array)

    def require_rows(
        self, alias: str, sizes: Sequence[int], wanted: "Tensor"
    ) -> None:
        """Raises `StatusError` if a shape has too many rows."""
        by_rows = wanted.shape is not None and wanted.shape[:1] == (None,)
        if by_rows and len(sizes) and sizes[0] > self.rows:
            raise invalid_argument(
                f'Input "{alias}" may have at most {self.rows} rows. Received: '
                f"{sizes[0]}. Send them in several requests, or start the "
                "server with a larger --max_rows."
            )

    def require_elements(
        self, alias: str, sizes: Sequence[int], wanted: "Tensor"
    ) -> None:
        """Raises `StatusError` if a shape has too many elements."""
        elements = math.prod(open_sizes(sizes, wanted))
        if elements > self.elements:
            raise invalid_argument(
                f'Input "{alias}" may have at most {self.elements} elements, '
                "its rows times the longest row. Received: shape "
                f"{list(sizes)}. Send it in several requests, or start the "
                "server with a larger --max_elements."
            )

    def require_answer(self, size: int) -> None:
        """Raises `StatusError` if an answer has too many bytes.

        It is INVALID_ARGUMENT, as for any other request that is too large:
        after RESOURCE_EXHAUSTED clients would try again in vain.
        """
        if size > self.answer_bytes:
            raise invalid_argument(
                f"An answer may have at most {self.answer_bytes} bytes. This "
                f"one would have up to {size}. Send fewer texts per request, "
                "or start the server with a larger --max_answer_bytes."
            )

    def require_texts(self, alias: str, array: np.ndarray) -> None:
        """Raises `StatusError` if strings are too long, alone or together."""
        if array.dtype != object:
            return
        lengths = list(map(len, array.reshape(-1)))
        longest, total = max(lengths, default=0), sum(lengths)
        if total > self.message_bytes:
            raise invalid_argument(
                f'The texts of input "{alias}" may have at most '
                f"{self.message_bytes} bytes together. Received: {total} "
                "bytes. Send them in several requests, or start the server "
                "with a larger --max_message_bytes."
            )
        if longest > self.text_bytes:
            raise invalid_argument(
                f'A text of input "{alias}" may have at most '
                f"{self.text_bytes} bytes. Received: {longest} bytes. Split "
                "it, or start the server with a larger --max_text_bytes."
            )
        if elements_of_texts(array) > self.elements:
            raise invalid_argument(
                f'Input "{alias}" may have at most {self.elements} elements, '
                "its rows times the bytes of the longest. Received: "
                f"{len(array)} rows, a text of {longest} bytes. Send it in "
                "several requests, or start the server with a larger "
                "--max_elements."
            )


def open_sizes(sizes: Sequence[int], wanted: "Tensor") -> list[int]:
    """Returns the sizes of a shape that a signature leaves open."""
    if wanted.shape is None or len(wanted.shape) != len(sizes):
        return list(sizes)
    pairs = zip(sizes, wanted.shape, strict=True)
    return [size for size, fixed in pairs if fixed is None]


def elements_of_texts(array: np.ndarray) -> int:
    """Returns the number of rows times the bytes of the longest row."""
    if not array.size:
        return 0
    lengths = np.array(list(map(len, array.reshape(-1))))
    rows = lengths.reshape(len(array) if array.ndim else 1, -1).sum(axis=1)
    return len(rows) * int(rows.max())


def longest_row(array: np.ndarray, wanted: "Tensor") -> int:
    """Returns the elements of the longest row of an array."""
    elements = math.prod(open_sizes(array.shape, wanted))
    if array.dtype == object:
        elements = max(elements, elements_of_texts(array))
    return elements // max((1, *array.shape[:1]))
