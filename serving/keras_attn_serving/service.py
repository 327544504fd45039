"""TensorFlow Serving's gRPC services, answered by one loaded model.

The methods run in the server's event loop; `Workers` runs the model.
"""

import functools
from collections.abc import Callable
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from tensorflow_serving.apis import get_model_metadata_pb2
from tensorflow_serving.apis import get_model_status_pb2
from tensorflow_serving.apis import model_service_pb2_grpc
from tensorflow_serving.apis import predict_pb2
from tensorflow_serving.apis import prediction_service_pb2_grpc

from keras_attn_serving.errors import Code
from keras_attn_serving.errors import StatusError
from keras_attn_serving.errors import invalid_argument
from keras_attn_serving.limits import Limits
from keras_attn_serving.model import Model
from keras_attn_serving.predict import predict
from keras_attn_serving.workers import Workers

# gRPC sends the text in a header, so TensorFlow Serving cuts it.
_LONGEST = 1024

_CODES = {code.value[0]: code for code in grpc.StatusCode}


def _answering(method: Callable) -> Callable:
    # Converts a servicer's `StatusError` to a gRPC status for the client.
    @functools.wraps(method)
    async def call(self, request, context):
        try:
            return await method(self, request, context)
        except StatusError as error:
            await context.abort(_CODES[error.code], cut(error.details))

    return call


def cut(details: str) -> str:
    """Cuts the text of an error as TensorFlow Serving does."""
    raw = details.encode("utf-8", "replace")
    if len(raw) <= _LONGEST:
        return details
    return raw[:_LONGEST].decode("utf-8", "ignore") + "...TRUNCATED"


def _refusing(name: str, advice: str) -> Callable:
    async def refuse(self, request, context):
        await context.abort(
            grpc.StatusCode.UNIMPLEMENTED,
            f"The development server does not answer {name}. {advice}",
        )

    refuse.__name__ = name
    return refuse


class PredictionService(prediction_service_pb2_grpc.PredictionServiceServicer):
    """Answers `tensorflow.serving.PredictionService`.

    Args:
        model: The model to serve.
        workers: The threads that run it.
        limits: What a request may ask.
    """

    def __init__(self, model: Model, workers: Workers, limits: Limits):
        self._model, self._workers, self._limits = model, workers, limits

    @_answering
    async def Predict(self, request: bytes, context: grpc.aio.ServicerContext):
        # Bytes in and out: a thread reads and writes the messages, so that
        # large ones keep no other call from an answer.
        run = functools.partial(self._answer, request)
        return await self._workers.run(run, _timeout(context), len(request))

    def _answer(self, raw: bytes, seconds: float) -> bytes:
        try:
            request = predict_pb2.PredictRequest.FromString(raw)
        except DecodeError as error:
            raise StatusError(
                Code.INTERNAL, f"The request is no PredictRequest: {error}"
            ) from error
        _check_spec(self._model, request)
        response = predict(self._model, request, seconds, self._limits)
        return response.SerializeToString()

    @_answering
    async def GetModelMetadata(
        self, request: Any, context: grpc.aio.ServicerContext
    ):
        _require_spec(request)
        if not request.metadata_field:
            raise invalid_argument(
                "GetModelMetadataRequest must specify at least one "
                "metadata_field"
            )
        for field in request.metadata_field:
            if field != "signature_def":
                raise invalid_argument(
                    f"Metadata field {field} is not supported"
                )
        _check_spec(self._model, request)
        signatures = get_model_metadata_pb2.SignatureDefMap()
        for name, signature in self._model.definitions.items():
            signatures.signature_def[name].CopyFrom(signature)
        response = get_model_metadata_pb2.GetModelMetadataResponse()
        response.model_spec.name = self._model.name
        response.model_spec.version.value = self._model.version
        response.metadata["signature_def"].Pack(signatures)
        return response

    _use_predict = "Use Predict, which takes strings and tensors directly."
    Classify = _refusing("Classify", _use_predict)
    Regress = _refusing("Regress", _use_predict)
    MultiInference = _refusing("MultiInference", _use_predict)


class ModelService(model_service_pb2_grpc.ModelServiceServicer):
    """Answers `tensorflow.serving.ModelService`.

    Args:
        model: The model to serve.
    """

    def __init__(self, model: Model):
        self._model = model

    @_answering
    async def GetModelStatus(
        self, request: Any, context: grpc.aio.ServicerContext
    ):
        # As in TensorFlow Serving, an empty name is NOT_FOUND here, and a
        # label is ignored.
        _require_spec(request)
        spec, model = request.model_spec, self._model
        if spec.HasField("version"):
            known = (spec.name, spec.version.value) == (
                model.name,
                model.version,
            )
            missing = f"version {spec.version.value}"
        else:
            known = spec.name == model.name
            missing = "any versions"
        if not known:
            raise StatusError(
                Code.NOT_FOUND,
                f"Could not find {missing} of model {spec.name}",
            )
        response = get_model_status_pb2.GetModelStatusResponse()
        status = response.model_version_status.add()
        status.version = model.version
        status.state = get_model_status_pb2.ModelVersionStatus.AVAILABLE
        status.status.SetInParent()  # present and OK
        return response

    HandleReloadConfigRequest = _refusing(
        "HandleReloadConfigRequest",
        "It serves the one model that it was started with. Start it again "
        "with another.",
    )


def _timeout(context):
    # gRPC gives a call without a deadline one in the far future.
    remaining = context.time_remaining()
    return None if remaining is None or remaining > 1e9 else remaining


def _require_spec(request):
    if not request.HasField("model_spec"):
        raise invalid_argument("Missing ModelSpec")


def _check_spec(model, request):
    _require_spec(request)
    spec = request.model_spec
    if not spec.name:
        raise invalid_argument("ModelSpec has no name specified.")
    choice = spec.WhichOneof("version_choice")
    if choice == "version_label":
        # Labels come from TensorFlow Serving's model config file.
        raise invalid_argument(
            f"Unrecognized servable version label: {spec.version_label}"
        )
    if choice == "version":
        found = spec.version.value == model.version
        wanted = f"Specific({spec.name}, {spec.version.value})"
    else:
        found, wanted = True, f"Latest({spec.name})"
    if spec.name != model.name or not found:
        raise StatusError(
            Code.NOT_FOUND,
            f"Servable not found for request: {wanted}",
        )
