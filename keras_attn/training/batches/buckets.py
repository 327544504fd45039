"""Buckets: pairs of similar length, which share batches."""

import numpy as np

_SPREAD = 1.25  # times the shortest may be the longest of a bucket, by tokens


class Buckets:
    """Divides pairs by their length.

    Args:
        rows: `InMemory` or `Streamed` rows.
        number: Number of buckets; some may be the same.
        batch_size: Number of rows per batch.
        batch_tokens: If given, the number of ids that a side of a batch may
            have, padding included. It then decides the number of rows, by
            the longest pair of the bucket. So buckets are divided further
            where the longest is much longer than the shortest.

    Attributes:
        boundaries: A bucket has the lengths from one of these to below the
            next.
        batch_sizes: Rows per batch of each bucket.
    """

    def __init__(self, rows, number, batch_size, batch_tokens=None):
        parts = np.linspace(0, 1, number + 1)[1:-1]
        boundaries = {int(x) + 1 for x in np.quantile(rows.lengths, parts)}
        if not rows.counted and batch_tokens is not None:
            # Longer pairs than those seen get a bucket of their own, so that
            # they do not decide the size of other batches.
            boundaries.add(int(rows.lengths.max()) + 1)
        if batch_tokens is not None and number > 1:
            boundaries |= _between(boundaries, rows.lengths)
        self.boundaries = sorted(boundaries)
        longest = [x - 1 for x in self.boundaries] + [rows.longest]
        self.batch_sizes = [
            batch_size if batch_tokens is None else max(1, batch_tokens // x)
            for x in longest
        ]

    def count(self, lengths) -> int:
        """Returns the number of batches for pairs of these lengths."""
        bucket = np.digitize(lengths, self.boundaries)
        rows = np.bincount(bucket, minlength=len(self.batch_sizes))
        return int(np.ceil(rows / self.batch_sizes).sum())


def _between(boundaries, lengths):
    """Returns boundaries that divide buckets of very different lengths."""
    shortest, end = int(lengths.min()), int(lengths.max()) + 1
    found = set()
    for boundary in sorted({x for x in boundaries if x < end} | {end}):
        while boundary - 1 > _SPREAD * shortest:
            shortest = max(shortest + 1, int(_SPREAD * shortest))
            found.add(shortest)
        shortest = boundary
    return found
