"""`ResumeTraining`: goes on with a training that was cut off."""

import pathlib
import re
import shutil
from collections.abc import Iterable

import keras
import numpy as np

from keras_attn.keras_internals import is_seed
from keras_attn.keras_internals import start_at


class ResumeTraining(keras.callbacks.Callback):
    """Goes on with a training that was cut off, to the same weights.

    After each epoch it saves all that the next epoch depends on: weights, the
    optimizer's state, the states of random draws such as dropout's, and the
    number of the epoch. `fit` then begins with the epoch that was cut off,
    with its data in the same order. So the same program, killed at any moment
    and started again, ends with the weights that it would have had. At most
    an epoch's work is lost.

    Keras's `BackupAndRestore` does not save the states of random draws, and a
    kill while it writes may leave weights of one epoch with the number of
    another. This callback writes a new directory beside the last one, and
    renames it.

    Put it last in the list of callbacks: others may change the optimizer at
    the end of an epoch. What callbacks count themselves is not saved:
    `EarlyStopping` begins to wait anew. The draws of `text.sampled()` cannot
    be repeated. On a GPU call `tf.config.experimental.enable_op_determinism()`
    first, as its sums have no fixed order otherwise.

    Args:
        directory: Path of a directory of its own.
        data: What `pairs(seed=...)` returned, or a list of some. Any
            object will do that has a method `set_epoch(number)`, which is
            called at the beginning of each epoch.
        delete_checkpoint: Whether the end of the training deletes the
            directory, as in Keras's `BackupAndRestore`. If not, a finished
            training that is started again has its last weights at once.

    Example:
        >>> text = keras_attn.Text.from_lines(["ab"], split="characters")
        >>> lines = ["ab", "b"]
        >>> data = keras_attn.pairs(lines, lines, text, text, seed=1)
        >>> def train(epochs):
        ...     keras.utils.set_random_seed(1)
        ...     ids = keras.Input((None,), dtype="int32"), keras.Input((None,))
        ...     words = keras.layers.Embedding(text.size, 4)(ids[1])
        ...     logits = keras.layers.Dense(text.size)(words)
        ...     model = keras.Model(ids, logits)
        ...     model.compile("adam", keras_attn.SequenceCrossentropy())
        ...     resume = keras_attn.ResumeTraining(
        ...         "backup", data, delete_checkpoint=False)
        ...     history = model.fit(
        ...         data, epochs=epochs, shuffle=False, verbose=0,
        ...         callbacks=[resume])
        ...     return history.epoch
        >>> train(epochs=2), train(epochs=3)  # as if it was killed after two
        ([0, 1], [2])
    """

    def __init__(self, directory, data=(), delete_checkpoint=True):
        super().__init__()
        self.directory = pathlib.Path(directory)
        several = isinstance(data, Iterable) and not hasattr(data, "set_epoch")
        self.data = list(data) if several else [data]
        self.delete_checkpoint = delete_checkpoint
        for each in self.data:
            if not hasattr(each, "set_epoch"):
                raise ValueError(
                    "`data` must be what `pairs()` returned, or a list of "
                    f"such. Received: {each!r:.80}, which has no method "
                    "`set_epoch`. Of `pairs(...).take(10)` pass the pairs."
                )

    def on_train_begin(self, logs=None):
        found = _saved(self.directory)
        if found:
            epoch = max(found)
            self._restore(found[epoch])
            start_at(self.model, epoch)
            if self.params.get("verbose"):
                print(f"Goes on after epoch {epoch}, from {found[epoch]}.")

    def on_epoch_begin(self, epoch, logs=None):
        for each in self.data:
            each.set_epoch(epoch)

    def on_epoch_end(self, epoch, logs=None):
        name = f"epoch-{epoch + 1}"
        part = self.directory / f"{name}.part"
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        self.model.save_weights(part / "model.weights.h5")
        np.savez(part / "seeds.npz", *map(_array, self._seeds()))
        before = _saved(self.directory)
        # A directory cannot replace another one at once. One of the same
        # number is left only where the same epoch is trained again.
        if epoch + 1 in before:
            shutil.rmtree(before.pop(epoch + 1))
        part.rename(self.directory / name)
        for path in before.values():
            shutil.rmtree(path)

    def on_train_end(self, logs=None):
        if self.delete_checkpoint:
            shutil.rmtree(self.directory, ignore_errors=True)

    def _restore(self, path):
        optimizer = self.model.optimizer
        if optimizer is not None and not optimizer.built:
            optimizer.build(self.model.trainable_variables)
        self.model.load_weights(path / "model.weights.h5")
        with np.load(path / "seeds.npz") as arrays:
            states = [arrays[f"arr_{i}"] for i in range(len(arrays.files))]
        seeds = self._seeds()
        if len(seeds) != len(states):
            raise ValueError(
                "A training can only go on with the model that it began with. "
                f"Received: a model with {len(seeds)} states of random draws, "
                f"where {path} has {len(states)}. To begin anew, delete "
                f"{self.directory}."
            )
        for seed, state in zip(seeds, states, strict=True):
            seed.assign(state)

    def _seeds(self):
        return [x for x in self.model.variables if is_seed(x)]


def _saved(directory):
    """Returns the paths of what was saved, by the number of epochs."""
    if not directory.is_dir():
        return {}
    found = {
        re.fullmatch(r"epoch-(\d+)", x.name): x for x in directory.iterdir()
    }
    return {int(match[1]): path for match, path in found.items() if match}


def _array(variable):
    return keras.ops.convert_to_numpy(variable.value)
