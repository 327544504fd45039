"""TensorFlow Serving's gRPC services.

The methods run in the server's event loop. Work that grows with a request does
not: the executor runs the models, and `Aside` the rest.
"""

import asyncio
import functools
import time

import grpc
from tensorflow_serving.apis import classification_pb2
from tensorflow_serving.apis import get_model_metadata_pb2
from tensorflow_serving.apis import get_model_status_pb2
from tensorflow_serving.apis import inference_pb2
from tensorflow_serving.apis import model_management_pb2
from tensorflow_serving.apis import model_service_pb2
from tensorflow_serving.apis import prediction_service_pb2
from tensorflow_serving.apis import regression_pb2

from keras_attn_serving.server import config
from keras_attn_serving.server import descriptions
from keras_attn_serving.server import examples
from keras_attn_serving.server.aside import Aside
from keras_attn_serving.server.calls import Executor
from keras_attn_serving.server.catalog import Catalog
from keras_attn_serving.server.errors import Code
from keras_attn_serving.server.errors import StatusError
from keras_attn_serving.server.errors import invalid_argument
from keras_attn_serving.server.limits import Limits
from keras_attn_serving.server.metrics import Metrics
from keras_attn_serving.server.parsing import parse
from keras_attn_serving.server.predict import PredictCall
from keras_attn_serving.server.predict import read_spec
from keras_attn_serving.server.rpcs import Rpcs


class PredictionService:
    """Answers `tensorflow.serving.PredictionService`.

    Args:
        catalog: The models that are served.
        executor: Runs the calls.
        aside: The threads for methods that run no model.
        limits: The size limits of a request.
        metrics: Counts requests.
        rpcs: The calls that wait for their clients.
    """

    def __init__(
        self,
        catalog: Catalog,
        executor: Executor,
        aside: Aside,
        limits: Limits,
        metrics: Metrics,
        rpcs: Rpcs,
    ):
        self._catalog, self._executor, self._aside = catalog, executor, aside
        self._limits, self._metrics, self._rpcs = limits, metrics, rpcs

    async def Predict(self, request: bytes, context: grpc.aio.ServicerContext):
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

    async def GetModelMetadata(
        self, request: bytes, context: grpc.aio.ServicerContext
    ):
        return await self._read(request, context, self._metadata)

    async def Classify(self, request: bytes, context: grpc.aio.ServicerContext):
        return await self._read(request, context, self._classify)

    async def Regress(self, request: bytes, context: grpc.aio.ServicerContext):
        return await self._read(request, context, self._regress)

    async def MultiInference(
        self, request: bytes, context: grpc.aio.ServicerContext
    ):
        return await self._read(request, context, self._multi_inference)

    def handlers(self) -> grpc.GenericRpcHandler:
        """Returns what gRPC's server needs to call the methods."""
        return _handlers(
            prediction_service_pb2.DESCRIPTOR.services_by_name[
                "PredictionService"
            ],
            self,
            self._rpcs,
        )

    async def _read(self, request, context, method):
        return await self._aside.run(
            functools.partial(method, request),
            len(request),
            _timeout(context),
        )

    def _metadata(self, raw):
        request = self._message(
            get_model_metadata_pb2.GetModelMetadataRequest, raw
        )
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
        found = descriptions.metadata(self._catalog, spec)
        return found.SerializeToString()

    def _message(self, kind, raw):
        return parse(kind, raw, self._limits.message_bytes)

    def _classify(self, raw):
        self._refuse(classification_pb2.ClassificationRequest, raw, "classify")

    def _regress(self, raw):
        self._refuse(regression_pb2.RegressionRequest, raw, "regress")

    def _multi_inference(self, raw):
        request = self._message(inference_pb2.MultiInferenceRequest, raw)
        examples.refuse_several(self._catalog, request)

    def _refuse(self, kind_of_request, raw, kind):
        request = self._message(kind_of_request, raw)
        signature = request.model_spec.signature_name
        examples.refuse(self._catalog, read_spec(request), signature, kind)


class ModelService:
    """Answers `tensorflow.serving.ModelService`.

    Args:
        catalog: The models that are served.
        aside: The threads for its methods.
        limits: The size limits of a request.
        rpcs: The calls that wait for their clients.
    """

    def __init__(
        self, catalog: Catalog, aside: Aside, limits: Limits, rpcs: Rpcs
    ):
        self._catalog, self._aside = catalog, aside
        self._limits, self._rpcs = limits, rpcs

    async def GetModelStatus(
        self, request: bytes, context: grpc.aio.ServicerContext
    ):
        return await self._aside.run(
            functools.partial(self._status, request),
            len(request),
            _timeout(context),
        )

    async def HandleReloadConfigRequest(
        self, request: bytes, context: grpc.aio.ServicerContext
    ):
        reload = functools.partial(self._reload, request)
        return await self._aside.reload(reload, len(request))

    def handlers(self) -> grpc.GenericRpcHandler:
        """Returns what gRPC's server needs to call the methods."""
        return _handlers(
            model_service_pb2.DESCRIPTOR.services_by_name["ModelService"],
            self,
            self._rpcs,
        )

    def _message(self, kind, raw):
        return parse(kind, raw, self._limits.message_bytes)

    def _status(self, raw):
        request = self._message(get_model_status_pb2.GetModelStatusRequest, raw)
        found = descriptions.status(self._catalog, read_spec(request))
        return found.SerializeToString()

    def _reload(self, raw):
        request = self._message(model_management_pb2.ReloadConfigRequest, raw)
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
        self._catalog.reload(configs)
        return model_management_pb2.ReloadConfigResponse().SerializeToString()


def _handlers(service, servicer, rpcs):
    methods = {
        method.name: rpcs.unary(getattr(servicer, method.name))
        for method in service.methods
    }
    return grpc.method_handlers_generic_handler(service.full_name, methods)


def _timeout(context):
    # gRPC gives a call without a deadline one in the far future.
    remaining = context.time_remaining()
    return None if remaining is None or remaining > 1e9 else remaining
