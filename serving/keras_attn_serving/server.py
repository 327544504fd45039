"""The development server: one model behind TensorFlow Serving's gRPC services.

It answers with TensorFlow Serving's codes, texts and encodings, so that a
client that works here works there. It loads one version, the newest, when it
starts, and does not batch, reload or answer REST.

An event loop in a thread of its own receives the calls; see `workers` for what
runs them.
"""

import asyncio
import os
import threading

import grpc

try:
    from grpc_health.v1 import health
    from grpc_health.v1 import health_pb2
    from grpc_health.v1 import health_pb2_grpc
    from grpc_reflection.v1alpha import reflection
    from tensorflow_serving.apis import model_service_pb2
    from tensorflow_serving.apis import model_service_pb2_grpc
    from tensorflow_serving.apis import prediction_service_pb2
    from tensorflow_serving.apis import prediction_service_pb2_grpc

    from keras_attn_serving.limits import Limits
    from keras_attn_serving.model import LoadError as LoadError
    from keras_attn_serving.model import Model
    from keras_attn_serving.service import ModelService
    from keras_attn_serving.service import PredictionService
    from keras_attn_serving.warm_up import warm_up as replay
    from keras_attn_serving.workers import Workers
except ModuleNotFoundError as error:
    raise ImportError(
        f"The server needs {error.name!r}, which is not installed. Install the "
        "extra `server`: pip install 'keras-attn-serving[server]'."
    ) from error

# Importing their modules also lets reflection describe the services.
_PREDICTION = prediction_service_pb2.DESCRIPTOR.services_by_name[
    "PredictionService"
].full_name
_MODEL = model_service_pb2.DESCRIPTOR.services_by_name["ModelService"].full_name

# TensorFlow Serving's health service also knows the short names.
_HEALTH_NAMES = ("", "PredictionService", "ModelService", _PREDICTION, _MODEL)


class Server:
    """Serves the newest version of a model.

    The model is loaded and warmed up first; then the port opens.

    Example:
        ```python
        with Server("models/pronounce", "pronounce", port=0) as server:
            Client(server.address, model="pronounce").predict(["attention"])
        ```

    Args:
        model_base_path: Directory of the model's versions.
        model_name: Name under which the model is served.
        port: Port to listen on; 0 for any free one.
        host: Interface to listen on. Defaults to this machine only;
            `"0.0.0.0"`, TensorFlow Serving's choice, for all.
        warm_up: Whether to replay the export's warm-up requests.
        threads: Number of calls that run at a time; others wait. Defaults to
            4 for each core, as in TensorFlow Serving.
        limits: What a request may ask. Defaults to `Limits()`.

    Attributes:
        port: The port it listens on.
        address: `host:port`, for a client on this machine.
        version: The version it serves.

    Raises:
        LoadError: If the model cannot be loaded or fails its warm-up.
        OSError: If the port is taken.
    """

    def __init__(
        self,
        model_base_path: str | os.PathLike,
        model_name: str = "default",
        port: int = 8500,
        *,
        host: str = "localhost",
        warm_up: bool = True,
        threads: int | None = None,
        limits: Limits | None = None,
    ):
        self._limits = limits or Limits()
        self._model = Model(model_name, os.fspath(model_base_path))
        if warm_up:
            try:
                replay(self._model)
            except BaseException:
                self._model.close()
                raise
        self._workers = Workers(
            threads or 4 * (os.cpu_count() or 1),
            self._limits.queued_calls,
            self._limits.run_seconds,
            4 * self._limits.message_bytes,
        )
        self._stopping = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever,
            name="keras_attn_serving",
            daemon=True,
        )
        self._thread.start()
        try:
            self.port = self._wait_for(self._start(host, port))
        except BaseException:
            self._close()
            raise
        self.address = f"{_reachable(host)}:{self.port}"
        self.version = self._model.version

    def stop(self, grace: float = 10.0) -> None:
        """Refuses new calls, finishes those in flight, and closes.

        Args:
            grace: Seconds after which calls still running are cancelled.
        """
        with self._stopping:
            if self._thread.is_alive():
                self._wait_for(self._stop(grace))
                self._close()

    def _wait_for(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    async def _start(self, host, port):
        """Opens the port and returns it."""
        most = self._limits.message_bytes
        self._server = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", most),
                # -1 is gRPC's largest, 2**31 - 1 bytes.
                ("grpc.max_send_message_length", -1),
                # Otherwise two servers could share a port and take turns.
                ("grpc.so_reuseport", 0),
            ],
        )
        service = PredictionService(self._model, self._workers, self._limits)
        # The first handler of a method counts: `Predict` takes bytes.
        raw = {"Predict": grpc.unary_unary_rpc_method_handler(service.Predict)}
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(_PREDICTION, raw),)
        )
        prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(
            service, self._server
        )
        model_service_pb2_grpc.add_ModelServiceServicer_to_server(
            ModelService(self._model), self._server
        )
        self._health = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection(
            (
                _PREDICTION,
                _MODEL,
                health.SERVICE_NAME,
                reflection.SERVICE_NAME,
            ),
            self._server,
        )
        port = _bind(self._server, host, port)
        for name in _HEALTH_NAMES:
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        await self._server.start()
        return port

    async def _stop(self, grace):
        await self._health.enter_graceful_shutdown()
        await self._server.stop(grace)

    def _close(self):
        """Ends the event loop and the threads, and frees the model."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._model.close()  # ends runs that no call waits for
        self._workers.close()
        self._loop.close()

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *exception) -> None:
        self.stop()


def _bind(server, host, port):
    address = f"{host}:{port}"
    try:
        bound = server.add_insecure_port(address)
    except RuntimeError:
        bound = 0
    if not bound:
        raise OSError(
            "The server needs a free port and cannot listen on another. "
            f"Received: {address}. Is another server running there? Choose "
            "another port, or 0 for any free one."
        )
    return bound


def _reachable(host):
    return "localhost" if host in ("0.0.0.0", "[::]") else host
