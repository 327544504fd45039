"""`Gap`: the end of an epoch in which `DecodingMetrics` does not decode.

The logs of such an epoch have no score. Keras's callbacks warn of that. Some
skip the epoch; `ModelCheckpoint` saves the model as if it were the best.
"""

import contextlib
import re
import warnings

from keras_attn.keras_internals import PASSES_OVER
from keras_attn.keras_internals import SAVES_WITHOUT


class Gap:
    """Handles Keras's warnings of a missing score, from `open` to `close`.

    Warnings of callbacks that skip the epoch are silenced, since a caller of
    `DecodingMetrics(every=n)` wants them to skip it. A callback that would
    overwrite the best model is refused. Other warnings, and those about other
    names, are shown as usual.

    Args:
        names: Names of the scores in the logs.
    """

    def __init__(self, names):
        self._names = "|".join(map(re.escape, names))
        self._stack = contextlib.ExitStack()

    def open(self):
        """Begins to handle warnings, until `close()`."""
        self.close()
        self._stack.enter_context(warnings.catch_warnings())
        for text in PASSES_OVER:
            warnings.filterwarnings("ignore", text.format(self._names))
        saves = SAVES_WITHOUT.format(self._names)
        warnings.filterwarnings("always", saves)
        show = warnings.showwarning

        def answer(message, *args, **kwargs):
            if not re.match(saves, str(message)):
                return show(message, *args, **kwargs)
            self.close()
            raise ValueError(
                "`ModelCheckpoint(save_best_only=True)` overwrites the best "
                "model after an epoch without a score. Received: one together "
                "with `DecodingMetrics(every=...)`, and Keras's warning "
                f"{str(message)!r}. Use `keras_attn.BestCheckpoint(filepath, "
                "monitor, mode)`, or `every=1`."
            )

        warnings.showwarning = answer

    def close(self):
        """Restores the handling of warnings from before `open()`."""
        self._stack.close()
