"""The one exception of the server's inside: a gRPC status on its way out."""

import grpc

# As TensorFlow Serving does: gRPC carries the text in a header.
_LIMIT = 1024

_CODES = {code.value[0]: code for code in grpc.StatusCode}


class StatusError(Exception):
    """Ends a call with a gRPC code and a text.

    Attributes:
        code: The `grpc.StatusCode`.
        details: The text, cut as TensorFlow Serving cuts it.
    """

    def __init__(self, code: grpc.StatusCode, details: str):
        super().__init__(code, details)
        self.code = code
        raw = details.encode("utf-8", "replace")
        if len(raw) > _LIMIT:
            details = raw[:_LIMIT].decode("utf-8", "ignore") + "...TRUNCATED"
        self.details = details

    def __str__(self) -> str:
        return f"{self.code.name}: {self.details}"


def invalid_argument(details: str) -> StatusError:
    """Returns the commonest error: the request is at fault."""
    return StatusError(grpc.StatusCode.INVALID_ARGUMENT, details)


def status_of(code: int) -> grpc.StatusCode:
    """Returns the gRPC code of an absl code; the numbers are the same."""
    return _CODES.get(code, grpc.StatusCode.UNKNOWN)
