"""`ResumeTraining`: resumes an interrupted training."""

import pathlib
import re
import shutil
from collections.abc import Iterable

import keras
import numpy as np

from keras_attn.keras_internals import forget_start
from keras_attn.keras_internals import is_seed
from keras_attn.keras_internals import running_fit
from keras_attn.keras_internals import start_at


class ResumeTraining(keras.callbacks.Callback):
    """Resumes an interrupted training, and reaches the same weights.

    After each epoch it saves everything the next epoch depends on: the
    weights, the optimizer's state, the states of random generators such as
    those of dropout, and the number of the epoch. When the program is started
    again, `fit` begins with the interrupted epoch, with its data in the same
    order. So a program that is killed at any moment and started again ends
    with the weights of an uninterrupted run. At most one epoch's work is lost.

    Keras's `BackupAndRestore` does not save the states of random generators,
    and a kill while it writes may leave weights of one epoch with the number
    of another. This callback writes a new directory and then renames it.

    Put it last in the list of callbacks, since others may change the optimizer
    at the end of an epoch. Only `SwapEMAWeights(swap_on_epoch=True)` comes
    after it, because it takes the weights out of the model at the end of an
    epoch; putting them back rounds them, so a resumed training then ends with
    the same weights up to rounding. The internal state of other callbacks is
    not saved: `EarlyStopping` counts its patience anew. The samples of
    `text.sampled()` cannot be repeated. On a GPU, call
    `tf.config.experimental.enable_op_determinism()` first, because its sums
    otherwise have no fixed order.

    Each epoch must read its data from the beginning. So pass `data` itself to
    `fit`, without `repeat()` and without a `steps_per_epoch` smaller than its
    number of batches.

    Args:
        directory: Path of a directory for this callback only.
        data: The result of `pairs(seed=...)`, or a list of several. Any object
            with a method `set_epoch(number)` works; the method is called at
            the beginning of each epoch.
        delete_checkpoint: Whether to delete the directory when training ends,
            as Keras's `BackupAndRestore` does. If `False`, starting a finished
            training again only restores its last weights.

    Raises:
        ValueError: If `data` has no method `set_epoch`, or, when `fit` begins,
            if the model has another number of random generators than the
            saved one, if `SwapEMAWeights(swap_on_epoch=True)` comes before
            this callback, or if epochs do not read the data of `pairs` from
            the beginning.

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
                    "`data` must be the result of `pairs()`, or a list of "
                    f"several. Received: {each!r:.80}, which has no method "
                    "`set_epoch`. If the data is derived from `pairs()`, as "
                    "`data.take(10)` is, pass the original."
                )

    def on_train_begin(self, logs=None):
        fit = running_fit(self.model)
        if fit is not None:
            self._check_order(fit.callbacks)
            self._check_steps(fit.steps, fit.batches)
        found = _saved(self.directory)
        if found:
            epoch = max(found)
            self._restore(found[epoch])
            start_at(self.model, epoch)
            if self.params.get("verbose"):
                print(f"Goes on after epoch {epoch}, from {found[epoch]}.")

    def on_epoch_begin(self, epoch, logs=None):
        forget_start(self.model)  # it is under way
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
        # A directory cannot replace another in one step. One of the same
        # number exists only if the same epoch is trained again.
        if epoch + 1 in before:
            shutil.rmtree(before.pop(epoch + 1))
        part.rename(self.directory / name)
        for path in before.values():
            shutil.rmtree(path)

    def on_train_end(self, logs=None):
        forget_start(self.model)  # if no epoch was left
        if self.delete_checkpoint:
            shutil.rmtree(self.directory, ignore_errors=True)

    def _check_order(self, callbacks):
        for other in callbacks:
            if other is self:
                return
            swaps = isinstance(other, keras.callbacks.SwapEMAWeights)
            if swaps and other.swap_on_epoch:
                raise ValueError(
                    "`ResumeTraining` must save the weights before "
                    "`SwapEMAWeights(swap_on_epoch=True)` replaces them by "
                    "their mean at the end of an epoch. Received: callbacks "
                    "with `SwapEMAWeights` before `ResumeTraining`. Put "
                    "`SwapEMAWeights` after it."
                )

    def _check_steps(self, steps, batches):
        """Checks that each epoch reads `pairs()` from the beginning.

        Otherwise Keras reads on where the last epoch ended, and TensorFlow
        begins the next reading ahead of the epoch that sets its number.
        """
        # Other data with a `set_epoch` may obey it in the midst of a reading.
        # The class `Pairs` would need TensorFlow Text.
        pairs = any(hasattr(x, "padding_share") for x in self.data)
        if not steps or not pairs:
            return
        known = (
            "an unknown or endless number of" if batches is None else batches
        )
        if batches is None or steps < batches:
            raise ValueError(
                "`ResumeTraining` needs epochs that read the data of `pairs()` "
                "from the beginning, because its order depends on the epoch. "
                f"Received: steps_per_epoch={steps} for data of {known} "
                "batches. Pass `data` without `repeat()` and without "
                "`steps_per_epoch`; for shorter epochs pass `data.take(n)`. "
                "To tell Keras the number of batches of a stream, pass "
                "`data.apply(tf.data.experimental.assert_cardinality(n))`."
            )

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
                "Training can only be resumed with the same model. Received: "
                f"a model with {len(seeds)} states of random generators, but "
                f"{path} has {len(states)}. To begin anew, delete "
                f"{self.directory}."
            )
        for seed, state in zip(seeds, states, strict=True):
            seed.assign(state)

    def _seeds(self):
        return [x for x in self.model.variables if is_seed(x)]


def _saved(directory):
    """Returns a dictionary from numbers of epochs to saved directories."""
    if not directory.is_dir():
        return {}
    found = {
        re.fullmatch(r"epoch-(\d+)", x.name): x for x in directory.iterdir()
    }
    return {int(match[1]): path for match, path in found.items() if match}


def _array(variable):
    return keras.ops.convert_to_numpy(variable.value)
