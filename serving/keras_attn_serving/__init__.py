"""Queries, and in development serves, exported models over gRPC.

`Client` speaks TensorFlow Serving's protocol and needs no TensorFlow. The
development server needs the extra `server`: `python -m keras_attn_serving`.
"""

from keras_attn_serving.client import Client as Client
from keras_attn_serving.results import Alignment as Alignment
from keras_attn_serving.results import Result as Result
from keras_attn_serving.results import RowError as RowError
from keras_attn_serving.results import ServingError as ServingError

__version__ = "0.3.0"
