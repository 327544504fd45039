"""A model version on disk: found, loaded, warmed up, and asked to predict."""

from collections.abc import Iterator

import grpc
import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow_serving.apis import predict_pb2
from tensorflow_serving.apis import prediction_log_pb2

from keras_attn_serving import protocol
from keras_attn_serving.engine import Engine
from keras_attn_serving.errors import StatusError
from keras_attn_serving.validation import plan

_WARM_UP_FILE = "assets.extra/tf_serving_warmup_requests"
_MOST_WARM_UPS = 1000  # TensorFlow Serving's own limit


class LoadError(Exception):
    """A model directory that cannot be served, and why."""


class Model:
    """A loaded version of a model.

    Args:
        name: The name it is served under.
        base_path: Directory of its versions: subdirectories whose names are
            integers. The newest, the largest number, is loaded.
        warm_up: Whether to replay the requests that the export brings along
            in `assets.extra/tf_serving_warmup_requests`.

    Raises:
        LoadError: If there is no version to load, or the newest fails to load
            or to answer its warm-up requests.
    """

    def __init__(self, name: str, base_path: str, warm_up: bool = True):
        self.name = name
        self.version, path = newest_version(base_path)
        try:
            self._engine = Engine(path)
        except (StatusError, OSError, RuntimeError, ValueError) as error:
            raise LoadError(
                f"Version {self.version} of model {name!r} at {path} cannot "
                f"be loaded: {error}"
            ) from error
        self.signatures = self._engine.signatures
        if warm_up:
            try:
                self._warm_up(path)
            except BaseException:
                self.close()
                raise

    def predict(
        self,
        request: predict_pb2.PredictRequest,
        timeout: float | None = None,
    ) -> predict_pb2.PredictResponse:
        """Answers a request; its model name and version are not looked at.

        Raises:
            StatusError: If the request is at fault or its run fails.
        """
        signature, feeds, outputs = plan(self.signatures, request)
        values = self._engine.run(feeds, tuple(outputs.values()), timeout)
        response = predict_pb2.PredictResponse()
        response.model_spec.name = self.name
        response.model_spec.signature_name = signature
        response.model_spec.version.value = self.version
        for alias, value in zip(outputs, values, strict=True):
            try:
                protocol.encode(value, response.outputs[alias])
            except ValueError as error:
                raise StatusError(
                    grpc.StatusCode.UNIMPLEMENTED,
                    f'Output "{alias}" cannot be sent: {error}',
                ) from error
        return response

    def close(self) -> None:
        """Frees the model."""
        self._engine.close()

    def _warm_up(self, path):
        file = tf.io.gfile.join(path, _WARM_UP_FILE)
        if not tf.io.gfile.exists(file):
            return
        for number, log in enumerate(_read_logs(file), start=1):
            if number > _MOST_WARM_UPS:
                raise LoadError(
                    "Number of warmup records exceeds the maximum "
                    f"({_MOST_WARM_UPS}) at {file}"
                )
            kind = log.WhichOneof("log_type")
            if kind != "predict_log":
                raise LoadError(
                    f"Warm-up record {number} of {file} must be a predict_log. "
                    f"Received: {kind}. Other requests are not served here."
                )
            try:
                self.predict(log.predict_log.request)
            except StatusError as error:
                raise LoadError(
                    f"Warm-up record {number} of {file} failed, and TensorFlow "
                    f"Serving refuses a model whose warm-up fails: {error}"
                ) from error


def newest_version(base_path: str) -> tuple[int, str]:
    """Returns the largest version number under `base_path`, and its directory.

    Raises:
        LoadError: If there is none.
    """
    if not tf.io.gfile.isdir(base_path):
        raise LoadError(
            f"The model's base path must be a directory of versions. "
            f"Received: {base_path!r}, which is not a directory."
        )
    if tf.io.gfile.exists(tf.io.gfile.join(base_path, "saved_model.pb")):
        raise LoadError(
            "The model's base path must be the directory above the versions. "
            f"Received: {base_path!r}, which is itself a SavedModel. Move it "
            "to a subdirectory named by its version, such as "
            f"{tf.io.gfile.join(base_path, '1')!r}, or pass the directory "
            "above if it is one."
        )
    versions = {}
    for entry in tf.io.gfile.listdir(base_path):
        entry = entry.rstrip("/")  # object stores name directories so
        path = tf.io.gfile.join(base_path, entry)
        if entry.isascii() and entry.isdigit() and tf.io.gfile.isdir(path):
            versions[int(entry)] = path
    if not versions:
        raise LoadError(
            "The model's base path must hold a directory for each version, "
            f"named by an integer, such as {base_path}/1. Received: "
            f"{base_path!r}, which has none."
        )
    return max(versions.items())


def _read_logs(file: str) -> Iterator[prediction_log_pb2.PredictionLog]:
    # The v1 iterator is the one public reader that needs no eager context.
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
