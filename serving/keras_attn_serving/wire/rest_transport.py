"""Calls by REST, over connections that stay open."""

import base64
import collections
import contextlib
import errno
import functools
import http.client
import io
import os
import socket
import ssl
import time
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import unquote_to_bytes
from urllib.parse import urlsplit

import grpc

from keras_attn_serving.wire import rest_messages
from keras_attn_serving.wire.deadline import Deadline
from keras_attn_serving.wire.proxies import proxy_for
from keras_attn_serving.wire.results import Result
from keras_attn_serving.wire.results import ServingError
from keras_attn_serving.wire.transport import MAX_ANSWER_BYTES
from keras_attn_serving.wire.transport import Metadata
from keras_attn_serving.wire.transport import ModelSpec
from keras_attn_serving.wire.transport import Transport
from keras_attn_serving.wire.transport import require_answer_bytes
from keras_attn_serving.wire.transport import too_large

_PORTS = {"http": 80, "https": 443}
_CHUNK = 1 << 20  # bytes of an answer read at a time
_LOOK = 0.25  # seconds between two looks for a server
# Seconds for which the newest version, or that of a label, is taken for
# unchanged. An answer names neither its version nor a single output.
_FRESH = 5.0
_CLOSED_ALREADY = (errno.EBADF, errno.ENOTCONN)
_CLOSED = (ConnectionResetError, BrokenPipeError, ssl.SSLEOFError)


class RestTransport(Transport):
    """Carries calls by REST, and blocks. Threads may share it.

    Args:
        address: `http://host:port` or `https://host:port`, which a path may
            follow.
        headers: Headers of every request.
        context: The SSL context for TLS.
        max_answer_bytes: Most bytes of an answer.
    """

    def __init__(
        self,
        address: str,
        headers: Mapping[str, str] | None = None,
        context: ssl.SSLContext | None = None,
        max_answer_bytes: int = MAX_ANSWER_BYTES,
    ):
        self.address = address
        self._most = require_answer_bytes(max_answer_bytes)
        self._connections = _Connections(address, context, self._most)
        self._headers = {"Content-Type": "application/json", **(headers or {})}
        self._known: dict[ModelSpec, _Known] = {}

    async def predict(self, spec, signature, inputs, outputs, timeout):
        deadline = Deadline(timeout)
        request = rest_messages.predict_request(signature, inputs)
        path = f"{rest_messages.path(spec)}:predict"
        # Now, because a server that is stopping may answer the call but not a
        # request for metadata after it.
        with contextlib.suppress(ServingError):  # the call says why
            await self._metadata(spec, deadline)
        body = self._ask("POST", path, request, deadline)
        try:
            values = await self._read(body, spec, signature, deadline)
        except ValueError:
            # Perhaps another version has answered, with other outputs.
            self._known.pop(spec, None)
            try:
                values = await self._read(body, spec, signature, deadline)
            except ValueError as error:
                raise ServingError(
                    grpc.StatusCode.UNKNOWN,
                    f"The answer is not of the signature {signature!r}: "
                    f"{error}",
                ) from error
        version = spec.version if isinstance(spec.version, int) else 0
        return Result(_only(outputs, values), spec.name, version, signature)

    async def metadata(self, spec, timeout):
        path = f"{rest_messages.path(spec)}/metadata"
        body = self._ask("GET", path, None, Deadline(timeout))
        found = rest_messages.metadata(body)
        known = _Known(found, time.monotonic())
        self._known[spec] = known
        self._known[ModelSpec(spec.name, found.version)] = known
        return found

    async def status(self, spec, timeout):
        path = rest_messages.path(spec)
        body = self._ask("GET", path, None, Deadline(timeout))
        return rest_messages.status(body)

    async def ready(self, timeout):
        deadline, said = Deadline(timeout), ""
        while deadline.left(most=_LOOK):
            try:
                with self._connections.one(deadline) as connection:
                    connection.close()  # it may be of a server that is gone
                    connection.connect()
                return
            except ServingError as error:
                said = f" {error.message}"
            time.sleep(deadline.left(most=_LOOK) or 0)
        raise ServingError(
            grpc.StatusCode.UNAVAILABLE,
            f"No server became ready within {timeout} seconds.{said}",
        )

    async def sleep(self, seconds):
        time.sleep(seconds)

    async def close(self):
        self._connections.close()

    async def _read(self, body, spec, signature, deadline):
        """Returns the outputs in an answer; they must fit the metadata."""
        metadata = await self._metadata(spec, deadline)
        if signature not in metadata.signatures:
            raise ValueError(f"There is no signature {signature!r}.")
        specs = metadata.signatures[signature].outputs
        return rest_messages.outputs(body, specs)

    async def _metadata(self, spec, deadline):
        known = self._known.get(spec)
        if known is None or not known.holds(spec):
            return await self.metadata(spec, deadline.left())
        return known.metadata

    def _ask(self, method, path, body, deadline):
        """Returns the body of the answer to a request."""
        number, reason, answer = self._connections.exchange(
            method, path, body, self._headers, deadline
        )
        rest_messages.require_few(answer, self._most)
        if number != 200:
            raise rest_messages.refusal(number, reason, answer)
        return answer


class _Known(NamedTuple):
    """The metadata of a model, and when the server sent it."""

    metadata: Metadata
    since: float

    def holds(self, spec):
        """Whether it still describes the version that answers."""
        fixed = isinstance(spec.version, int)
        return fixed or time.monotonic() - self.since < _FRESH


class _Connections:
    """The open connections to a server that no call uses at the moment."""

    def __init__(self, address, context, most):
        self._kind, self._host, self._port, self._prefix = _split(address)
        self._proxy = proxy_for(self._kind, self._host, self._port)
        self._context, self._most = context, most
        self._idle: collections.deque = collections.deque()
        self._process = os.getpid()

    def exchange(self, method, path, body, headers, deadline):
        """Sends a request; returns the status, its reason and the body."""
        while True:
            with self.one(deadline) as connection:
                # A server may close a connection that was idle for long.
                fresh = connection.sock is None
                request = method, self._prefix + path, body, headers
                try:
                    response = _response(connection, request, deadline)
                except (*_CLOSED, http.client.BadStatusLine):
                    if fresh:
                        raise
                    connection.close()
                    continue
                return (
                    response.status,
                    response.reason,
                    _all_of(response, self._most),
                )

    @contextlib.contextmanager
    def one(self, deadline):
        """Lends a connection; it is kept unless the call fails.

        Raises:
            ServingError: If the server cannot be reached.
        """
        connection = self._take()
        try:
            _set_timeout(connection, deadline)
            yield connection
        except BaseException as error:
            connection.close()
            if found := _failure(error, connection.host):
                raise found from None  # it has all that the error says
            raise
        self._idle.append(connection)

    def close(self):
        while self._idle:
            self._idle.pop().close()

    def _take(self):
        if self._process != os.getpid():
            # A forked process would share its parent's connections.
            self._idle, self._process = collections.deque(), os.getpid()
        try:
            return self._idle.pop()
        except IndexError:
            pass
        return self._new()

    def _new(self):
        proxy = self._proxy
        if self._kind == "http":
            if proxy is None:
                return http.client.HTTPConnection(self._host, self._port)
            return _ByProxy(proxy, self._host, self._port)
        if proxy is None:
            return http.client.HTTPSConnection(
                self._host, self._port, context=self._context
            )
        connection = http.client.HTTPSConnection(
            proxy.host, proxy.port, context=self._context
        )
        headers = _authorization(proxy)
        connection.set_tunnel(self._host, self._port, headers)
        return connection


class _ByProxy(http.client.HTTPConnection):
    """A plain connection to a proxy, which forwards to the server."""

    def __init__(self, proxy, host, port):
        super().__init__(proxy.host, proxy.port)
        host = f"[{host}]" if ":" in host else host
        self._server = f"http://{host}:{port}"
        self._more = _authorization(proxy)

    def request(self, method, url, body=None, headers=(), **options):
        headers = dict(headers) | self._more
        super().request(method, self._server + url, body, headers, **options)


def _authorization(proxy):
    if not proxy.user:
        return {}
    user = base64.b64encode(unquote_to_bytes(proxy.user)).decode()
    return {"Proxy-Authorization": f"Basic {user}"}


def _split(address):
    """Returns scheme, host, port and path of an address."""
    found = None
    if isinstance(address, str):
        whole = address if "://" in address else f"http://{address}"
        with contextlib.suppress(ValueError):
            found = urlsplit(whole)
            if found.scheme in ("http", "https") and found.hostname:
                path = found.path.rstrip("/")
                port = found.port or _PORTS[found.scheme]
                return found.scheme, found.hostname, port, path
    raise ValueError(
        "`address` must be that of the server's REST port, such as "
        '"http://localhost:8501", or begin with https:// for TLS. Received: '
        f"address={address!r}"
    )


def _set_timeout(connection, deadline):
    left = deadline.left()
    if left is not None and left <= 0:
        raise TimeoutError
    connection.timeout = left
    if connection.sock is not None:
        connection.sock.settimeout(left)


def _response(connection, request, deadline):
    """Sends a request and returns the answer, its body not yet read."""
    # Set first, because opening again reads an answer of the proxy.
    connection.response_class = functools.partial(_TimedResponse, deadline)
    try:
        connection.request(*request)
    except (BrokenPipeError, ConnectionResetError):
        # A server may refuse a long body before it has all of it.
        if connection.sock is None:  # no, it never accepted the connection
            raise
    return connection.getresponse()


class _TimedResponse(http.client.HTTPResponse):
    """An answer of which every byte must come in time."""

    def __init__(self, deadline, sock, *arguments, **options):
        super().__init__(_TimedSocket(sock, deadline), *arguments, **options)


class _TimedSocket(io.RawIOBase):
    """Reads from a socket until a deadline."""

    def __init__(self, sock, deadline):
        self._sock, self._deadline = sock, deadline
        self._file = sock.makefile("rb", buffering=0)

    def makefile(self, mode):
        return io.BufferedReader(self)

    def readable(self):
        return True

    def readinto(self, buffer):
        left = self._deadline.left()
        if left is not None and left <= 0:
            raise TimeoutError
        self._sock.settimeout(left)
        return self._file.readinto(buffer)

    def close(self):
        self._file.close()
        super().close()


def _all_of(response, most):
    """Returns the body of an answer."""
    if response.length is not None and response.length > most:
        raise too_large(response.length, f"{most} bytes")
    chunks, size = [], 0
    while chunk := response.read1(_CHUNK):
        size += len(chunk)
        if size > most:
            raise too_large(f"{size} and more", f"{most} bytes")
        chunks.append(chunk)
    if response.length:
        raise http.client.IncompleteRead(b"", response.length)
    response.close()  # which leaves the connection open
    return b"".join(chunks)


def _failure(error, host):
    """Returns the `ServingError` of a failed connection, or `None`."""
    code = grpc.StatusCode.UNAVAILABLE
    if isinstance(error, TimeoutError):
        code = grpc.StatusCode.DEADLINE_EXCEEDED
        return ServingError(code, "Deadline Exceeded")
    if isinstance(error, socket.gaierror):
        return ServingError(code, f"resolving {host!r}: {error}")
    if isinstance(error, _CLOSED) or (
        # Python's `ssl` may meet a connection that was closed already.
        isinstance(error, OSError) and error.errno in _CLOSED_ALREADY
    ):
        return ServingError(code, f"connection closed: {error}")
    if isinstance(error, ssl.SSLError):
        return ServingError(code, str(error))
    if isinstance(error, http.client.IncompleteRead):
        return ServingError(code, f"connection closed amid an answer: {error}")
    if isinstance(error, http.client.HTTPException):
        return ServingError(code, f"not HTTP: {error!r:.200}")
    if isinstance(error, OSError):
        return ServingError(code, f"failed to connect: {error}")
    return None


def _only(names, values):
    """Returns the requested outputs, which a REST request cannot name."""
    for name in names:
        if name not in values:
            raise ServingError(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"output tensor alias not found in signature: {name} Outputs "
                f"expected to be in the set {{{','.join(sorted(values))}}}.",
            )
    return {x: values[x] for x in values if x in names} if names else values
