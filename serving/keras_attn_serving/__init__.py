"""Queries exported models over gRPC and REST; serves them in development.

The clients speak TensorFlow Serving's protocols and need no TensorFlow. The
development server needs the extra `server`: `python -m keras_attn_serving`.
"""

from keras_attn_serving.client import AsyncClient as AsyncClient
from keras_attn_serving.client import Client as Client
from keras_attn_serving.client import RestClient as RestClient
from keras_attn_serving.onnx import OnnxModel as OnnxModel
from keras_attn_serving.transcription import Segment as Segment
from keras_attn_serving.transcription import transcribe as transcribe
from keras_attn_serving.wire.results import Alignment as Alignment
from keras_attn_serving.wire.results import Result as Result
from keras_attn_serving.wire.results import RowError as RowError
from keras_attn_serving.wire.results import ServingError as ServingError
from keras_attn_serving.wire.results import Token as Token
from keras_attn_serving.wire.results import Transcript as Transcript
from keras_attn_serving.wire.results import Word as Word

__version__ = "0.4.0"
