"""The development server: models behind TensorFlow Serving's gRPC and REST.

`Server` and the classes of its arguments are imported on first use. They need
TensorFlow, and the command must set TensorFlow's environment before.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from keras_attn_serving.server.config import ConfigError
    from keras_attn_serving.server.model import LoadError
    from keras_attn_serving.server.server import Loading
    from keras_attn_serving.server.server import Rest
    from keras_attn_serving.server.server import Server

__all__ = ["ConfigError", "LoadError", "Loading", "Rest", "Server"]


def __getattr__(name):
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.server")
    return getattr(module, name)
