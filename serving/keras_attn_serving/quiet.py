"""Starts TensorFlow without its notes about the machine.

TensorFlow writes to standard error while its libraries load, before it reads
`TF_CPP_MIN_LOG_LEVEL`. Without a GPU it also writes a line with "CUDA error"
when it looks for one, and later others of level E about what it does instead.
A library should leave them alone. A program whose user did not ask for them
should be quiet: what fails is an exception as well, and what is fatal is shown.
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

    It is for programs, before anything else imports TensorFlow. Later notes
    are hidden as well. Those of the import are shown if it fails, and all with
    `TF_CPP_MIN_LOG_LEVEL=0` in the environment.
    """
    level = os.environ.setdefault(_LEVEL, "3")
    if level == "0" or "tensorflow" in sys.modules:
        return
    if importlib.util.find_spec("tensorflow") is None:
        return  # whoever needs it says so
    with _held_back():
        import tensorflow as tf

        tf.config.list_physical_devices()


@contextlib.contextmanager
def _held_back() -> Iterator[None]:
    """Holds back what the process writes to its standard error.

    The notes come from C++, so it is the file descriptor that leads elsewhere.
    """
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as notes:
        # A crash in C++ would end the process without a word.
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
