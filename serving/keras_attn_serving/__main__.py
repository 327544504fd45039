"""Serves a model during development: `python -m keras_attn_serving --help`."""

import argparse
import logging
import os
import signal
import sys
import threading

from keras_attn_serving.limits import Limits


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the flags, named as TensorFlow Serving's."""
    result = argparse.ArgumentParser(
        prog="python -m keras_attn_serving",
        description="Serves the newest version of a SavedModel over gRPC, as "
        "TensorFlow Serving would. Flags are TensorFlow Serving's, except "
        "--host and those that begin with --max.",
        allow_abbrev=False,
    )
    result.add_argument(
        "--model_base_path",
        required=True,
        help="directory of the model's versions, such as models/pronounce "
        "with models/pronounce/1 in it",
    )
    result.add_argument(
        "--model_name",
        default="default",
        help="name the model is served under (default: %(default)s)",
    )
    result.add_argument(
        "--port",
        type=_number(int, most=65535, least=0),
        default=8500,
        help="port for gRPC, 0 for any free one (default: %(default)s)",
    )
    result.add_argument(
        "--host",
        default="localhost",
        help="interface to listen on, 0.0.0.0 for all (default: %(default)s)",
    )
    result.add_argument(
        "--grpc_max_threads",
        type=_number(int, most=10_000),
        help="calls that run at a time (default: 4 for each core)",
    )
    result.add_argument(
        "--enable_model_warmup",
        type=_boolean,
        nargs="?",
        const=True,
        default=True,
        help="replay the export's warm-up requests first (default: true)",
    )
    for device in ("cpu", "gpu"):
        result.add_argument(
            f"--xla_{device}_compilation_enabled",
            type=_boolean,
            nargs="?",
            const=True,
            default=False,
            help="allow functions saved with jit_compile=True (default: "
            "false, and they fail)",
        )
    limits = Limits()
    for flag, default, text in (
        ("rows", limits.rows, "rows of a request"),
        ("text_bytes", limits.text_bytes, "bytes of a text"),
        ("message_bytes", limits.message_bytes, "bytes of a request"),
        ("run_seconds", limits.run_seconds, "seconds of a run of the model"),
        ("queued_calls", limits.queued_calls, "calls that wait for a thread"),
    ):
        result.add_argument(
            f"--max_{flag}",
            type=_number(type(default), most=2**31 - 1),
            default=default,
            help=f"most {text} (default: %(default)s)",
        )
    return result


def main(arguments: list[str] | None = None) -> int:
    """Serves until SIGTERM or SIGINT; returns the exit status."""
    flags = parser().parse_args(arguments)
    # Hides TensorFlow's start-up notes and deprecations, but not its errors.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    try:
        from keras_attn_serving.server import LoadError
        from keras_attn_serving.server import Server
    except ImportError as error:
        return _failed(error)
    xla = flags.xla_cpu_compilation_enabled or flags.xla_gpu_compilation_enabled
    if not xla:
        _disable_xla()
    try:
        server = Server(
            flags.model_base_path,
            flags.model_name,
            flags.port,
            host=flags.host,
            warm_up=flags.enable_model_warmup,
            threads=flags.grpc_max_threads,
            limits=Limits(
                *(getattr(flags, f"max_{name}") for name in Limits._fields)
            ),
        )
    except (LoadError, OSError) as error:
        return _failed(error)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    print(
        f"serving model {flags.model_name} version {server.version} at "
        f"{flags.host}:{server.port}",
        flush=True,
    )
    # With a timeout: on Windows an endless wait would miss the signal.
    while not stop.wait(1.0):
        pass
    server.stop()
    return 0


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


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:  # while loading
        sys.exit(130)
