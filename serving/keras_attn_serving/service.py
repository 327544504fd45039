"""TensorFlow Serving's gRPC services.

The methods run in the server's event loop; the executor runs the models.
"""

import asyncio
import functools
import time
from collections.abc import Callable
from typing import Any

import grpc
from tensorflow_serving.apis import model_management_pb2
from tensorflow_serving.apis import model_service_pb2_grpc
from tensorflow_serving.apis import prediction_service_pb2_grpc

from keras_attn_serving import config
from keras_attn_serving import descriptions
from keras_attn_serving import examples
from keras_attn_serving.calls import Executor
from keras_attn_serving.catalog import Catalog
from keras_attn_serving.errors import Code
from keras_attn_serving.errors import StatusError
from keras_attn_serving.errors import invalid_argument
from keras_attn_serving.limits import Limits
from keras_attn_serving.metrics import Metrics
from keras_attn_serving.predict import PredictCall
from keras_attn_serving.predict import read_spec

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
            if context.cancelled():  # no one waits for the status
                return None
            await context.abort(_CODES[error.code], cut(error.details))

    return call


def cut(details: str) -> str:
    """Cuts the text of an error as TensorFlow Serving does."""
    raw = details.encode("utf-8", "replace")
    if len(raw) <= _LONGEST:
        return details
    return raw[:_LONGEST].decode("utf-8", "ignore") + "...TRUNCATED"


class PredictionService(prediction_service_pb2_grpc.PredictionServiceServicer):
    """Answers `tensorflow.serving.PredictionService`.

    Args:
        catalog: The models that are served.
        executor: What runs the calls.
        limits: What a request may ask.
        metrics: Counts requests.
    """

    def __init__(
        self,
        catalog: Catalog,
        executor: Executor,
        limits: Limits,
        metrics: Metrics,
    ):
        self._catalog, self._executor = catalog, executor
        self._limits, self._metrics = limits, metrics

    @_answering
    async def Predict(self, request: bytes, context: grpc.aio.ServicerContext):
        # Bytes in and out: the executor says who reads and writes them.
        call = PredictCall(request, self._catalog, self._limits)
        started, code = time.perf_counter(), Code.OK
        try:
            return await self._executor.answer(call, _timeout(context))
        except StatusError as error:
            code = error.code
            raise
        except asyncio.CancelledError:  # the client has left, or gRPC gave up
            late = _timeout(context) is not None and _timeout(context) <= 0
            code = Code.DEADLINE_EXCEEDED if late else Code.CANCELLED
            raise
        except BaseException:
            code = Code.UNKNOWN
            raise
        finally:
            seconds = time.perf_counter() - started
            name = self._catalog.known(call.model_name())
            self._metrics.request(name, "Predict", "GRPC", code, seconds)

    @_answering
    async def GetModelMetadata(
        self, request: Any, context: grpc.aio.ServicerContext
    ):
        spec = read_spec(request)
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
        return descriptions.metadata(self._catalog, spec)

    @_answering
    async def Classify(self, request: Any, context: grpc.aio.ServicerContext):
        self._refuse(request, "classify")

    @_answering
    async def Regress(self, request: Any, context: grpc.aio.ServicerContext):
        self._refuse(request, "regress")

    @_answering
    async def MultiInference(
        self, request: Any, context: grpc.aio.ServicerContext
    ):
        specs = [read_spec(task) for task in request.tasks]
        examples.refuse_several(self._catalog, request, specs)

    def _refuse(self, request, kind):
        signature = request.model_spec.signature_name
        examples.refuse(self._catalog, read_spec(request), signature, kind)


class ModelService(model_service_pb2_grpc.ModelServiceServicer):
    """Answers `tensorflow.serving.ModelService`.

    Args:
        catalog: The models that are served.
    """

    def __init__(self, catalog: Catalog):
        self._catalog = catalog

    @_answering
    async def GetModelStatus(
        self, request: Any, context: grpc.aio.ServicerContext
    ):
        return descriptions.status(self._catalog, read_spec(request))

    @_answering
    async def HandleReloadConfigRequest(
        self, request: Any, context: grpc.aio.ServicerContext
    ):
        try:
            configs = config.models(request.config)
        except config.ConfigError as error:
            raise invalid_argument(str(error)) from error
        if request.metric_names:
            raise StatusError(
                Code.UNIMPLEMENTED,
                "The development server reports no changes of metrics. Leave "
                "metric_names out.",
            )
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self._catalog.reload, configs)
        return model_management_pb2.ReloadConfigResponse()


def _timeout(context):
    # gRPC gives a call without a deadline one in the far future.
    remaining = context.time_remaining()
    return None if remaining is None or remaining > 1e9 else remaining
