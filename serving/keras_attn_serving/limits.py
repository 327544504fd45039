"""`Limits`: what a request may ask of the development server."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING
from typing import Any
from typing import NamedTuple

import numpy as np

from keras_attn_serving import protocol
from keras_attn_serving.errors import invalid_argument

if TYPE_CHECKING:  # it imports TensorFlow, which --help does not need
    from keras_attn_serving.signatures import Tensor


class Limits(NamedTuple):
    """Limits that no single request can pass.

    TensorFlow Serving has none of them. A message of 40 bytes can declare a
    tensor of a gigabyte there, which its one value fills.

    Attributes:
        rows: Most rows of a request, for inputs with a row for each text.
        text_bytes: Most bytes of a string.
        message_bytes: Most bytes of a message, and of a tensor when decoded.
        run_seconds: Seconds after which a run is cancelled, whatever the
            client's deadline.
        queued_calls: Most calls that wait for a thread. Together they may
            have four times `message_bytes`.
    """

    rows: int = 128
    text_bytes: int = 16 * 1024
    message_bytes: int = 16 * 1024**2
    run_seconds: float = 60.0
    queued_calls: int = 256

    def require_header(self, alias: str, tensor: Any, wanted: "Tensor") -> None:
        """Checks a `TensorProto` before it is decoded.

        Args:
            alias: Name of the input.
            tensor: A `TensorProto` of the wanted dtype and rank.
            wanted: The input, as the signature describes it.

        Raises:
            StatusError: If it has too many rows or bytes.
        """
        sizes = [dim.size for dim in tensor.tensor_shape.dim]
        self.require_rows(alias, sizes, wanted)
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
        """Raises `StatusError` if an array has too many rows or bytes."""
        self.require_rows(alias, array.shape, wanted)
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
