"""Serves models during development: `python -m keras_attn_serving --help`."""

import logging
import os
import signal
import sys
import threading
from typing import NoReturn

from keras_attn_serving.command import flags as command_line
from keras_attn_serving.quiet import start_tensorflow
from keras_attn_serving.server.connections import Connections
from keras_attn_serving.server.limits import Limits

_LOG = logging.getLogger(__name__)

# Containers are killed ten seconds after SIGTERM by default. Calls in flight
# get most of that time; the rest is for ending the runs.
_GRACE = 8.0
_MOST = 9.0  # then the process ends, even if a model still runs or loads


def main(arguments: list[str] | None = None) -> int:
    """Serves until SIGTERM or SIGINT, and ends the process with status 0.

    Returns another status if it cannot serve.
    """
    flags = command_line.read(arguments)
    # Hides TensorFlow's deprecations; its notes are hidden below.
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    logging.basicConfig(
        level=logging.INFO,
        format="%(asctime)s level=%(levelname)s %(message)s",
    )
    # The HTTP server warns about each client that sends invalid HTTP.
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
    logging.getLogger("grpc._cython.cygrpc").addFilter(_is_no_lost_client)
    _LOG.info("importing TensorFlow")
    try:
        start_tensorflow()
        from keras_attn_serving.server.server import ConfigError
        from keras_attn_serving.server.server import LoadError
        from keras_attn_serving.server.server import Server
    except ImportError as error:  # it names the extra
        return _failed(error)
    from keras_attn_serving.command import settings

    if flags.version:
        print(settings.versions())
        return 0
    xla = flags.xla_cpu_compilation_enabled or flags.xla_gpu_compilation_enabled
    if not xla:
        _disable_xla()
    _LOG.info(
        "GPUs found: %d; TF_CPP_MIN_LOG_LEVEL=0 shows TensorFlow's own notes",
        settings.gpus(),
    )
    try:
        models = settings.models(flags)
        for model in models:
            _LOG.info("loading %s", model)
        server = Server(
            port=flags.port,
            host=flags.host,
            models=models,
            rest=settings.rest(flags),
            socket_path=flags.grpc_socket_path,
            tls=settings.tls(flags),
            batching=settings.batching(flags),
            loading=settings.loading(flags),
            threads=flags.grpc_max_threads,
            limits=Limits(
                *(getattr(flags, f"max_{name}") for name in Limits._fields)
            ),
            connections=Connections(
                flags.max_connections, flags.max_idle_seconds
            ),
            channel_arguments=flags.grpc_channel_arguments,
        )
    except (ConfigError, LoadError, OSError) as error:
        return _failed(error)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    _announce(flags, models, server)
    seconds = flags.model_config_file_poll_wait_seconds
    # With a timeout: on Windows an endless wait would miss the signal.
    while not stop.wait(seconds or 1.0):
        if seconds:
            models = _reload(flags, models, server)
    _LOG.info("stopping: calls in flight have %g seconds", _GRACE)
    late = threading.Timer(_MOST, _end)
    late.daemon = True
    late.start()
    server.stop(_GRACE)
    _end()


def _is_no_lost_client(record: logging.LogRecord) -> bool:
    # gRPC writes a traceback for each answer whose connection has ended.
    return "ExecuteBatchError" not in str(record.msg)


def _end() -> NoReturn:
    # Skips TensorFlow's teardown, which takes seconds. The system frees
    # everything anyway.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _announce(flags, models, server):
    what = (
        f"model {models[0].name} version {server.version}"
        if flags.model_base_path
        else f"models {' '.join(each.name for each in models)}"
    )
    where = f"{flags.host}:{server.port}"
    if server.rest_port is not None:
        where = f"{where} (REST: {flags.host}:{server.rest_port})"
    print(f"serving {what} at {where}", flush=True)


def _reload(flags, models, server):
    """Serves the models that the config file lists now; returns them.

    Returns `None` if only some of them are served. The next look then reloads
    the file even if it lists the models from before the failure again.
    """
    from keras_attn_serving.command import settings
    from keras_attn_serving.server.errors import StatusError
    from keras_attn_serving.server.server import ConfigError

    try:
        new = settings.models(flags)
        if new != models:
            server.reload(new)
    except (ConfigError, OSError) as error:
        _LOG.error("%s is not served: %s", flags.model_config_file, error)
        return models
    except StatusError as error:
        _LOG.error("%s is not served: %s", flags.model_config_file, error)
        return None
    return new


def _disable_xla():
    from keras_attn_serving.xla import disable_xla

    if not disable_xla():
        print(
            "warning: this build of TensorFlow cannot switch XLA off, so a "
            "model saved with jit_compile=True answers here and fails in "
            "TensorFlow Serving",
            file=sys.stderr,
        )


def _failed(error):
    print(f"error: {error}", file=sys.stderr)
    return 1
