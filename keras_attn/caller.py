"""Warnings that point to the caller's line, from any depth of this package."""

import contextlib
import inspect
import warnings
from collections.abc import Iterator
from typing import NamedTuple

_PACKAGE = __name__.partition(".")[0]


def warn(message: str) -> None:
    """Warns at the line outside this package that led here."""
    depth, _ = _outside()
    warnings.warn(message, stacklevel=depth)


@contextlib.contextmanager
def without_warnings_of_keras() -> Iterator[None]:
    """Hides two warnings of Keras while we run a model's layers.

    Keras already warned of a dropped mask when the model was trained. And in
    the first step a softmax over a single element is normal.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*passed an input with a mask")
        warnings.filterwarnings("ignore", ".*using a softmax over axis")
        yield


class Line(NamedTuple):
    """A line of the caller's code, to warn there later from another thread."""

    filename: str
    number: int

    @classmethod
    def of_caller(cls) -> "Line":
        """Returns the line outside this package that led here."""
        _, frame = _outside()
        return cls(frame.f_code.co_filename, frame.f_lineno)

    def warn(self, message: str) -> None:
        """Warns at this line."""
        warnings.warn_explicit(message, UserWarning, self.filename, self.number)


def _outside():
    """Returns the `stacklevel` and the frame of the first caller outside.

    The level is 1 if this function's direct caller is outside.
    """
    depth, frame = 1, inspect.currentframe().f_back
    while frame.f_back is not None and _is_ours(frame):
        depth, frame = depth + 1, frame.f_back
    return depth, frame


def _is_ours(frame):
    return frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE
