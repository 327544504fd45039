"""`LastCheckpoints`: keeps the last models of a training."""

import os
import pathlib
import re
import shutil

import keras

from keras_attn import arguments
from keras_attn.keras_internals import batches_of


class LastCheckpoints(keras.callbacks.Callback):
    """Saves the model after each epoch, and keeps the last few files.

    `keras_attn.average(callback.paths)` makes one model of them, which is
    often better than each. The files are whole models, `epoch-0007.keras` or
    `step-00004200.keras`, as `model.save` writes them: with `Adam` three times
    the size of the weights. A file is written in a subdirectory and then
    moved, so a kill leaves no incomplete file among the others.

    Keras's optimizers can average weights themselves, `use_ema=True`. That
    needs no files, and the model has the mean when `fit` ends, but the decay
    must be chosen before training. With files you can try the mean of the last
    5 and of the last 10, even if training was interrupted.

    A new training replaces the files of an earlier one in the directory, from
    its first save on. A resumed training, by `ResumeTraining` or
    `initial_epoch=`, adds to them. Put `ResumeTraining` after this callback,
    last in the list. Only with `SwapEMAWeights(swap_on_epoch=True)` it comes
    before both, and this callback, placed last, saves the mean.

    Args:
        directory: Path of a directory for these files only.
        keep: Number of models to keep.
        save_freq: `"epoch"`, or the number of batches between two saves, for
            long epochs.

    Attributes:
        paths: List of the files, from the oldest to the newest.

    Example:
        >>> inputs = keras.Input((1,))
        >>> model = keras.Model(inputs, keras.layers.Dense(1)(inputs))
        >>> model.compile("adam", "mse")
        >>> last = keras_attn.LastCheckpoints("last", keep=3)
        >>> history = model.fit(
        ...     np.ones((4, 1)), np.ones((4, 1)), epochs=5, verbose=0,
        ...     callbacks=[last])
        >>> [x.name for x in last.paths]
        ['epoch-0003.keras', 'epoch-0004.keras', 'epoch-0005.keras']
        >>> mean = keras_attn.average(last.paths)
    """

    def __init__(self, directory, keep=5, save_freq="epoch"):
        super().__init__()
        self.directory = pathlib.Path(directory)
        self.keep = arguments.positive(keep, "keep")
        if save_freq != "epoch":
            remedy = 'Pass "epoch", or a number of batches.'
            arguments.positive(save_freq, "save_freq", remedy)
        self.save_freq = save_freq
        self._before = 0  # batches trained on before this epoch
        self._done = None  # batches trained on; `None` before the first epoch

    @property
    def paths(self) -> list[pathlib.Path]:
        found = self._found()
        return [found[number] for number in sorted(found)]

    def on_train_begin(self, logs=None):
        self._done = None

    def on_epoch_begin(self, epoch, logs=None):
        if self.save_freq == "epoch":
            return
        if self._done is None:
            self._done = self._batches_until(epoch)
        self._before = self._done

    def on_train_batch_end(self, batch, logs=None):
        if self.save_freq == "epoch":
            return
        before, self._done = self._done, self._before + batch + 1
        # Several batches may end at once (`steps_per_execution`).
        if self._done // self.save_freq > before // self.save_freq:
            self._save(self._done)

    def on_epoch_end(self, epoch, logs=None):
        if self.save_freq == "epoch":
            self._save(epoch + 1)

    def _batches_until(self, epoch):
        """Returns the number of batches before the first epoch of a `fit`."""
        optimizer = getattr(self.model, "optimizer", None)
        if optimizer is None:
            return 0
        # The optimizer counts batches across a resumed training.
        count = batches_of(optimizer)
        if epoch and hasattr(optimizer, "inner_optimizer"):
            # A `LossScaleOptimizer` counts too few. With a number too small,
            # the models saved last would be taken for later ones, and deleted.
            steps = self.params.get("steps")
            least = epoch * steps if steps else max(self._found(), default=0)
            count = max(count, least)
        return count

    def _save(self, number):
        form = "epoch-{:04}" if self.save_freq == "epoch" else "step-{:08}"
        name = form.format(number) + ".keras"
        # A subdirectory is on the same disk, so the file can be renamed.
        part = self.directory / "part"
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        self.model.save(part / name)
        os.replace(part / name, self.directory / name)
        part.rmdir()
        found = self._found()
        kept = sorted(x for x in found if x <= number)[-self.keep :]
        for other in found.keys() - set(kept):
            found[other].unlink()

    def _found(self):
        """Returns a dictionary from numbers of saved models to paths."""
        if not self.directory.is_dir():
            return {}
        unit = "epoch" if self.save_freq == "epoch" else "step"
        found = {
            re.fullmatch(rf"{unit}-(\d+)\.keras", x.name): x
            for x in self.directory.iterdir()
        }
        return {int(match[1]): path for match, path in found.items() if match}
