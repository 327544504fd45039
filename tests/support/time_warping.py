"""Dynamic time warping, cell by cell."""

import numpy as np


def warped(gains):
    """The columns at which the best path enters each row, cell by cell."""
    rows, columns = gains.shape
    best = np.full((rows, columns), -np.inf)
    came = {}
    for i in range(rows):
        for j in range(columns):
            before = [(i - 1, j - 1), (i - 1, j), (i, j - 1)]
            before = [x for x in before if min(x) >= 0]
            if not before:
                best[i, j] = gains[i, j]
                continue
            came[i, j] = max(before, key=lambda x: best[x])
            best[i, j] = best[came[i, j]] + gains[i, j]
    place, found = (rows - 1, columns - 1), [0] * rows
    while place:
        found[place[0]] = place[1]
        place = came.get(place)
    return found
