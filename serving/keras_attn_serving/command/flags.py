"""The command's flags, which have TensorFlow Serving's names.

A flag of TensorFlow Serving either has its effect here or is refused by name.
"""

import argparse

from keras_attn_serving.server.connections import Connections
from keras_attn_serving.server.limits import Limits

# Flags of TensorFlow Serving that this server does not take, and why.
_REFUSED = {
    "enable_per_model_batching_parameters": "one file has the batching "
    "parameters of all models",
    "enable_profiler": "it has no profiler service; use TensorFlow's own tools",
    "enable_serialization_as_tensor_content": "it always sends typed fields",
    "enable_signature_method_name_check": "it runs signatures only by Predict",
    "flush_filesystem_caches": "it leaves file caches to the system",
    "mixed_precision": "it runs models as they were exported",
    "num_load_threads": "a single thread loads versions, one by one",
    "num_tflite_interpreters_per_pool": "it runs no TensorFlow Lite models",
    "num_tflite_pools": "it runs no TensorFlow Lite models",
    "num_unload_threads": "it has no thread pool for unloading versions",
    "platform_config_file": "it serves only TensorFlow's SavedModels",
    "prefer_tflite_model": "it runs no TensorFlow Lite models",
    "remove_unused_fields_from_bundle_metagraph": "it never keeps the graph's "
    "definition",
    "rest_api_num_threads": "an event loop receives the requests",
    "skip_initialize_tpu": "it does not support TPUs",
    "thread_pool_factory_config_file": "it has no thread pools to choose from",
    "use_alts_credentials": "it encrypts only with --ssl_config_file",
}

# Flags that have an effect only with another one.
_NEEDS = {
    "batching_parameters_file": "enable_batching",
    "model_config_file_poll_wait_seconds": "model_config_file",
    "monitoring_config_file": "rest_api_port",
    "rest_api_enable_cors_support": "rest_api_port",
    "rest_api_timeout_in_ms": "rest_api_port",
    "num_request_iterations_for_warmup": "enable_model_warmup",
}


def read(arguments: list[str] | None) -> argparse.Namespace:
    """Reads the command line; exits with a message if it is invalid."""
    result = parser()
    flags = result.parse_args(arguments)
    for name, needed in _NEEDS.items():
        if getattr(flags, name) is not None and not getattr(flags, needed):
            result.error(f"--{name} has an effect only with --{needed}")
    if flags.version:
        return flags
    if bool(flags.model_base_path) == bool(flags.model_config_file):
        result.error(
            "the server needs --model_base_path, or --model_config_file for "
            "several models, but not both"
        )
    if flags.model_config_file and flags.model_name is not None:
        result.error("--model_name has no effect with --model_config_file")
    parallel = flags.tensorflow_session_parallelism
    if parallel and (
        flags.tensorflow_intra_op_parallelism
        or flags.tensorflow_inter_op_parallelism
    ):
        result.error(
            "--tensorflow_session_parallelism sets what "
            "--tensorflow_intra_op_parallelism and "
            "--tensorflow_inter_op_parallelism set; give it or those"
        )
    return flags


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the flags."""
    result = argparse.ArgumentParser(
        prog="python -m keras_attn_serving",
        description="Serves SavedModels over gRPC and REST, as TensorFlow "
        "Serving would. Flags are TensorFlow Serving's, except --host and "
        "those that begin with --max (other than --max_num_load_retries). "
        "Standard output gets one line, when the ports are open; standard "
        "error gets the log: each model and warm-up request, and all errors.",
        allow_abbrev=False,
    )
    _add_models(result.add_argument_group("models"))
    _add_ports(result.add_argument_group("ports"))
    _add_running(result.add_argument_group("running"))
    _add_limits(result.add_argument_group("limits"))
    result.add_argument(
        "--version",
        action="store_true",
        help="print the versions of this server and of TensorFlow, and exit",
    )
    for name, why in _REFUSED.items():
        result.add_argument(
            f"--{name}", nargs="?", action=_Refuse, why=why, help=_HIDDEN
        )
    return result


_HIDDEN = argparse.SUPPRESS


def _add_models(group):
    _add(
        group,
        "model_base_path",
        str,
        "directory of the model's versions, such as models/pronounce with "
        "models/pronounce/1 in it",
    )
    _add(
        group,
        "model_name",
        str,
        "name the model is served under (default: default)",
    )
    _add(
        group,
        "model_config_file",
        str,
        "file with a ModelServerConfig as text: several models, their versions "
        "and labels",
    )
    _add(
        group,
        "model_config_file_poll_wait_seconds",
        _number(float, most=1e6, least=0),
        "seconds between two reads of that file (default: read once)",
    )
    _add(
        group,
        "file_system_poll_wait_seconds",
        _number(float, most=1e6, least=0),
        "seconds between looks for new versions, 0 to look once (default: "
        "%(default)s)",
        1.0,
    )
    _add(
        group,
        "max_num_load_retries",
        _number(int, most=10_000, least=0),
        "how often loading a new version is retried (default: %(default)s)",
        5,
    )
    _add(
        group,
        "load_retry_interval_micros",
        _number(int, most=10**12, least=0),
        "microseconds between two tries (default: %(default)s)",
        60_000_000,
    )
    _add_boolean(
        group,
        "allow_version_labels_for_unavailable_models",
        "allow new labels of versions that are not loaded yet (needed to "
        "start with labels)",
    )
    _add_boolean(
        group,
        "enable_model_warmup",
        "replay an export's warm-up requests first (default: true)",
        True,
    )
    _add(
        group,
        "num_request_iterations_for_warmup",
        _number(int, most=10_000),
        "how often to replay each (default: 1)",
    )
    _add(
        group,
        "saved_model_tags",
        str,
        "tags of the graph to load, separated by commas (default: %(default)s)",
        "serve",
    )


def _add_ports(group):
    _add(
        group,
        "port",
        _number(int, most=65535, least=0),
        "port for gRPC, 0 for any free one (default: %(default)s)",
        8500,
    )
    _add(
        group,
        "host",
        str,
        "interface to listen on, 0.0.0.0 for all (default: %(default)s)",
        "localhost",
    )
    _add(group, "grpc_socket_path", str, "a Unix socket for gRPC too")
    _add(
        group,
        "rest_api_port",
        _number(int, most=65535, least=0),
        "port for REST, 0 for none (default: %(default)s)",
        0,
    )
    _add(
        group,
        "rest_api_timeout_in_ms",
        _number(int, most=10**9),
        "milliseconds that a REST request may take (default: 30000)",
    )
    _add_boolean(
        group,
        "rest_api_enable_cors_support",
        "let web pages of other origins call the REST API",
        None,
    )
    _add(
        group,
        "ssl_config_file",
        str,
        "file with an SSLConfig as text: encrypts the gRPC port",
    )
    _add(
        group,
        "monitoring_config_file",
        str,
        "file with a MonitoringConfig as text: metrics on the REST port",
    )
    _add(
        group,
        "grpc_channel_arguments",
        _arguments,
        "arguments of the gRPC server: name=value, separated by commas",
        [],
    )
    _add_boolean(
        group,
        "enable_grpc_healthcheck_service",
        "answer health checks over gRPC (always on)",
        True,
        _always,
    )


def _add_running(group):
    _add(
        group,
        "grpc_max_threads",
        _number(int, most=10_000),
        "calls that run at a time (default: 4 per core); with "
        "--enable_batching, calls that are accepted at a time (default: no "
        "limit)",
    )
    _add_boolean(group, "enable_batching", "join requests of several clients")
    _add(
        group,
        "batching_parameters_file",
        str,
        "file with BatchingParameters as text: how requests are joined",
    )
    for name, text in (
        ("session", "TensorFlow's threads"),
        ("intra_op", "TensorFlow's threads for one operation"),
        ("inter_op", "TensorFlow's operations at a time"),
    ):
        _add(
            group,
            f"tensorflow_{name}_parallelism",
            _number(int, most=10_000, least=0),
            f"{text} (default: by the number of cores)",
            0,
        )
    _add(
        group,
        "tensorflow_session_config_file",
        str,
        "file with a ConfigProto as text, for TensorFlow's sessions",
    )
    _add(
        group,
        "per_process_gpu_memory_fraction",
        _number(float, most=1.0, least=0),
        "share of the GPU's memory to take (default: as much as is needed)",
        0.0,
    )
    for device in ("cpu", "gpu"):
        _add_boolean(
            group,
            f"xla_{device}_compilation_enabled",
            "allow functions saved with jit_compile=True (default: false; such "
            "functions fail)",
        )


def _add_limits(group):
    limits, ports = Limits(), Connections()
    for flag, default, text in (
        ("rows", limits.rows, "rows of a request"),
        ("text_bytes", limits.text_bytes, "bytes of a text"),
        (
            "elements",
            limits.elements,
            "elements of an input, and of all calls that run at a time: rows "
            "times the longest row",
        ),
        ("message_bytes", limits.message_bytes, "bytes of a request"),
        ("answer_bytes", limits.answer_bytes, "bytes of an answer"),
        ("run_seconds", limits.run_seconds, "seconds of a run of the model"),
        ("queued_calls", limits.queued_calls, "calls that wait for a thread"),
        ("connections", ports.most, "connections of a port"),
        ("idle_seconds", ports.idle_seconds, "seconds without a request"),
    ):
        _add(
            group,
            f"max_{flag}",
            _number(type(default), most=2**31 - 1),
            f"most {text} (default: %(default)s)",
            default,
        )


def _add(group, name, kind, text, default=None):
    group.add_argument(f"--{name}", type=kind, default=default, help=text)


def _add_boolean(group, name, text, default=False, kind=None):
    group.add_argument(
        f"--{name}",
        type=kind or _boolean,
        nargs="?",
        const=True,
        default=default,
        help=text,
    )


class _Refuse(argparse.Action):
    """Exits with the reason why a flag has no meaning here."""

    def __init__(self, *args, why, **kwargs):
        super().__init__(*args, **kwargs)
        self._why = why

    def __call__(self, parser, namespace, values, option_string=None):
        parser.error(
            f"{option_string} is a flag of TensorFlow Serving that has no "
            f"meaning for the development server: {self._why}"
        )


def _number(kind, most, least=None):
    def read(text):
        number = kind(text)
        low = number > 0 if least is None else number >= least
        if not (low and number <= most):
            allowed = "above 0" if least is None else f"at least {least}"
            raise argparse.ArgumentTypeError(
                f"must be {allowed} and at most {most}, not {text}"
            )
        return number

    read.__name__ = kind.__name__  # for argparse's message
    return read


def _boolean(text):
    known = {"true": True, "1": True, "false": False, "0": False}
    try:
        return known[text.lower()]
    except KeyError:
        raise argparse.ArgumentTypeError(
            f"must be true or false, not {text!r}"
        ) from None


def _always(text):
    if not _boolean(text):
        raise argparse.ArgumentTypeError(
            "must be true: the development server always answers health checks"
        )
    return True


def _arguments(text):
    result = []
    for each in filter(None, text.split(",")):
        name, equals, value = each.partition("=")
        if not (name and equals):
            raise argparse.ArgumentTypeError(
                f"must be name=value with commas, not {each!r}"
            )
        result.append((name, int(value) if _is_integer(value) else value))
    return result


def _is_integer(text):
    return text.removeprefix("-").isdecimal() and text.isascii()
