"""Measures by how much rounding may change what a path computes."""

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np


class Noises:
    """The effects of disturbances on a path, as tolerances.

    In 16 bits one disturbance may miss what rounding does: where two scores of
    a sharp softmax are nearly equal, the larger one may change from one
    computation to the next. So each method yields noises that grow, for one
    disturbance, two, and so on; a caller takes the next one if its arrays
    still differ.

    Args:
        runs: The `PathRuns`.
        rounding: The `Rounding`, which says how many disturbances are tried.
    """

    def __init__(self, runs, rounding):
        self._runs, self._rounding = runs, rounding
        self._undisturbed: Any = None
        self._together: list[Any] = []
        self._alone: list[Any] = []

    def of_border(self, i) -> Iterator[float]:
        """Yields noises of a tensor that the path reads from the source."""
        for border, _ in self._measured(self._together, self._measure):
            yield border[i]

    def of_whole(self, i) -> Iterator[np.ndarray]:
        """Yields noises of a whole target, `(positions,)`."""
        for _, whole in self._measured(self._together, self._measure):
            yield whole[i]

    def alone(self, x, position) -> Iterator[float]:
        """Yields noises of one position if only the tensor's layer rounds."""
        measure = self._runs.noises_alone
        for noises in self._measured(self._alone, measure):
            yield noises[id(x)][position]

    def _measure(self, rounding, seed):
        if self._undisturbed is None:
            self._undisturbed = self._runs.outside()
        return self._runs.noises(rounding, seed, self._undisturbed)

    def _measured(self, found, measure):
        """Yields the noises for one disturbance, for two, and so on.

        It begins with the largest noises that were measured before.
        """
        for seed in range(max(0, len(found) - 1), self._rounding.disturbances):
            if seed == len(found):
                noises = measure(self._rounding, seed)
                if found:
                    noises = keras.tree.map_structure(
                        np.maximum, found[-1], noises
                    )
                found.append(noises)
            yield found[seed]
