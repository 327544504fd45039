"""`LastCheckpoints`: keeps the last models of a training."""

import os
import pathlib
import re
import shutil

import keras

from keras_attn import arguments


class LastCheckpoints(keras.callbacks.Callback):
    """Keeps the model as it was after each of the last epochs.

    `keras_attn.average(callback.paths)` makes one model of them, which is
    often better than each. The files are whole models, `epoch-0007.keras` or
    `step-00004200.keras`, as `model.save` writes them: for `Adam` three times
    the size of the weights. A file is written beside the others and then
    renamed, so that a kill leaves no part of one.

    The optimizers of Keras have a mean of their own, `use_ema=True`. It needs
    no files, and `fit` ends with it, but its decay is chosen before the
    training. Files let you try the last 5 and the last 10, and are there
    after a training that was cut off.

    A training that begins anew replaces what an earlier one left in the
    directory, from its first save on. One that goes on, by `ResumeTraining`
    or `initial_epoch=`, adds to it. `ResumeTraining` stays the last of the
    callbacks.

    Args:
        directory: Path of a directory of its own.
        keep: Number of models to keep.
        save_freq: `"epoch"`, or a number of batches from one save to the
            next, where epochs are long.

    Attributes:
        paths: List of the files there are, from the oldest to the newest.

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
        self._done = 0  # batches trained on

    @property
    def paths(self) -> list[pathlib.Path]:
        found = self._found()
        return [found[number] for number in sorted(found)]

    def on_train_begin(self, logs=None):
        self._before = self._done = 0

    def on_epoch_begin(self, epoch, logs=None):
        if self.save_freq == "epoch":
            return
        # The optimizer remembers the batches of a training that goes on.
        optimizer = getattr(self.model, "optimizer", None)
        self._before = self._done if optimizer is None else _batches(optimizer)
        self._done = self._before

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

    def _save(self, number):
        form = "epoch-{:04}" if self.save_freq == "epoch" else "step-{:08}"
        name = form.format(number) + ".keras"
        # A directory within is on the same disk, so the file can be renamed.
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
        """Returns the paths of the models there are, by their numbers."""
        if not self.directory.is_dir():
            return {}
        unit = "epoch" if self.save_freq == "epoch" else "step"
        found = {
            re.fullmatch(rf"{unit}-(\d+)\.keras", x.name): x
            for x in self.directory.iterdir()
        }
        return {int(match[1]): path for match, path in found.items() if match}


def _batches(optimizer):
    """Returns the number of batches that an optimizer was given."""
    updates = int(keras.ops.convert_to_numpy(optimizer.iterations))
    return updates * (optimizer.gradient_accumulation_steps or 1)
