"""Runs an export's warm-up requests before the server takes others."""

import itertools
import logging
import time

import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow_serving.apis import prediction_log_pb2

from keras_attn_serving.server.errors import Code
from keras_attn_serving.server.errors import StatusError
from keras_attn_serving.server.model import DEFAULT_SIGNATURE
from keras_attn_serving.server.model import LoadError
from keras_attn_serving.server.model import Model
from keras_attn_serving.server.predict import predict

_LOG = logging.getLogger(__name__)

_FILE = "assets.extra/tf_serving_warmup_requests"
_MOST = 1000  # TensorFlow Serving's own limit


def warm_up(model: Model, iterations: int = 1) -> None:
    """Answers the requests in `assets.extra/tf_serving_warmup_requests`.

    Args:
        model: The model.
        iterations: How often to answer each.

    Raises:
        LoadError: If a request fails or is of a kind that is not served here,
            or if there are more than 1,000.
    """
    file = tf.io.gfile.join(model.path, _FILE)
    if not tf.io.gfile.exists(file):
        return
    logs = _read_logs(file)
    if len(logs) > _MOST:
        raise LoadError(
            f"Number of warmup records exceeds the maximum ({_MOST}) at {file}",
            Code.INVALID_ARGUMENT,
        )
    started = time.monotonic()
    for number, log in enumerate(logs, start=1):
        record = f"{number} of {len(logs)}"
        kind = log.WhichOneof("log_type")
        if kind != "predict_log":
            raise LoadError(
                f"Warm-up record {record} of {file} must be a predict_log. "
                f"Received: {kind}. Other requests are not served here.",
                Code.UNIMPLEMENTED,
            )
        request = log.predict_log.request
        _LOG.info(
            "warming up model=%s version=%s record=%s signature=%s",
            model.name,
            model.version,
            record.replace(" of ", "/"),
            request.model_spec.signature_name or DEFAULT_SIGNATURE,
        )
        try:
            for _ in range(iterations):
                predict(model, request)
        except StatusError as error:
            raise LoadError(
                f"Warm-up record {record} of {file} failed, and TensorFlow "
                f"Serving refuses a model whose warm-up fails: {error}",
                error.code,
            ) from error
    _LOG.info(
        "warmed up model=%s version=%s records=%d seconds=%.3f",
        model.name,
        model.version,
        len(logs),
        time.monotonic() - started,
    )


def _read_logs(file: str) -> list[prediction_log_pb2.PredictionLog]:
    """Returns the records of a file, at most one more than are allowed."""
    # The v1 iterator is the only public reader that needs no eager context.
    records = tf.compat.v1.io.tf_record_iterator(file)
    try:
        return [
            prediction_log_pb2.PredictionLog.FromString(record)
            for record in itertools.islice(records, _MOST + 1)
        ]
    except tf.errors.OpError as error:
        raise LoadError(
            f"{file} cannot be read: {error.message}. Please verify your "
            "warmup data is in TFRecord format.",
            Code(error.error_code),
        ) from error
    except DecodeError as error:
        raise LoadError(
            f"{file} holds no PredictionLog: {error}", Code.INVALID_ARGUMENT
        ) from error
