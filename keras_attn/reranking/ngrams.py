"""`Ngrams`: counts the common n-grams of texts, for all pairs at once."""

import numpy as np


class Ngrams:
    """Counts the common n-grams of sequences, for many pairs at once.

    Metrics clip counts: if an n-gram occurs three times in one sequence and
    twice in another, it counts twice. So each occurrence of an n-gram in a
    sequence, the first, the second and so on, is treated as a separate item.
    The clipped number of common n-grams is then the number of common items,
    which a product of two 0-1 matrices gives for all pairs. Most long n-grams
    occur in a single sequence, so the matrices leave these out.

    Args:
        sequences: List of lists of integers from 0, such as ids of words.
        longest: Order of the longest n-grams.

    Attributes:
        totals: Number of n-grams of each sequence and length, an array of
            shape `(sequences, longest)`.
    """

    def __init__(self, sequences, longest: int):
        lengths = np.array([len(x) for x in sequences], int)
        self.totals = np.maximum(lengths[:, None] - np.arange(longest), 0)
        self._count = len(lengths)
        flat = np.concatenate([np.zeros(0, int), *map(np.asarray, sequences)])
        flat = flat.astype(int)
        owners = np.repeat(np.arange(self._count), lengths)
        # Number of integers from each position to the end of its sequence.
        left = np.cumsum(lengths)[owners] - np.arange(len(flat))
        self._items = []  # for each order: the sequences of items, the items
        ngrams = flat  # numbers of the n-grams that begin at each position
        for n in range(1, longest + 1):
            places = np.flatnonzero(left >= n)
            if n > 1:
                pairs = ngrams[places], flat[places + n - 1]
                ngrams = np.zeros(len(flat), int)
                ngrams[places] = _numbers(*pairs)
            rows = owners[places]
            found = _numbers(ngrams[places], _occurrences(rows, ngrams[places]))
            self._items.append(_shared(rows, found))

    def common(self, rows, columns) -> np.ndarray:
        """Returns the numbers of common n-grams of pairs of sequences.

        Args:
            rows: Indices of sequences.
            columns: Indices of the sequences to compare with.

        Returns:
            Array of shape `(rows, columns, longest)`.
        """
        found = [x[rows] @ x[columns].T for x in map(self._table, self._items)]
        is_same = np.equal.outer(rows, columns)[..., None]
        totals = self.totals[rows][:, None]
        return np.where(is_same, totals, np.stack(found, axis=-1))

    def common_with_all(self, rows, columns) -> np.ndarray:
        """Returns how many n-grams of each sequence occur in any of others.

        The count of an n-gram is clipped to the largest number of times that it
        occurs in one of the others.

        Args:
            rows: Indices of sequences.
            columns: Indices of the others.

        Returns:
            Array of shape `(rows, longest)`.
        """
        found = [
            x[rows] @ x[columns].max(axis=0)
            for x in map(self._table, self._items)
        ]
        is_same = np.isin(rows, columns)[:, None]
        return np.where(is_same, self.totals[rows], np.stack(found, axis=-1))

    def _table(self, items):
        """Returns the 0-1 matrix `(sequences, items)` of who has which."""
        rows, found = items
        width = found.max(initial=-1) + 1
        table = np.zeros((self._count, width), "float32")  # exact to 2 ** 24
        table[rows, found] = 1
        return table


def numbered(hypotheses, references):
    """Returns the distinct texts of two lists, and the indices of both.

    Returns:
        List of distinct texts, and two integer arrays: the index of each
        hypothesis in this list, and that of each reference.
    """
    index: dict[str, int] = {}
    places = [
        np.array([index.setdefault(x, len(index)) for x in texts], int)
        for texts in (hypotheses, references)
    ]
    return list(index), *places


def _shared(rows, found):
    """Returns only items that several sequences have, numbered anew."""
    is_shared = np.bincount(found) > 1
    kept = is_shared[found]
    return rows[kept], (np.cumsum(is_shared) - 1)[found[kept]]


def _numbers(first, second):
    """Numbers pairs of integers from 0, equal pairs by the same number."""
    if not len(first):
        return np.zeros(0, int)
    keys = first * (second.max() + 1) + second
    return np.unique(keys, return_inverse=True)[1].reshape(-1)


def _occurrences(rows, ngrams):
    """Returns how often each n-gram occurred earlier in its row, from 0."""
    keys = _numbers(rows, ngrams)
    order = np.argsort(keys, kind="stable")
    ranked = keys[order]
    first = np.searchsorted(ranked, ranked)
    found = np.empty(len(keys), int)
    found[order] = np.arange(len(keys)) - first
    return found
