"""`StatusError`: the server's only exception, whatever the protocol."""

import enum


class Code(enum.IntEnum):
    """The codes that TensorFlow, absl and gRPC share, by their numbers."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16

    @classmethod
    def _missing_(cls, value):
        return cls.UNKNOWN


class StatusError(Exception):
    """Ends a call with a code and a text.

    Attributes:
        code: The `Code`.
        details: The text.
    """

    def __init__(self, code: Code, details: str):
        super().__init__(code, details)
        self.code = code
        self.details = details

    def __str__(self) -> str:
        return f"{self.code.name}: {self.details}"


def invalid_argument(details: str) -> StatusError:
    """Returns the error for an invalid request."""
    return StatusError(Code.INVALID_ARGUMENT, details)
