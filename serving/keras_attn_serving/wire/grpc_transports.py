"""Calls by gRPC: `GrpcTransport` blocks, `AioTransport` suspends.

Both connect with the first call. A forked process, or another event loop,
connects again: gRPC's channels work only in the process and the event loop that
made them.
"""

import asyncio
import os
import re
import time
from collections.abc import Sequence
from typing import Any

import grpc

from keras_attn_serving.wire import grpc_messages
from keras_attn_serving.wire import wire_pb2 as wire
from keras_attn_serving.wire.proxies import proxy_for
from keras_attn_serving.wire.results import ServingError
from keras_attn_serving.wire.transport import Transport
from keras_attn_serving.wire.transport import require_answer_bytes

_OPTIONS = (
    ("grpc.max_send_message_length", -1),
    # A server that restarts is found again after 3 s, not after up to 120.
    ("grpc.max_reconnect_backoff_ms", 3000),
    # A forked process would share its parent's connections, which fail there.
    ("grpc.use_local_subchannel_pool", 1),
)

# A host and a port, as a target of gRPC. Others, such as Unix sockets, have no
# proxy.
_PLACE = re.compile(
    r"(?:(?:dns|ipv4|ipv6):(?://[^/]*/)?)?"
    r"(?P<host>\[[^]]*\]|[^:/\[\]]+)(?::(?P<port>\d+))?"
)

_WHY = 0.2  # seconds to learn why there is no connection


class Target:
    """A server's address, and how to connect to it.

    Args:
        address: `host:port`, or any gRPC target.
        credentials: `grpc.ChannelCredentials`, or `None` for a plain
            connection.
        max_answer_bytes: Most bytes of an answer.
        options: Further gRPC channel options.

    Attributes:
        most: Most bytes of an answer.
    """

    def __init__(
        self,
        address: str,
        credentials: grpc.ChannelCredentials | None,
        max_answer_bytes: int,
        options: Sequence[tuple[str, Any]],
    ):
        web = "http://", "https://"
        if not isinstance(address, str) or address.startswith(web):
            raise ValueError(
                "`address` must be that of the server's gRPC port, "
                '`host:port`, such as "localhost:8500", without http://. '
                f"Received: address={address!r}. For the REST port use "
                "`RestClient`."
            )
        self.address = address
        self._credentials = credentials
        self.most = most = require_answer_bytes(max_answer_bytes)
        self._options = [
            *_OPTIONS,
            ("grpc.max_receive_message_length", most),
            _proxy(address, credentials),
            *options,
        ]

    def channel(self, api: Any) -> Any:
        """Returns a new channel, of `grpc` or of `grpc.aio`."""
        if self._credentials is None:
            return api.insecure_channel(self.address, self._options)
        return api.secure_channel(
            self.address, self._credentials, self._options
        )


def _proxy(address, credentials):
    """Returns the option that makes gRPC use our choice of a proxy."""
    proxy, place = None, _PLACE.fullmatch(address)
    if place:
        scheme = "http" if credentials is None else "https"
        port = place["port"] and int(place["port"])
        proxy = proxy_for(scheme, place["host"].strip("[]"), port)
    if proxy is None:
        return "grpc.enable_http_proxy", 0
    return "grpc.http_proxy", proxy.url


class _Methods:
    """The methods of one channel."""

    def __init__(self, channel):
        self.channel = channel
        self.predict = self._method(
            "PredictionService/Predict",
            wire.PredictRequest,
            wire.PredictResponse,
        )
        self.metadata = self._method(
            "PredictionService/GetModelMetadata",
            wire.GetModelMetadataRequest,
            wire.GetModelMetadataResponse,
        )
        self.status = self._method(
            "ModelService/GetModelStatus",
            wire.GetModelStatusRequest,
            wire.GetModelStatusResponse,
        )

    def _method(self, name, request, response):
        return self.channel.unary_unary(
            f"/tensorflow.serving.{name}",
            request_serializer=request.SerializeToString,
            response_deserializer=response.FromString,
        )


class _ByGrpc(Transport):
    """The part that both transports share: the messages of each call."""

    def __init__(self, target):
        self.address = target.address
        self._target = target
        self._made = None, None  # where a channel was made, its `_Methods`

    async def predict(self, spec, signature, inputs, outputs, timeout):
        request = grpc_messages.predict_request(
            spec, signature, inputs, outputs
        )
        response = await self._call("predict", request, timeout)
        return grpc_messages.result(response, self._target.most)

    async def metadata(self, spec, timeout):
        request = grpc_messages.metadata_request(spec)
        response = await self._call("metadata", request, timeout)
        return grpc_messages.metadata(response)

    async def status(self, spec, timeout):
        request = grpc_messages.status_request(spec)
        response = await self._call("status", request, timeout)
        return grpc_messages.status(response)

    async def _call(self, name, request, timeout):
        raise NotImplementedError

    async def _not_ready(self, timeout):
        """Returns the error of a server that cannot be connected to."""
        said = ""
        try:  # a channel itself does not say why
            await self._call("status", wire.GetModelStatusRequest(), _WHY)
        except ServingError as error:
            said = f" {error.message}"
        return ServingError(
            grpc.StatusCode.UNAVAILABLE,
            f"No server became ready within {timeout} seconds.{said}",
        )

    def _methods(self, api, here):
        """Returns the methods of the channel made `here`."""
        where, methods = self._made
        if where != here:
            methods = _Methods(self._target.channel(api))
            self._made = here, methods
        return methods


class GrpcTransport(_ByGrpc):
    """Carries calls by gRPC, and blocks. Threads may share it."""

    async def _call(self, name, request, timeout):
        method = getattr(self._methods(grpc, os.getpid()), name)
        try:
            return method(request, timeout=timeout)
        except grpc.RpcError as error:
            raise _refusal(error) from None  # it has all that gRPC says

    async def ready(self, timeout):
        channel = self._methods(grpc, os.getpid()).channel
        future = grpc.channel_ready_future(channel)
        try:
            future.result(timeout)
        except grpc.FutureTimeoutError:
            raise await self._not_ready(timeout) from None
        finally:
            future.cancel()

    async def sleep(self, seconds):
        time.sleep(seconds)

    async def close(self):
        here, methods = self._made
        if here == os.getpid():
            methods.channel.close()


class AioTransport(_ByGrpc):
    """Carries calls by gRPC in an event loop."""

    async def _call(self, name, request, timeout):
        method = getattr(self._methods(grpc.aio, _here()), name)
        try:
            return await method(request, timeout=timeout)
        except grpc.RpcError as error:
            raise _refusal(error) from None  # it has all that gRPC says

    async def ready(self, timeout):
        channel = self._methods(grpc.aio, _here()).channel
        try:
            await asyncio.wait_for(channel.channel_ready(), timeout)
        except TimeoutError:
            raise await self._not_ready(timeout) from None

    async def sleep(self, seconds):
        await asyncio.sleep(seconds)

    async def close(self):
        here, methods = self._made
        if here == _here():
            await methods.channel.close()


def _here():
    """Returns the process and the event loop that run this."""
    return os.getpid(), asyncio.get_running_loop()


def _refusal(error):
    return ServingError(error.code(), error.details() or "")
