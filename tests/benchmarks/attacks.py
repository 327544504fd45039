"""Attacks that are large or many."""

import collections
import contextlib
import gzip
import http.client
import json
import pathlib
import socket
import subprocess
import sys
import time
from concurrent import futures

import grpc
from tensorflow_serving.apis import predict_pb2

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

from support.serving.bare_http2 import BareHttp2  # noqa: E402

_PREDICT = "/tensorflow.serving.PredictionService/Predict"
_CHECK = "/grpc.health.v1.Health/Check"
_WATCHING = "/grpc.health.v1.Health/Watch"
_REFLECT = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
_WATCH = pathlib.Path(__file__).with_name("watch.py")
_INT32, _STRING = 3, 7  # of TensorFlow's `DataType`
# What the server answers while it has too much to do, or is asked too much.
REFUSED = {"INVALID_ARGUMENT", "UNAVAILABLE", "RESOURCE_EXHAUSTED"}
# A request that ends the connection is answered by its end.
CLOSED = "closed"


class Target:
    """A server under attack.

    Args:
        pid: Its process.
        port: Its port for gRPC.
        rest: Its port for REST.
        model: The model's name, `"toy"` or `"tour"`.
    """

    def __init__(self, pid, port, rest, model):
        self.pid, self.port, self.rest, self.model = pid, port, rest, model

    @contextlib.contextmanager
    def watched(self):
        """Gives a dictionary, which holds `MB` and `seconds` at the end."""
        found = {}
        command = [sys.executable, _WATCH, self.pid, self.port, self.rest]
        with subprocess.Popen(
            list(map(str, command)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as process:
            process.stdout.readline()  # it looks
            yield found
            found.update(json.loads(process.communicate()[0]))

    def request(self, signature, *texts):
        """Returns a request by gRPC."""
        request = predict_pb2.PredictRequest()
        request.model_spec.name = self.model
        request.model_spec.signature_name = signature
        if texts:
            tensor = request.inputs["text"]
            tensor.dtype = _STRING
            tensor.tensor_shape.dim.add(size=len(texts))
            tensor.string_val.extend(texts)
        return request

    def by_grpc(self, request):
        """Returns the code of an answer."""
        with _channel(self.port) as channel:
            return _code(_ask(channel, request))

    def by_rest(self, document):
        """Returns the status of an answer to a body that is sent zipped."""
        body = gzip.compress(json.dumps(document).encode())
        path = f"/v1/models/{self.model}:predict"
        connection = http.client.HTTPConnection(
            "localhost", self.rest, timeout=120
        )
        with contextlib.closing(connection):
            headers = {"Content-Encoding": "gzip"}
            connection.request("POST", path, body, headers)
            answer = connection.getresponse()
            answer.read()
            return str(answer.status)


def large_ids(target, count):
    """Headers of a few bytes that declare millions of numbers."""
    request = target.request("ids" if target.model == "tour" else "add")
    sizes = [128, 32_768] if target.model == "tour" else [2**21, 2]
    for name, shape in (("ids", sizes), ("lengths", sizes[:1])):
        tensor = request.inputs[name]
        tensor.dtype = _INT32
        for size in shape:
            tensor.tensor_shape.dim.add(size=size)
        tensor.int_val.append(5)
    return _all_at_once(lambda _: target.by_grpc(request), count), REFUSED


def large_answers(target, count):
    """A few hundred bytes that ask for megabytes of JSON."""
    text = "a " * 500 if target.model == "toy" else "a" * 1000
    document = {"signature_name": "align", "instances": [text] * 128}
    # One at a time, as each may have the memory of a request.
    found = collections.Counter(target.by_rest(document) for _ in range(count))
    return found, {"200", "400", "429", "503", "504"}


def allowed_texts(target, count):
    """The largest request that is allowed."""
    request = target.request("serving_default", *[b"a" * 1000] * 128)
    found = collections.Counter(target.by_grpc(request) for _ in range(count))
    return found, {"OK", "DEADLINE_EXCEEDED"}


def several_tasks(target, count):
    """Messages of 16 MiB for a call that is always refused."""
    raw = b"\n\0" * (2**23 - 1)

    def ask(_):
        with _channel(target.port) as channel:
            path = "/tensorflow.serving.PredictionService/MultiInference"
            return _code(channel.unary_unary(path).future(raw, timeout=120))

    return _all_at_once(ask, count), REFUSED


def many_lists(target, count):
    """Bodies of 16 kB that are 5 million lists when unzipped."""
    body = b'{"inputs": [' + b"[]," * 5_000_000 + b"[]]}"
    return _zipped(target, body, count)


def many_numbers(target, count):
    """Bodies of 16 kB that are 4 million numbers when unzipped."""
    body = b'{"instances": [' + b"1.5," * 4_000_000 + b"1.5]}"
    return _zipped(target, body, count)


def a_wrong_key(target, count):
    """Bodies of as many numbers as are allowed, which an error quotes."""
    body = b'{"instances": [], "x": [' + b"-1.2345," * 2_000_000 + b"0]}"
    return _zipped(target, body, count)


def one_byte_chunks(target, count):
    """Bodies of a million chunks of one byte each."""
    head = (
        f"POST /v1/models/{target.model}:predict HTTP/1.1\r\nHost: x\r\n"
        "Transfer-Encoding: chunked\r\n\r\n"
    ).encode()

    def ask(_):
        address = "localhost", target.rest
        with socket.create_connection(address, 120) as connection:
            with contextlib.suppress(ConnectionError):
                connection.sendall(head + b"1\r\n \r\n" * 2**20 + b"0\r\n\r\n")
            return _status(connection)

    return _all_at_once(ask, count), {"400", CLOSED}


def half_closed(target, count):
    """Connections whose clients send a request and then shut their side."""
    body = b'{"instances": ["cat"]}'
    head = (
        f"POST /v1/models/{target.model}:predict HTTP/1.1\r\nHost: x\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode()

    def ask(number):
        address = "localhost", target.rest
        with socket.create_connection(address, 120) as connection:
            # One in two has announced more than it sends.
            connection.sendall(head + body[number % 2 :])
            connection.shutdown(socket.SHUT_WR)
            return _status(connection)

    return _all_at_once(ask, count), {"200", "503", CLOSED}


def silent_connections(target, count):
    """Connections that send nothing, or half a header."""
    with contextlib.ExitStack() as stack:
        for number in range(count):
            port = (target.port, target.rest)[number % 2]
            address = "localhost", port
            other = stack.enter_context(socket.create_connection(address, 20))
            with contextlib.suppress(OSError):  # it may be closed already
                other.sendall((b"", b"GET /v1/models/ HTT")[number // 2 % 2])
        found = target.by_grpc(_honest(target))
        return collections.Counter([found]), {"OK"}


def unfinished_bodies(target, count):
    """Zipped bodies of 16 kB, 16 MiB each, without their last byte."""
    body = gzip.compress(b" " * (16 * 2**20 - 1))
    head = (
        f"POST /v1/models/{target.model}:predict HTTP/1.1\r\nHost: x\r\n"
        f"Content-Encoding: gzip\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode()
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            address = "localhost", target.rest
            other = stack.enter_context(socket.create_connection(address, 20))
            with contextlib.suppress(OSError):
                other.sendall(head + body[:-1])
        time.sleep(1.0)  # for the server to read them
        document = {"instances": ["cat"]}
        return collections.Counter([target.by_rest(document)]), {"200"}


def zipped_fields(target, count):
    """Messages of 16 kB that are 8 million inputs when unzipped."""
    raw = b"\x12\0" * (2**23 - 1)

    def ask(_):
        with _channel(target.port) as channel:
            call = channel.unary_unary(_PREDICT).future(
                raw, timeout=120, compression=grpc.Compression.Gzip
            )
            return _code(call)

    return _all_at_once(ask, count), REFUSED


def unread_answers(target, count):
    """Calls with large answers that nobody reads."""
    # About 1.5 MB of alignments and tokens.
    text = b"a " * 500 if target.model == "toy" else b"a" * 1000
    raw = target.request("align", *[text] * 128).SerializeToString()
    return _unread(target, _PREDICT, raw, count)


def unread_watches(target, count):
    """Watches of health that nobody reads, with the longest of names."""
    name = b"x" * (2**24 - 100)
    found = _unread(target, _WATCHING, _named(1, name), max(1, count // 10))
    return found[0] + _unread(target, _WATCHING, b"", count)[0], found[1]


def unread_reflection(target, count):
    """Reflection of the longest of names, which nobody reads."""
    return _unread(target, _REFLECT, _named(4, b"x" * (2**24 - 100)), count)


def silent_calls(target, count):
    """Calls that send no request, with headers that one byte repeats."""
    with BareHttp2(target.port) as other:
        for _ in range(count):
            with contextlib.suppress(OSError):
                other.open(_CHECK, repeated=("x", "y" * 3000))
        found = target.by_grpc(_honest(target))
        return collections.Counter([found]), {"OK"}


def unfinished_messages(target, count):
    """Calls by gRPC that have sent 16 MiB but for the last byte."""
    part = b"x" * (2**24 - 100)
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            other = stack.enter_context(BareHttp2(target.port))
            with contextlib.suppress(OSError, StopIteration):
                # No longer, since a busy server may give no window.
                other.begin(_PREDICT, len(part) + 1, part, seconds=2.0)
        time.sleep(3.0)
        found = target.by_grpc(_honest(target))
        return collections.Counter([found]), {"OK"}


def burst(target, count):
    """Calls over 64 connections, all at once."""
    with contextlib.ExitStack() as stack:
        channels = [
            stack.enter_context(_channel(target.port)) for _ in range(64)
        ]
        request = _honest(target)
        calls = [_ask(channels[i % 64], request) for i in range(count)]
        return collections.Counter(map(_code, calls)), {"OK", "UNAVAILABLE"}


def _zipped(target, body, count):
    """Sends the same body several times at once, zipped."""
    body = gzip.compress(body)
    path = f"/v1/models/{target.model}:predict"

    def ask(_):
        connection = http.client.HTTPConnection(
            "localhost", target.rest, timeout=120
        )
        with contextlib.closing(connection):
            connection.request("POST", path, body, {"Content-Encoding": "gzip"})
            return str(connection.getresponse().status)

    return _all_at_once(ask, count), {"400", "429", "503", "504"}


def _status(connection):
    """Returns the status of an answer, `CLOSED` if there is none."""
    try:
        response = http.client.HTTPResponse(connection)
        response.begin()
    except (ConnectionError, http.client.HTTPException):
        return CLOSED
    return str(response.status)


def _unread(target, path, raw, count):
    """Makes calls of one connection, whose answers have no window."""
    with BareHttp2(target.port, window=0) as other:
        with contextlib.suppress(OSError, StopIteration):
            for _ in range(count):
                other.ask(path, raw)
        found = collections.Counter([target.by_grpc(_honest(target))])
        time.sleep(5.0)  # for the answers to be written
        found[target.by_grpc(_honest(target))] += 1
        return found, {"OK", "UNAVAILABLE"}


def _named(field, name):
    """Returns a message with a name."""
    size, raw = len(name), bytearray([field << 3 | 2])
    while size >= 128:
        raw.append(size % 128 | 128)
        size //= 128
    return bytes([*raw, size]) + name


def _honest(target):
    return target.request("serving_default", b"cat")


def _channel(port):
    # Each its own connection.
    options = [("grpc.use_local_subchannel_pool", 1)]
    return grpc.insecure_channel(f"localhost:{port}", options)


def _ask(channel, request):
    raw = request.SerializeToString()
    return channel.unary_unary(_PREDICT).future(raw, timeout=120)


def _code(call):
    return call.code().name


def _all_at_once(ask, count):
    with futures.ThreadPoolExecutor(count) as pool:
        return collections.Counter(pool.map(ask, range(count)))
