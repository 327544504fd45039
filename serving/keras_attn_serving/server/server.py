"""The development server: models behind TensorFlow Serving's gRPC and REST.

It answers with TensorFlow Serving's codes, texts and encodings, so a client
that works here also works there.

An event loop in its own thread receives the calls; an `Executor` runs them in
other threads. `Catalog` loads and unloads versions in yet another.
"""

import asyncio
import os
import threading
import time
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import grpc

try:
    from tensorflow_serving.apis import model_service_pb2
    from tensorflow_serving.apis import prediction_service_pb2

    from keras_attn_serving.server.aside import Aside
    from keras_attn_serving.server.batching import Batches
    from keras_attn_serving.server.bodies import Bodies
    from keras_attn_serving.server.calls import Alone
    from keras_attn_serving.server.calls import Executor
    from keras_attn_serving.server.catalog import Catalog
    from keras_attn_serving.server.config import Batching
    from keras_attn_serving.server.config import ConfigError as ConfigError
    from keras_attn_serving.server.config import ModelConfig
    from keras_attn_serving.server.config import Tls
    from keras_attn_serving.server.connections import Connections
    from keras_attn_serving.server.engine import Session
    from keras_attn_serving.server.http_server import HttpServer
    from keras_attn_serving.server.limits import Limits
    from keras_attn_serving.server.metrics import Metrics
    from keras_attn_serving.server.model import LoadError as LoadError
    from keras_attn_serving.server.model import Model
    from keras_attn_serving.server.ports import open_sockets
    from keras_attn_serving.server.ports import taken
    from keras_attn_serving.server.probes import HEALTH
    from keras_attn_serving.server.probes import REFLECTION
    from keras_attn_serving.server.probes import Health
    from keras_attn_serving.server.probes import Reflection
    from keras_attn_serving.server.rest import RestApi
    from keras_attn_serving.server.room import Room
    from keras_attn_serving.server.rpcs import Rpcs
    from keras_attn_serving.server.rpcs import make_task
    from keras_attn_serving.server.service import ModelService
    from keras_attn_serving.server.service import PredictionService
    from keras_attn_serving.server.warm_up import warm_up as replay
    from keras_attn_serving.server.workers import Workers
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

# The names in TensorFlow Serving's health service, which are not full names.
_HEALTH_NAMES = ("", "PredictionService", "ModelService")


# Calls that arrive faster than the event loop takes them wait in gRPC. By
# default gRPC cancels them beyond 1,000 or after 30 s, and no client tries
# again after CANCELLED. The loop itself refuses calls with UNAVAILABLE, within
# a millisecond. Each waiting call takes up to 30 kB.
_PATIENCE = (
    ("grpc.server.max_pending_requests", 10_000),
    ("grpc.server.max_pending_requests_hard_limit", 10_000),
    ("grpc.server_max_unrequested_time_in_server", 3600),
)

# Time to send the last answer after its run has ended.
_LAST_SECONDS = 0.5


class Loading(NamedTuple):
    """How versions are found and loaded.

    Attributes:
        warm_up: Whether to replay an export's warm-up requests.
        warm_up_iterations: How often to replay each.
        poll_seconds: Seconds between looks at the directories; 0 for one
            look, at the start.
        retries: How often loading a new version is tried again.
        retry_seconds: Seconds between two tries.
        early_labels: Whether a new label may name a version that is not
            loaded yet.
        session: How TensorFlow runs the models.
    """

    warm_up: bool = True
    warm_up_iterations: int = 1
    poll_seconds: float = 1.0
    retries: int = 5
    retry_seconds: float = 60.0
    early_labels: bool = False
    session: Session = Session()


class _Loader:
    """Loads versions and warms them up."""

    def __init__(self, loading, metrics):
        self._loading, self._metrics = loading, metrics

    def __call__(self, name: str, version: int, path: str) -> Model:
        succeeded = False
        try:
            model = Model(name, version, path, self._loading.session)
            succeeded = True
        finally:
            self._metrics.loaded(path, succeeded)
        if self._loading.warm_up:
            self._warm_up(model)
        return model

    def _warm_up(self, model):
        succeeded, started = False, time.perf_counter()
        try:
            replay(model, self._loading.warm_up_iterations)
            succeeded = True
        finally:
            seconds = time.perf_counter() - started
            self._metrics.warmed_up(model.path, succeeded, seconds)
            if not succeeded:
                model.close()


class Rest(NamedTuple):
    """The REST API.

    Attributes:
        port: Port to listen on; 0 for any free one.
        timeout: Seconds until a request is cancelled; `None` for never.
        cors: Whether web pages of other origins may ask.
        metrics_path: Path under which Prometheus finds metrics, or `None`.
    """

    port: int = 0
    timeout: float | None = 30.0
    cors: bool = False
    metrics_path: str | None = None


class Server:
    """Serves models, and new versions of them as they appear.

    The models are loaded and warmed up first; then the ports open.

    Example:
        ```python
        with Server("models/pronounce", "pronounce", port=0) as server:
            Client(server.address, model="pronounce").predict(["attention"])
        ```

    Args:
        model_base_path: Directory of the model's versions; `None` with
            `models`.
        model_name: Name under which the model is served.
        port: Port to listen on for gRPC; 0 for any free one.
        host: Interface to listen on. Defaults to this machine only;
            `"0.0.0.0"`, TensorFlow Serving's choice, for all.
        models: Several models, instead of the one above.
        rest: The REST API. Defaults to none.
        socket_path: A Unix socket that answers gRPC too.
        tls: Keys and certificates for the gRPC port. Defaults to no
            encryption.
        batching: How requests are joined. Defaults to running each alone.
        loading: How versions are found and loaded. Defaults to `Loading()`.
        threads: Number of calls that run at a time; others wait. Defaults to
            4 for each core, as in TensorFlow Serving. With `batching`, the
            number of calls that are accepted at a time; others are refused, and
            by default there is no limit.
        limits: The size limits of a request. Defaults to `Limits()`.
        connections: How many connections a port takes, and how long they may
            idle. Defaults to `Connections()`.
        channel_arguments: Further arguments of gRPC's server.

    Attributes:
        port: The port it listens on for gRPC.
        address: `host:port`, for a client on this machine.
        rest_port: The port of the REST API, or `None`.
        rest_address: `host:port` of the REST API, or `None`.

    Raises:
        LoadError: If a model cannot be loaded or fails its warm-up.
        ConfigError: If a label names a version that is not loaded, or gRPC
            refuses the keys or certificates.
        OSError: If a port is taken.
        ValueError: If both or neither of `model_base_path` and `models` are
            given.
    """

    def __init__(
        self,
        model_base_path: str | os.PathLike | None = None,
        model_name: str = "default",
        port: int = 8500,
        *,
        host: str = "localhost",
        models: Sequence[ModelConfig] | None = None,
        rest: Rest | None = None,
        socket_path: str | None = None,
        tls: Tls | None = None,
        batching: Batching | None = None,
        loading: Loading | None = None,
        threads: int | None = None,
        limits: Limits | None = None,
        connections: Connections | None = None,
        channel_arguments: Sequence[tuple[str, Any]] = (),
    ):
        if (model_base_path is None) == (models is None):
            raise ValueError(
                "A server needs either `model_base_path` or `models`. "
                f"Received: model_base_path={model_base_path!r}, "
                f"models={models!r}"
            )
        if models is None:
            assert model_base_path is not None
            models = [ModelConfig(model_name, os.fspath(model_base_path))]
        loading = loading or Loading()
        self._limits = limits or Limits()
        self._connections = connections or Connections()
        # Together as many bytes as the calls that wait for a thread.
        self._bodies = Bodies(
            self._limits.message_bytes, 4 * self._limits.message_bytes
        )
        self._metrics = Metrics()
        self._first = models[0].name if models else model_name
        self._tls, self._channel_arguments = tls, list(channel_arguments)
        self._catalog = Catalog(
            models,
            _Loader(loading, self._metrics),
            poll_seconds=loading.poll_seconds,
            retries=loading.retries,
            retry_seconds=loading.retry_seconds,
            early_labels=loading.early_labels,
        )
        self._catalog.start()
        self._aside = Aside(self._limits)
        self._executor: Executor | None = None
        self._stopping = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._loop.set_task_factory(make_task)
        self._thread = threading.Thread(
            target=self._loop.run_forever,
            name="keras_attn_serving",
            daemon=True,
        )
        self._thread.start()
        self._http: HttpServer | None = None
        self.rest_port: int | None = None
        self.rest_address: str | None = None
        try:
            self.port = self._wait_for(
                self._start(host, port, socket_path, batching, threads)
            )
            self.address = f"{_reachable(host)}:{self.port}"
            if rest is not None:
                self.rest_port = self._wait_for(self._start_rest(host, rest))
                self.rest_address = f"{_reachable(host)}:{self.rest_port}"
            self._wait_for(self._announce())
        except BaseException:
            self._wait_for(self._end(0.0))
            self._close()
            raise

    @property
    def version(self) -> int:
        """The newest version that it serves, of the first model."""
        return self._catalog.newest(self._first)

    def reload(self, models: Sequence[ModelConfig]) -> None:
        """Serves other models, versions or labels from now on.

        Raises:
            StatusError: If a label names a version that is not available, or a
                new model has no version; nothing changes then. Also if a new
                model fails to load; loading is tried again later.
        """
        self._catalog.reload(models)

    def stop(self, grace: float = 10.0) -> None:
        """Refuses new calls, finishes those in flight, and closes.

        Args:
            grace: Seconds after which calls still running are cancelled.
        """
        with self._stopping:
            if self._thread.is_alive():
                self._wait_for(self._end(grace))
                self._close()

    def _wait_for(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    async def _start(self, host, port, socket_path, batching, threads):
        """Opens the port for gRPC and returns it."""
        if batching is None:
            self._executor = Alone(
                Workers(
                    threads or 4 * (os.cpu_count() or 1),
                    self._limits.queued_calls,
                    self._limits.run_seconds,
                    4 * self._limits.message_bytes,
                ),
                Room(self._limits.elements),
            )
        else:
            self._executor = Batches(
                batching, self._limits, self._metrics, threads
            )
        most = self._limits.message_bytes
        self._server = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", most),
                # -1 is gRPC's largest, 2**31 - 1 bytes.
                ("grpc.max_send_message_length", -1),
                # Otherwise two servers could share a port and take turns.
                ("grpc.so_reuseport", 0),
                *self._connections.grpc_arguments(),
                *_PATIENCE,
                *self._channel_arguments,
            ],
        )
        self._rpcs = rpcs = Rpcs(
            self._limits.answer_bytes, self._connections.idle_seconds
        )
        most = self._connections.most
        self._health = Health(_HEALTH_NAMES, rpcs, most)
        services = (
            PredictionService(
                self._catalog,
                self._executor,
                self._aside,
                self._limits,
                self._metrics,
                rpcs,
            ),
            ModelService(self._catalog, self._aside, self._limits, rpcs),
            Reflection((_PREDICTION, _MODEL, HEALTH, REFLECTION), rpcs),
        )
        self._server.add_generic_rpc_handlers(
            tuple(each.handlers() for each in services)
        )
        self._health.add_to(self._server)
        bound = _bind(self._server, host, port, self._tls)
        if socket_path is not None:
            _bind_unix(self._server, socket_path)
        return bound

    async def _start_rest(self, host, rest):
        """Opens the port for REST and returns it."""
        api = RestApi(
            self._catalog,
            self._executor,
            self._aside,
            self._limits,
            self._metrics,
            self._bodies,
            timeout=rest.timeout,
            cors=rest.cors,
            metrics_path=rest.metrics_path,
        )
        sockets = open_sockets(host, rest.port)
        self._http = HttpServer(api, sockets, self._connections)
        return sockets[0].getsockname()[1]

    async def _announce(self):
        await self._server.start()
        if self._http is not None:
            self._http.start()

    async def _end(self, grace):
        if self._executor is None:  # it never started
            return
        self._health.stop()
        stopping = asyncio.ensure_future(self._server.stop(grace))
        ending = None
        if self._http is not None:
            self._bodies.close()
            ending = asyncio.ensure_future(self._http.stop(grace))
        # Streams of health or reflection that stay open are not waited for.
        idle = asyncio.ensure_future(self._executor.idle())
        await asyncio.wait(
            [stopping, idle], return_when=asyncio.FIRST_COMPLETED
        )
        idle.cancel()
        await self._server.stop(min(grace, _LAST_SECONDS))
        await stopping
        if ending is not None:
            await ending

    def _close(self):
        """Ends the event loop and the threads, and frees the models."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._catalog.close()  # ends runs that no call waits for
        self._aside.close()
        if self._executor is not None:
            self._executor.close()
        self._loop.close()

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *exception) -> None:
        self.stop()


def _bind(server, host, port, tls):
    address = f"{host}:{port}"
    if port:  # for gRPC, one of IPv4 and IPv6 would be enough
        for each in open_sockets(host, port):
            each.close()
    try:
        if tls is None:
            bound = server.add_insecure_port(address)
        else:
            credentials = grpc.ssl_server_credentials(
                [(tls.key, tls.certificate)],
                tls.authority,
                tls.verify_client,
            )
            bound = server.add_secure_port(address, credentials)
    except RuntimeError:
        bound = 0
    if not bound and tls is not None:  # the port was free above
        raise ConfigError(
            "The server's key must fit its certificate, and all must be PEM. "
            "Received: a key, a certificate or an authority that gRPC refuses."
        )
    if not bound:
        raise taken(address)
    return bound


def _bind_unix(server, path):
    try:
        server.add_insecure_port(f"unix:{path}")
    except RuntimeError as error:
        raise OSError(
            "The server needs a path for its Unix socket at which no other "
            f"server listens and where it may write. Received: {path!r}"
        ) from error


def _reachable(host):
    return "localhost" if host in ("0.0.0.0", "[::]") else host
