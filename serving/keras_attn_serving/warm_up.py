"""Runs an export's warm-up requests before the server takes others."""

from collections.abc import Iterator

import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow_serving.apis import prediction_log_pb2

from keras_attn_serving.errors import StatusError
from keras_attn_serving.model import LoadError
from keras_attn_serving.model import Model
from keras_attn_serving.predict import predict

_FILE = "assets.extra/tf_serving_warmup_requests"
_MOST = 1000  # TensorFlow Serving's own limit


def warm_up(model: Model, iterations: int = 1) -> None:
    """Answers the requests in `assets.extra/tf_serving_warmup_requests`.

    Args:
        model: The model.
        iterations: How often to answer each.

    Raises:
        LoadError: If one fails, or is of a kind that is not served here.
    """
    file = tf.io.gfile.join(model.path, _FILE)
    if not tf.io.gfile.exists(file):
        return
    for number, log in enumerate(_read_logs(file), start=1):
        if number > _MOST:
            raise LoadError(
                f"Number of warmup records exceeds the maximum ({_MOST}) at "
                f"{file}"
            )
        kind = log.WhichOneof("log_type")
        if kind != "predict_log":
            raise LoadError(
                f"Warm-up record {number} of {file} must be a predict_log. "
                f"Received: {kind}. Other requests are not served here."
            )
        try:
            for _ in range(iterations):
                predict(model, log.predict_log.request)
        except StatusError as error:
            raise LoadError(
                f"Warm-up record {number} of {file} failed, and TensorFlow "
                f"Serving refuses a model whose warm-up fails: {error}"
            ) from error


def _read_logs(file: str) -> Iterator[prediction_log_pb2.PredictionLog]:
    # The v1 iterator is the only public reader that needs no eager context.
    try:
        for record in tf.compat.v1.io.tf_record_iterator(file):
            yield prediction_log_pb2.PredictionLog.FromString(record)
    except tf.errors.OpError as error:
        raise LoadError(
            f"{file} cannot be read: {error.message}. Please verify your "
            "warmup data is in TFRecord format."
        ) from error
    except DecodeError as error:
        raise LoadError(f"{file} holds no PredictionLog: {error}") from error
