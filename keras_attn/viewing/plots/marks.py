"""Marks on a heat map: the largest weights, their path, or a window."""

import numpy as np

MARKS = "choice", "path", "window"

# An orange that people with red-green colour blindness can tell from blue.
_COLOUR = "#d55e00"


def names_of(mark) -> tuple[str, ...]:
    """Returns a tuple of the names of marks, or raises `ValueError`."""
    names = () if mark is None else (mark,) if isinstance(mark, str) else mark
    names = tuple(names)
    if not set(names) <= set(MARKS):
        raise ValueError(
            f"`mark` must be one of {', '.join(map(repr, MARKS))}, or a list "
            f'of these. Received: mark={mark!r}. Pass for example "choice".'
        )
    return names


def draw_mark(name, ax, weights, cell):
    """Draws a mark in all rows.

    Args:
        name: One of `MARKS`.
        ax: Matplotlib axes with a cell for each weight, the first centered
            at (0, 0).
        weights: Array of shape `(target, source)`.
        cell: Width of a cell in inches.
    """
    weights = np.nan_to_num(weights)
    rows = np.flatnonzero(weights.any(axis=1))
    best = weights.argmax(axis=1)
    if name == "path":
        places = np.full(len(weights), np.nan)  # no line in rows of zeros
        places[rows] = best[rows]
        ax.plot(
            places,
            np.arange(len(weights)),
            color=_COLOUR,
            linewidth=5 * cell,
            marker="o",
            markersize=12 * cell,
        )
    elif name == "choice":
        _draw_boxes(ax, [(row, best[row], best[row]) for row in rows], cell)
    else:
        spans = [(row, np.flatnonzero(weights[row])) for row in rows]
        boxes = [(row, span[0], span[-1]) for row, span in spans]
        _draw_boxes(ax, boxes, cell, linestyle=(0, (3, 1.5)))


def _draw_boxes(ax, boxes, cell, **style):
    """Draws boxes around cells, each `(row, first column, last column)`."""
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    inset = 0.06  # of a cell, so boxes of neighbouring rows do not touch
    patches = [
        Rectangle(
            (first - 0.5 + inset, row - 0.5 + inset),
            last - first + 1 - 2 * inset,
            1 - 2 * inset,
        )
        for row, first, last in boxes
    ]
    ax.add_collection(
        PatchCollection(
            patches,
            facecolors="none",
            edgecolors=_COLOUR,
            linewidths=5 * cell,
            **style,
        )
    )
