"""`Pairs`: a dataset of batches whose order depends on the epoch."""

import threading
from typing import NamedTuple

import numpy as np
import tensorflow as tf


class Epochs:
    """Numbers the epochs of a dataset; each reading is an epoch."""

    def __init__(self):
        self.next = 0
        self._lock = threading.Lock()

    def numbers(self) -> tf.data.Dataset:
        """Returns a dataset with the number of the epoch as its one item."""
        return tf.data.Dataset.range(1).map(
            lambda _: tf.ensure_shape(
                tf.numpy_function(self._take, [], tf.int64), []
            )
        )

    def _take(self):
        with self._lock:
            number = self.next
            self.next += 1
        return np.int64(number)


class RowOrder(NamedTuple):
    """Computes the order of the rows of an epoch from its number."""

    seed: int

    def permutation(self, count: int, epoch) -> tf.Tensor:
        """Returns the indices 0 to `count - 1` in the order of an epoch."""
        numbers = tf.range(count, dtype=tf.int64)
        return tf.random.experimental.stateless_shuffle(
            numbers, seed=self._seeds(epoch)
        )

    def seed_of(self, epoch) -> tf.Tensor:
        """Returns a seed for an epoch, an int64 scalar."""
        return tf.random.stateless_uniform(
            [], self._seeds(epoch), maxval=2**31 - 1, dtype=tf.int64
        )

    def _seeds(self, epoch):
        return tf.stack([tf.constant(self.seed, tf.int64), epoch])


class Pairs(tf.data.Dataset):
    """A `tf.data.Dataset` of batches, as `pairs()` returns it.

    Each reading is a new epoch, 0, 1 and so on, and the order of the rows
    depends on the number of the epoch. A resumed training therefore has to set
    this number. The callback `ResumeTraining` does so at the beginning of each
    epoch. Keras's callback can do it too:

    `LambdaCallback(on_epoch_begin=lambda epoch, _: data.set_epoch(epoch))`

    Neither works with `data.repeat()` and `steps_per_epoch`, because Keras then
    reads on across epochs. To tell Keras the number of batches of a stream,
    use `data.apply(tf.data.experimental.assert_cardinality(n))`.

    Datasets derived from it, such as `data.take(10)`, use the same number.

    Args:
        data: The dataset of batches.
        epochs: `Epochs` that number the readings of `data`.
        padding: List of padding ids: one for each input, `None` for features,
            then that of the targets.
    """

    def __init__(self, data: tf.data.Dataset, epochs: Epochs, padding):
        self._data = data
        self._epochs = epochs
        self._padding = padding
        super().__init__(tf.data.experimental.to_variant(data))

    def _inputs(self):
        return [self._data]

    @property
    def element_spec(self):
        """The shapes and dtypes of `((source, target_in), target_out)`."""
        return self._data.element_spec

    @property
    def next_epoch(self) -> int:
        """The number of the epoch that is read next."""
        return self._epochs.next

    def set_epoch(self, epoch: int) -> None:
        """Sets the number of the epoch that is read next, from 0."""
        self._epochs.next = int(epoch)

    def padding_share(self) -> float:
        """Returns the share of padding among all ids of an epoch, 0 to 1.

        It reads the next epoch, which does not advance the number of the
        epoch. Sources, decoder inputs and targets are counted, features are
        not. Fewer rows in a batch and more `buckets` mean less padding.
        """
        epoch, padding, total = self._epochs.next, 0, 0
        try:
            for inputs, outputs in self:
                columns = (*inputs, outputs)
                for ids, pad in zip(columns, self._padding, strict=True):
                    if pad is None:
                        continue
                    padding += int(np.sum(ids.numpy() == pad))
                    total += int(tf.size(ids))
        finally:
            self.set_epoch(epoch)
        return padding / total
