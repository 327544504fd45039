"""Starts TensorFlow without its notes about the machine.

TensorFlow writes to standard error while its libraries load, before it reads
`TF_CPP_MIN_LOG_LEVEL`. Without a GPU it also writes a line with "CUDA error"
when it looks for one, and later others of level E about what it does instead.
A library should not hide these notes. A program whose user did not ask for them
should: every failure is an exception as well, and fatal errors are still shown.
"""

import contextlib
import faulthandler
import importlib.util
import os
import sys
import tempfile
from collections.abc import Iterator

_LEVEL = "TF_CPP_MIN_LOG_LEVEL"


def start_tensorflow() -> None:
    """Imports TensorFlow and looks for devices, without its notes.

    Programs call it before anything else imports TensorFlow. Later notes are
    hidden as well. The notes of the import are shown if it fails;
    `TF_CPP_MIN_LOG_LEVEL=0` in the environment shows all.
    """
    level = os.environ.setdefault(_LEVEL, "3")
    if level == "0" or "tensorflow" in sys.modules:
        return
    if importlib.util.find_spec("tensorflow") is None:
        return  # the code that needs it raises the error
    with _held_back():
        import tensorflow as tf

        tf.config.list_physical_devices()


@contextlib.contextmanager
def _held_back() -> Iterator[None]:
    """Holds back what the process writes to its standard error.

    The notes come from C++, so the file descriptor itself is redirected.
    """
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as notes:
        # Without this, a crash in C++ would end the process without a message.
        faulthandler.enable(kept)
        os.dup2(notes.fileno(), 2)
        try:
            yield
        except BaseException:
            notes.seek(0)
            os.write(kept, notes.read())
            raise
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            faulthandler.disable()
            os.close(kept)
