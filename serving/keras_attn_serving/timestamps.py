"""The parts of a text between timestamps, such as `<|0.00|> Hello.<|1.20|>`."""

import re
from typing import NamedTuple

_MARK = re.compile(r"<\|(\d+\.\d\d)\|>")


class Part(NamedTuple):
    """A part of a text, and its times in seconds of the window."""

    text: str
    start: float
    end: float | None  # None if the text ends before this timestamp


def without(text: str) -> str:
    """Returns a text without timestamps."""
    return _MARK.sub("", text)


def are_in(text: str) -> bool:
    """Returns whether a text has timestamps."""
    return bool(_MARK.search(text))


def parts_of(text: str) -> list[Part]:
    """Returns the parts of a text between timestamps.

    The last part is empty if the text ends with a timestamp that begins a part.
    """
    before, *rest = _MARK.split(text)
    found, start = [], None if not before.strip() else 0.0
    content = before
    for mark, after in zip(rest[::2], rest[1::2], strict=True):
        time = float(mark)
        if start is None:
            start = time
        else:
            found.append(Part(content.strip(), start, time))
            start = time if after.strip() else None
        content = after
    if start is not None:
        found.append(Part(content.strip(), start, None))
    return found
