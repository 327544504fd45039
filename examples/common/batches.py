"""Batches of a few fixed shapes, from arrays, on any backend.

JAX compiles a model anew for each shape that it meets, for some seconds. So
rows are padded to a few lengths, and all batches have the same number of rows.
"""

import keras
import numpy as np

LENGTHS = 6  # to which rows are padded


class Batches(keras.utils.PyDataset):
    """Batches for `model.fit`, in another order in each epoch.

    The number of an epoch decides which rows share a batch, and the order of
    the batches. `ResumeTraining` may set the number.

    Args:
        arrays: For each length the ids of its rows: sources of shape `(rows,
            length)` and targets of shape `(rows, length + 1)`.
        batch_size: Number of rows per batch. It divides the number of rows
            of each length.
        seed: Integer that decides the orders, or `None` to keep the order.
    """

    def __init__(self, arrays, batch_size: int, seed: int | None = None):
        super().__init__()
        self.arrays = dict(sorted(arrays.items()))
        self.batch_size = batch_size
        self.seed = seed
        self.set_epoch(0)

    def set_epoch(self, epoch: int):
        """Sets the number of the epoch that is read next, from 0."""
        self._epoch = epoch
        draw = np.random.default_rng([self.seed or 0, epoch])
        batches = []
        for length, (source, _) in self.arrays.items():
            rows = np.arange(len(source))
            if self.seed is not None:
                draw.shuffle(rows)
            rows = rows.reshape(-1, self.batch_size)
            batches += [(length, of_batch) for of_batch in rows]
        # A batch of the longest rows comes first: if the memory is too small
        # for it, that shows at once. Then comes one of the shortest, as Keras
        # on TensorFlow learns from the first two which sizes vary.
        first, between = batches[:-2:-1] + batches[:-1][:1], batches[1:-1]
        if self.seed is not None:
            draw.shuffle(between)
        self._batches = first + between

    def on_epoch_end(self):
        self.set_epoch(self._epoch + 1)

    def __len__(self):
        return len(self._batches)

    def __getitem__(self, i):
        length, rows = self._batches[i]
        source, target = (ids[rows] for ids in self.arrays[length])
        # Each token predicts the next one; the end token predicts none.
        outputs = target[:, 1:]
        return (source, np.where(outputs, target[:, :-1], 0)), outputs


def arrange(source, target, batch_size: int, number: int = LENGTHS):
    """Returns the arrays of `Batches`: rows padded to a few lengths.

    No row is left out. Rows that fill no batch are padded to the next length.
    At the largest length the last batch is filled up with rows without target,
    which the loss passes over.

    Args:
        source: Ids of all sources, `(rows, longest source)`, padded with 0.
        target: Ids of all targets with start and end tokens, `(rows, longest
            target)`, padded with 0.
        batch_size: Number of rows per batch.
        number: Number of lengths.
    """
    # A target is one shorter as input and as output.
    sizes = np.sum(source != 0, axis=1), np.sum(target != 0, axis=1) - 1
    lengths = np.maximum(*sizes)
    chosen, arrays = lengths_to_pad_to(lengths, number), {}
    rows, shorter = np.arange(0), 0
    for length in chosen:
        new = np.flatnonzero((lengths > shorter) & (lengths <= length))
        rows, shorter = np.concatenate([rows, new]), length
        count, empty = len(rows) // batch_size * batch_size, 0
        if length == chosen[-1]:
            count, empty = len(rows), -len(rows) % batch_size
        if count:
            # Attention needs something to attend to, so only targets are empty.
            taken = np.concatenate([rows[:count], np.repeat(rows[:1], empty)])
            arrays[length] = (
                _cut(source[taken], length),
                _cut(target[taken], length + 1),
            )
            arrays[length][1][count:] = 0
        rows = rows[count:]
    return arrays


def lengths_to_pad_to(lengths, number: int) -> list[int]:
    """Returns the lengths to which rows are padded with the fewest ids.

    Args:
        lengths: The length of each row.
        number: How many lengths to choose.
    """
    values, counts = np.unique(lengths, return_counts=True)
    below = np.concatenate([[0], np.cumsum(counts)])  # rows of the first values
    # For the rows of the first values, 0 to all: the ids, padded to the lengths
    # chosen so far, and these lengths.
    best = [(0, [])] + [(np.inf, [])] * len(values)
    for _ in range(min(number, len(values))):
        best = best[:1] + [
            min(
                (
                    best[i][0] + value * (below[j] - below[i]),
                    [*best[i][1], value],
                )
                for i in range(j)
            )
            for j, value in enumerate(values.tolist(), start=1)
        ]
    return best[-1][1]


def padding_share(arrays) -> float:
    """Returns which share of all ids is padding."""
    ids = np.concatenate([x.ravel() for both in arrays.values() for x in both])
    return float(np.mean(ids == 0))


def _cut(ids, length):
    """Returns rows of ids, cut or padded to a length."""
    cut = np.zeros((len(ids), length), "int32")
    cut[:, : ids.shape[1]] = ids[:, :length]
    return cut
