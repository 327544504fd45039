"""Samples of a model's output while its first epoch runs."""

import keras

# Batches of the first epoch after which samples are printed.
MOMENTS = 150, 300, 600


class Samples(keras.callbacks.Callback):
    """Prints a few translations early in a training, when epochs are long.

    Args:
        translator: Translator of the model that is trained.
        lines: Sources of the samples.
    """

    def __init__(self, translator, lines):
        super().__init__()
        self._translator, self._lines = translator, list(lines)
        self._epoch = 0

    def on_epoch_begin(self, epoch, logs=None):
        self._epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        if self._epoch == 0 and batch + 1 in MOMENTS:
            results = self._translator(self._lines)
            said = "; ".join(
                f"{line}: {text or '(nothing)'}"
                for line, text in zip(self._lines, results.text, strict=True)
            )
            print(f"\nAfter {batch + 1} batches: {said}")
