"""`Gap`: the end of an epoch that `DecodingMetrics` passes over.

The logs of such an epoch have no score. Keras's callbacks warn of that and do
one of two things: they pass the epoch over, or they save the model as if it
was the best.
"""

import contextlib
import re
import warnings

from keras_attn.keras_internals import PASSES_OVER
from keras_attn.keras_internals import SAVES_WITHOUT


class Gap:
    """Answers Keras's warnings of a missing score while it is open.

    Warnings of callbacks that pass the epoch over are silenced, since that is
    what a caller of `DecodingMetrics(every=n)` wants. A callback that would
    overwrite the best model is refused. Other warnings, and those about other
    names, stay as they are.

    Args:
        names: Names of the scores in the logs.
    """

    def __init__(self, names):
        self._names = "|".join(map(re.escape, names))
        self._stack = contextlib.ExitStack()

    def open(self):
        """Begins to answer, until `close()`."""
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
                "model after an epoch without a score. Received: one beside "
                "`DecodingMetrics(every=...)`, and Keras's warning "
                f"{str(message)!r}. Use `keras_attn.BestCheckpoint(filepath, "
                "monitor, mode)`, or `every=1`."
            )

        warnings.showwarning = answer

    def close(self):
        """Leaves warnings as they were before `open()`."""
        self._stack.close()
