"""Checks arguments of the functions and classes of this package."""

import numpy as np


def require_integer(name: str, given, least: int = 1, or_none=False) -> None:
    """Raises `ValueError` unless an argument is an integer, `least` or more."""
    if or_none and given is None:
        return
    if (
        isinstance(given, bool)
        or not isinstance(given, (int, np.integer))
        or given < least
    ):
        raise ValueError(
            f"`{name}` must be an integer, at least {least}"
            + (", or None" if or_none else "")
            + f". Received: {name}={given!r:.200}"
        )


def listed(name: str, given, count: int) -> list:
    """Returns an argument as a list, which must have `count` items."""
    if (
        isinstance(given, (str, bytes))
        or not hasattr(given, "__len__")
        or len(given) != count
    ):
        raise ValueError(
            f"`{name}` must be a list with an item for each source. Received: "
            f"{name}={given!r:.200} for {count} source(s). Pass as many items."
        )
    return list(given)
