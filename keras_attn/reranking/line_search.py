"""`LineSearch`: finds the best weights along a line, exactly."""

from collections.abc import Callable

import numpy as np

_EQUAL = 1e-9  # values that differ less are equal
_BEYOND = 1.0  # distance of the steps tried beyond the last change


class LineSearch:
    """Evaluates weights of scorers by the hypotheses that they choose.

    For each source, the hypothesis with the greatest weighted sum of scores is
    chosen.

    Args:
        scores: For each source an array `(hypotheses, scorers)`.
        counts: For each source an array `(hypotheses, counts)`.
        of_corpus: Function of sums of counts `(..., counts)` that returns the
            metric of the corpus `(...)`.
    """

    def __init__(self, scores, counts, of_corpus: Callable):
        self._scores, self._is_there = _padded(scores)
        self._counts, _ = _padded(counts)
        self._of_corpus = of_corpus

    def value(self, weights) -> float:
        """Returns the metric of the hypotheses that the weights choose."""
        chosen = self._best(self._scores @ weights)
        return float(self._of_corpus(self._of(chosen).sum(axis=0)))

    def best_on(self, weights, direction) -> np.ndarray:
        """Returns the best weights on the line `weights + step * direction`.

        If no others are better, these are the given weights.
        """
        steps, values = self._stretches(weights, direction)
        # The stretch before the first change, those between, the last one.
        if not len(steps):
            return weights
        here = np.searchsorted(steps, 0.0)
        ends = np.concatenate(
            [[steps[0] - 2 * _BEYOND], steps, [steps[-1] + 2 * _BEYOND]]
        )
        widths = np.diff(ends)
        # An interval without width lies between two changes at one step.
        values = np.where(widths > _EQUAL, values, -np.inf)
        best = values >= values.max() - _EQUAL
        if best[here]:
            return weights
        widest = int(np.argmax(np.where(best, widths, -np.inf)))
        return weights + (ends[widest] + widths[widest] / 2) * direction

    def _stretches(self, weights, direction):
        """Returns the steps at which choices change, and values between them.

        As a function of the step, each hypothesis is a line, `score + step *
        slope`, and the greatest is chosen. From the far left to the right, the
        next choice is the first line that crosses the current one.

        Returns:
            Steps `(changes,)` in ascending order, and the metric of the corpus
            before, between and after them, `(changes + 1,)`.
        """
        scores, slopes = self._scores @ weights, self._scores @ direction
        # Far left the smallest slope wins; among equal ones the best score.
        least = np.where(self._is_there, slopes, np.inf).min(axis=1)
        is_least = self._is_there & (slopes == least[:, None])
        chosen = np.where(is_least, scores, -np.inf).argmax(axis=1)
        total = self._of(chosen).sum(axis=0)
        rows = np.arange(len(chosen))
        steps, changes = [], []
        while len(rows):
            at = np.arange(len(rows))
            own, others = chosen[rows], scores[rows]
            rise = slopes[rows] - slopes[rows, own][:, None]
            behind = others[at, own][:, None] - others
            crossing = np.full(rise.shape, np.inf)
            np.divide(
                behind,
                rise,
                out=crossing,
                where=(rise > 0) & self._is_there[rows],
            )
            first = crossing.min(axis=1)
            # Of lines that cross at the same step, the steepest wins.
            is_first = crossing == first[:, None]
            following = np.where(is_first, rise, -np.inf).argmax(axis=1)
            goes_on = np.isfinite(first)
            rows, following = rows[goes_on], following[goes_on]
            steps.append(first[goes_on])
            changes.append(
                self._counts[rows, following] - self._counts[rows, chosen[rows]]
            )
            chosen[rows] = following
        found = np.concatenate(steps)
        order = np.argsort(found, kind="stable")
        sums = np.cumsum(np.concatenate(changes)[order], axis=0)
        totals = np.concatenate([total[None], total + sums])
        return found[order], self._of_corpus(totals)

    def _best(self, scores):
        """Returns the best hypothesis of each source, the first of equals."""
        return np.where(self._is_there, scores, -np.inf).argmax(axis=1)

    def _of(self, chosen):
        return self._counts[np.arange(len(chosen)), chosen]


def _padded(arrays):
    """Returns one padded array, and a mask of its real rows."""
    lengths = np.array([len(x) for x in arrays])
    is_there = np.arange(lengths.max()) < lengths[:, None]
    padded = np.zeros((*is_there.shape, arrays[0].shape[-1]))
    padded[is_there] = np.concatenate(arrays)
    return padded, is_there
