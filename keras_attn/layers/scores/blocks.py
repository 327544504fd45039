"""Cuts a batch of queries and keys into blocks that fit a cache."""

from keras import ops


class Blocks:
    """Cuts sentences and queries into blocks, and joins blocks again.

    The last block of sentences and the last of queries are padded with zeros.

    Args:
        batch: Number of sentences.
        target: Number of queries of a sentence.
        sentences: The largest number of sentences in a block.
        queries: The largest number of queries of a sentence in a block.
    """

    def __init__(self, batch, target, sentences, queries):
        self.batch, self.target = batch, target
        # As many blocks as needed, all of about the same size.
        self.rows = _at_least_one(-(-batch // sentences))
        self.sentences = -(-batch // self.rows)
        self.columns = _at_least_one(-(-target // queries))
        self.queries = -(-target // self.columns)

    def of_keys(self, x):
        """`(batch, source, units)` -> `(rows, sentences, source, units)`."""
        x = _fill(x, 0, self.rows * self.sentences)
        return ops.reshape(x, (self.rows, self.sentences, *ops.shape(x)[1:]))

    def join_keys(self, x):
        x = ops.reshape(x, (-1, *ops.shape(x)[2:]))
        return x[: self.batch]

    def of_queries(self, x):
        """Cuts `(batch, target, dim)` into blocks.

        Returns:
            Tensor of shape `(rows, columns, sentences, queries, dim)`.
        """
        x = _fill(x, 0, self.rows * self.sentences)
        x = _fill(x, 1, self.columns * self.queries)
        sizes = self.rows, self.sentences, self.columns, self.queries
        x = ops.reshape(x, (*sizes, ops.shape(x)[-1]))
        return ops.transpose(x, (0, 2, 1, 3, 4))

    def join_queries(self, x):
        x = ops.transpose(x, (0, 2, 1, 3, 4))
        rows, columns = self.rows * self.sentences, self.columns * self.queries
        x = ops.reshape(x, (rows, columns, ops.shape(x)[-1]))
        return x[: self.batch, : self.target]


def _fill(x, axis, size):
    missing = size - ops.shape(x)[axis]
    if isinstance(missing, int) and missing == 0:
        return x
    widths = [(0, 0)] * 3
    widths[axis] = (0, missing)
    return ops.pad(x, widths)


def _at_least_one(size):
    return max(size, 1) if isinstance(size, int) else ops.maximum(size, 1)
