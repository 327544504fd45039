"""Takes some rows of sources, in all the forms that a `Translator` takes."""

from collections.abc import Mapping

import numpy as np


def listed(sources):
    """Returns an iterable, such as a generator, as a list; others as given."""
    is_iterable = hasattr(sources, "__iter__")
    return (
        list(sources)
        if is_iterable and not hasattr(sources, "__getitem__")
        else sources
    )


def take(sources, rows):
    """Returns the sources with these numbers, which may repeat.

    Args:
        sources: List of strings, array, tuple of these for several inputs, or
            dictionary of them.
        rows: List of numbers.
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
