"""`BestCheckpoint`: saves the best model by a score in the logs."""

import json
import os
import re

import keras
import numpy as np

from keras_attn.keras_internals import file_utils


class BestCheckpoint(keras.callbacks.ModelCheckpoint):
    """Saves the model whenever a score of the logs is the best so far.

    Keras's `ModelCheckpoint(save_best_only=True)` does the same if each epoch
    has the score. After an epoch without a score, as between two decodings of
    `DecodingMetrics(every=5)`, Keras overwrites the best model. This callback
    skips such epochs, and those whose score is NaN.

    The best score is kept beside the file, in `best.keras.json` for
    `best.keras`. A training that is resumed, by `ResumeTraining` or
    `initial_epoch=`, has to beat it. A new training starts afresh and replaces
    the files.

    Args:
        filepath: Path of the file, `.keras`, or `.weights.h5` with
            `save_weights_only`. It may contain values of the logs, as in
            `"{epoch:03}-{val_bleu:.1f}.keras"`.
        monitor: Name of the score in the logs, such as `"val_bleu"`.
        mode: `"max"` if higher is better (BLEU, chrF), `"min"` for error
            rates.
        save_weights_only: Whether to save only the weights.
        verbose: 1 prints a line for each save.
        initial_value_threshold: A score that the first saved model must beat,
            such as that of an earlier model.

    Raises:
        ValueError: If the logs of the first epoch do not contain the score.
            Put this callback after `DecodingMetrics` in the list.

    Example:
        >>> best = keras_attn.BestCheckpoint("best.keras", "val_bleu", "max")
        >>> best.best is None  # until the first epoch ends
        True
    """

    def __init__(
        self,
        filepath,
        monitor,
        mode,
        save_weights_only=False,
        verbose=0,
        initial_value_threshold=None,
    ):
        if mode not in ("min", "max"):
            raise ValueError(
                '`mode` must be "max" if higher is better, as for BLEU, or '
                f'"min", as for error rates. Received: mode={mode!r}'
            )
        super().__init__(
            filepath,
            monitor,
            verbose=verbose,
            save_best_only=True,
            save_weights_only=save_weights_only,
            mode=mode,
            initial_value_threshold=initial_value_threshold,
        )
        self._found = False
        self._begins = True
        # A path may have fields, such as `{epoch}`, but has one best score.
        self._score_path = re.sub(r"\{.*?\}", "_", self.filepath) + ".json"

    def on_train_begin(self, logs=None):
        super().on_train_begin(logs)
        self._found = False
        self._begins = True

    def on_epoch_begin(self, epoch, logs=None):
        super().on_epoch_begin(epoch, logs)
        if self._begins:
            self._recall(epoch)
        self._begins = False

    def on_epoch_end(self, epoch, logs=None):
        logs = logs or {}
        self._found |= self.monitor in logs
        if not self._found:
            raise ValueError(
                f"`BestCheckpoint` needs `{self.monitor}` in the logs of the "
                f"first epoch. Received: logs with {sorted(logs)}. Put it "
                "after `DecodingMetrics` in the list of callbacks. `monitor` "
                "must be `val_` and a name in `DecodingMetrics(metrics=...)`."
            )
        if self.monitor in logs and not np.any(np.isnan(logs[self.monitor])):
            before = self.best
            super().on_epoch_end(epoch, logs)
            if self.best != before:
                self._keep()

    def _recall(self, epoch):
        """Takes the best score from its file if a training is resumed."""
        if not file_utils.exists(self._score_path):
            return
        if not epoch:
            file_utils.remove(self._score_path)
            return
        with file_utils.File(self._score_path) as file:
            score = json.load(file).get(self.monitor)
        known = [x for x in (score, self.best) if x is not None]
        self.best = {"min": min, "max": max}[self.mode](known, default=None)

    def _keep(self):
        """Writes the best score, after its model: a kill loses no model."""
        path = self._score_path
        # A remote file appears only when it is closed, and needs no renaming.
        part = path if file_utils.is_remote_path(path) else f"{path}.part"
        with file_utils.File(part, "w") as file:
            file.write(json.dumps({self.monitor: float(self.best)}))
        if part != path:
            os.replace(part, path)
