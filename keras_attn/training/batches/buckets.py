"""Buckets: pairs of similar length, which share batches."""

import numpy as np

# With `batch_tokens`, the longest of a bucket is up to so many times as long as
# the shortest.
_SPREAD = 1.25


class Buckets:
    """Divides pairs into buckets by their length.

    Args:
        rows: `InMemory` or `Streamed` rows.
        number: Number of buckets. There are fewer if their boundaries
            coincide.
        batch_size: Number of rows per batch.
        batch_tokens: If given, the maximum number of ids on each side of a
            batch, padding included. Then the number of rows per batch depends
            on the longest pair of the bucket. So a bucket is divided further
            if its longest pair is much longer than its shortest.

    Attributes:
        boundaries: Lengths in ascending order. Each bucket has the lengths
            from one of these up to, but without, the next.
        batch_sizes: Number of rows per batch of each bucket.
    """

    def __init__(self, rows, number, batch_size, batch_tokens=None):
        parts = np.linspace(0, 1, number + 1)[1:-1]
        boundaries = {int(x) + 1 for x in np.quantile(rows.lengths, parts)}
        if not rows.counted and batch_tokens is not None:
            # Pairs longer than those seen get a separate bucket, so they do
            # not limit the size of other batches.
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
