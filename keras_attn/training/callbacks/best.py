"""`BestCheckpoint`: saves the best model by a score in the logs."""

import keras


class BestCheckpoint(keras.callbacks.ModelCheckpoint):
    """Saves the model whenever a score of the logs is the best so far.

    Keras's `ModelCheckpoint(save_best_only=True)` does the same if each epoch
    has the score. After an epoch without a score, as between two decodings of
    `DecodingMetrics(every=5)`, Keras overwrites the best model. This callback
    skips such epochs.

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
            such as the best score so far of a resumed training.

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

    def on_train_begin(self, logs=None):
        super().on_train_begin(logs)
        self._found = False

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
        if self.monitor in logs:
            super().on_epoch_end(epoch, logs)
