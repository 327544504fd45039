"""Switches XLA off for this process, as TensorFlow Serving does.

By default TensorFlow Serving compiles nothing, and a function saved with
`jit_compile=True` fails there with "XLA compilation disabled". A development
server that compiled it would hide that failure until production.
"""

import ctypes
import pathlib

# The mangled C++ name of `tensorflow::DisableXlaCompilation()`. It has no
# Python name; TensorFlow Serving's main.cc calls it.
_SWITCH = "_ZN10tensorflow21DisableXlaCompilationEv"

# In the text of TensorFlow's error, and what to do then.
DISABLED = "XLA compilation disabled"
REMEDY = (
    "The model was exported with jit_compile=True. Start the server with "
    "--xla_cpu_compilation_enabled or --xla_gpu_compilation_enabled, or "
    "export it without."
)


def disable_xla() -> bool:
    """Calls `tensorflow::DisableXlaCompilation()`, which cannot be undone.

    Returns:
        Whether this build of TensorFlow exports the switch.
    """
    import tensorflow as tf

    folder = pathlib.Path(tf.__file__).parent
    for library in sorted(folder.glob("libtensorflow_cc.*")):
        try:
            switch = ctypes.CDLL(str(library))[_SWITCH]
        except (AttributeError, OSError):
            continue
        switch.restype = None
        switch()
        return True
    return False
