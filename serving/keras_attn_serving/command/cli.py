"""The command `keras-attn`: `query` asks a server, `serve` starts one.

The package keras-attn adds the command `export`.
"""

import argparse
import importlib.metadata
import itertools
import os
import ssl
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc

from keras_attn_serving.client.client import BlockingClient
from keras_attn_serving.client.client import Client
from keras_attn_serving.client.rest_client import RestClient
from keras_attn_serving.command import printed_rows as rows
from keras_attn_serving.command.progress import Progress
from keras_attn_serving.wire.results import RowError
from keras_attn_serving.wire.results import ServingError

REFUSED, USAGE = 1, 2  # exit statuses
_DEFAULT = "serving_default"  # the signature

_SERVE = (
    "serve a model on this machine; needs the extra `server`. "
    "`keras-attn serve --help` lists its flags"
)

_EXPORT = (
    "export a Hugging Face model, or a saved translator; needs keras-attn. "
    "`keras-attn export --help` lists its flags"
)
_COMMANDS = "keras_attn.commands"  # group of the entry points


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; returns the exit status.

    It is 0 if all went well, 1 if a server refused or a text could not be
    answered, 2 for wrong arguments, and 130 if it was interrupted.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        if arguments[:1] == ["serve"]:
            return _serve(arguments[1:])
        if arguments[:1] == ["export"]:
            return _export(arguments[1:])
        flags = parser().parse_args(arguments)
        try:
            return Query(flags).run()
        except ValueError as error:
            return _failed(error, USAGE)
        except OSError as error:
            if isinstance(error, BrokenPipeError):  # as of `| head`
                os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
                return REFUSED
            return _failed(error, USAGE)
    except KeyboardInterrupt:
        return 130


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the arguments of `keras-attn`."""
    result = argparse.ArgumentParser(
        prog="keras-attn",
        description="Queries servers of exported models, and serves them.",
        allow_abbrev=False,
    )
    commands = result.add_subparsers(required=True, metavar="COMMAND")
    commands.add_parser("serve", help=_SERVE, add_help=False)
    commands.add_parser("export", help=_EXPORT, add_help=False)
    query = commands.add_parser(
        "query",
        help="send texts to a server and print what it answers",
        description="Sends texts to a server, TensorFlow Serving or `keras-"
        "attn serve`, and prints a line for each. Without TEXT it reads "
        "standard input, a text a line.",
        allow_abbrev=False,
    )
    query.add_argument(
        "texts", metavar="TEXT", nargs="*", help="a text to send"
    )
    query.add_argument(
        "--address",
        default="localhost:8500",
        help="host:port of the gRPC port, or http://host:port of the REST "
        "port (default: %(default)s)",
    )
    query.add_argument(
        "--model",
        default="default",
        help="name that the model is served under (default: %(default)s)",
    )
    query.add_argument(
        "--version",
        type=_version,
        help="number or label of a version (default: the newest)",
    )
    query.add_argument(
        "--signature",
        default=_DEFAULT,
        help="signature to run, such as nbest or align (default: %(default)s)",
    )
    form = query.add_mutually_exclusive_group()
    form.add_argument(
        "--json",
        action="store_true",
        help="print all outputs of each text, as one line of JSON",
    )
    form.add_argument(
        "--stream",
        action="store_true",
        help="print each token as it comes, found greedily; needs an export "
        'with signatures=["step"]',
    )
    query.add_argument(
        "--batch_size",
        type=_positive,
        default=32,
        help="texts per request (default: %(default)s)",
    )
    query.add_argument(
        "--timeout",
        type=float,
        default=60.0,
        help="seconds that a request may take (default: %(default)s)",
    )
    query.add_argument(
        "--retries",
        type=int,
        default=0,
        help="how often a request is repeated if the server is unavailable or "
        "busy (default: %(default)s)",
    )
    query.add_argument("--tls", action="store_true", help="use TLS for gRPC")
    query.add_argument(
        "--ca",
        metavar="FILE",
        type=Path,
        help="use TLS, and trust the authorities in this PEM file",
    )
    query.add_argument(
        "--cert",
        metavar="FILE",
        type=Path,
        help="use TLS, with the certificate in this PEM file; needs --key",
    )
    query.add_argument(
        "--key",
        metavar="FILE",
        type=Path,
        help="the key of the certificate, as a PEM file",
    )
    return result


class Query:
    """The command `keras-attn query`.

    Args:
        flags: Its arguments.
    """

    def __init__(self, flags: argparse.Namespace):
        if flags.stream and flags.signature != _DEFAULT:
            raise ValueError(
                "`--stream` runs the signatures `encode` and `step`, so "
                "`--signature` would have no effect. Received: "
                f"--signature={flags.signature}. Leave out one of them."
            )
        self._flags = flags
        self._status = 0
        self._source = _Source(flags.texts)
        watched = sys.stderr.isatty() and not sys.stdout.isatty()
        self._progress = Progress(
            watched and not self._source.typed, self._source.size
        )

    def run(self) -> int:
        """Sends all texts, prints the answers and returns the exit status."""
        line = 1
        alone = self._source.typed or self._flags.stream
        size = 1 if alone else self._flags.batch_size
        texts = iter(self._source)
        with _client(self._flags) as client:
            while batch := list(itertools.islice(texts, size)):
                try:
                    self._ask(client, batch, line)
                except ServingError as error:
                    where = f"line {line}"
                    if len(batch) > 1:
                        where = f"lines {line} to {line + len(batch) - 1}"
                    self._say(f"error: {where}: {error}")
                    return REFUSED
                line += len(batch)
                self._progress.add(len(batch), self._source.done)
        self._progress.clear()
        return self._status

    def _ask(self, client, texts, line):
        if self._flags.stream:
            (text,) = texts
            try:
                # The model would make up a text for an empty source.
                for token in client.stream(text) if text.strip() else ():
                    _write(token.text)
            except RowError as error:
                why = " ".join(error.errors.values())
                self._say(f"error: line {line}: {why}")
                self._status = REFUSED
            _write("\n")
            return
        signature = self._flags.signature
        if signature == "align":
            found = rows.of_alignments(client.align(texts))
        else:
            found = rows.of_result(client.predict(texts, signature))
        for number, row in enumerate(found, line):
            if why := rows.failure(row):
                self._say(f"error: line {number}: {why}")
                self._status = REFUSED
            text = rows.as_json(row) if self._flags.json else rows.as_text(row)
            _write(f"{text}\n")

    def _say(self, text):
        sys.stdout.flush()
        self._progress.clear()
        print(text, file=sys.stderr)


class _Source:
    """The texts to send: those given, or the lines of standard input.

    Attributes:
        typed: Whether a user types them at a terminal.
        size: The number of texts given, or the bytes of standard input; `None`
            if that is not known.
        done: How many of these have been read.
    """

    def __init__(self, texts):
        self._texts = texts
        self.typed = not texts and sys.stdin.isatty()
        self.size = len(texts) if texts else _size_of_input()
        self.done = 0

    def __iter__(self) -> Iterator[bytes]:
        for text in self._texts:
            self.done += 1
            yield os.fsencode(text)
        if not self._texts:
            for line in sys.stdin.buffer:
                self.done += len(line)
                yield line.rstrip(b"\r\n")


def _size_of_input():
    """Returns the bytes of standard input, if it is a file."""
    try:
        found = os.fstat(sys.stdin.fileno())
    except (OSError, ValueError):
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def _client(flags) -> BlockingClient:
    options: dict[str, Any] = {
        "version": flags.version,
        "timeout": flags.timeout,
        "retries": flags.retries,
    }
    if (flags.cert is None) != (flags.key is None):
        raise ValueError("--cert and --key go together. Received: one of them.")
    tls = flags.tls or flags.ca or flags.cert
    if tls and flags.address.startswith("http://"):
        raise ValueError(
            "TLS over REST needs an address that begins with https://. "
            f"Received: {flags.address}"
        )
    files = [x and x.read_bytes() for x in (flags.ca, flags.key, flags.cert)]
    if tls:
        context = _context(flags)
    if flags.address.startswith(("http://", "https://")):
        if tls:
            options["context"] = context
        return RestClient(flags.address, flags.model, **options)
    if tls:
        options["credentials"] = grpc.ssl_channel_credentials(*files)
    return Client(flags.address, flags.model, **options)


def _context(flags):
    """Returns the TLS context; refuses files that are not PEM."""
    try:
        context = ssl.create_default_context(cafile=flags.ca)
        if flags.cert:
            context.load_cert_chain(flags.cert, flags.key)
    except ssl.SSLError as error:
        raise ValueError(
            "--ca, --cert and --key must be PEM files, and the key must belong "
            f"to the certificate. Received: {error}"
        ) from error
    return context


def _serve(arguments):
    from keras_attn_serving.command import serve as server

    return server.main(arguments)


def _export(arguments):
    found = importlib.metadata.entry_points(group=_COMMANDS, name="export")
    for entry in found:
        return entry.load()(arguments)
    return _failed(
        "`keras-attn export` needs the package keras-attn, which makes the "
        "exports. Install it beside keras-attn-serving.",
        USAGE,
    )


def _write(text):
    # UTF-8 wherever the output goes, like the input.
    sys.stdout.buffer.write(text.encode("utf-8", "replace"))
    sys.stdout.buffer.flush()


def _failed(error, status):
    print(f"error: {error}", file=sys.stderr)
    return status


def _version(text):
    return int(text) if text.isdecimal() else text


def _positive(text):
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, not {text}")
    return number


if __name__ == "__main__":
    sys.exit(main())
