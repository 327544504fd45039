"""Selects rows of sources, in all forms that a `Translator` takes."""

from collections.abc import Mapping

import numpy as np


def listed(sources):
    """Returns a generator or the like as a list, others unchanged."""
    is_iterable = hasattr(sources, "__iter__")
    return (
        list(sources)
        if is_iterable and not hasattr(sources, "__getitem__")
        else sources
    )


def take(sources, rows):
    """Returns the sources at some indices, which may repeat.

    Args:
        sources: List of strings or array; or for several inputs a tuple or
            dictionary of these.
        rows: List of indices.
    """
    if isinstance(sources, Mapping):
        return {name: take(x, rows) for name, x in sources.items()}
    if _is_of_several(sources):
        return tuple(take(x, rows) for x in sources)
    if hasattr(sources, "shape"):
        return np.asarray(sources)[np.asarray(rows, int)]
    return [sources[row] for row in rows]


def count(sources) -> int:
    """Returns the number of sources."""
    if isinstance(sources, Mapping):
        return count(next(iter(sources.values())))
    if _is_of_several(sources):
        return count(sources[0])
    return len(sources)


def _is_of_several(sources):
    """Returns whether a tuple has an item for each input, not for each row."""
    return isinstance(sources, tuple) and not all(
        isinstance(x, (str, bytes)) for x in sources
    )
