"""gRPC's health service and its reflection service.

They answer in the event loop, so their requests must be small.
"""

import asyncio
from collections.abc import AsyncIterator
from collections.abc import Collection
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection
from grpc_reflection.v1alpha import reflection_pb2

from keras_attn_serving.server.errors import Code
from keras_attn_serving.server.errors import StatusError
from keras_attn_serving.server.errors import invalid_argument
from keras_attn_serving.server.rpcs import Rpcs

HEALTH = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
REFLECTION = reflection.SERVICE_NAME

_LONGEST = 1024  # bytes of a request, which holds a name
_Status = health_pb2.HealthCheckResponse


class Health:
    """Answers `grpc.health.v1.Health`.

    Unlike gRPC's own service, it never makes a client wait for another one that
    does not read its answers.

    Args:
        names: The services that it reports, as serving until `stop`.
        rpcs: The calls that wait for their clients.
        most: The most clients that may watch at a time.
    """

    def __init__(self, names: Collection[str], rpcs: Rpcs, most: int):
        self._names, self._rpcs, self._most = names, rpcs, most
        self._watching = 0
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        """Reports from now on that the services do not serve."""
        self._stopped.set()

    def add_to(self, server: grpc.aio.Server) -> None:
        """Adds the methods to a server.

        They are also registered, because gRPC takes calls of a registered
        method as they arrive. Other calls wait for all earlier ones, of which
        there may be thousands in a burst.
        """
        methods = {
            "Check": self._rpcs.unary(self._check),
            "Watch": self._rpcs.stream(self._watch),
        }
        handler = grpc.method_handlers_generic_handler(HEALTH, methods)
        server.add_generic_rpc_handlers((handler,))
        server.add_registered_method_handlers(HEALTH, methods)

    async def _check(self, raw, context):
        name = _name(raw)
        if name not in self._names:
            raise StatusError(
                Code.NOT_FOUND,
                "The health service knows "
                f"{', '.join(map(repr, self._names))}. Received: {name!r}",
            )
        return self._answer(name)

    async def _watch(self, context: Any) -> AsyncIterator[bytes]:
        raw = await self._rpcs.read(context)
        name = _name(raw or b"")
        if self._watching >= self._most:
            raise StatusError(
                Code.RESOURCE_EXHAUSTED,
                f"At most {self._most} clients may watch at a time. Call "
                "Check, or start the server with a larger --max_connections.",
            )
        self._watching += 1
        try:
            yield self._answer(name)
            if name in self._names and not self._stopped.is_set():
                await self._stopped.wait()
                yield self._answer(name)
            await asyncio.Event().wait()  # until the client or server ends it
        finally:
            self._watching -= 1

    def _answer(self, name):
        status = _Status.SERVICE_UNKNOWN
        if name in self._names:
            stopped = self._stopped.is_set()
            status = _Status.NOT_SERVING if stopped else _Status.SERVING
        return _Status(status=status).SerializeToString()


class Reflection:
    """Answers `grpc.reflection.v1alpha.ServerReflection`.

    Args:
        names: The services that it lists.
        rpcs: The calls that wait for their clients.
    """

    def __init__(self, names: Collection[str], rpcs: Rpcs):
        self._rpcs = rpcs
        self._described = reflection.aio.ReflectionServicer(names)

    def handlers(self) -> grpc.GenericRpcHandler:
        """Returns what gRPC's server needs to call the method."""
        methods = {"ServerReflectionInfo": self._rpcs.stream(self._info)}
        return grpc.method_handlers_generic_handler(REFLECTION, methods)

    async def _info(self, context: Any) -> AsyncIterator[bytes]:
        async for answer in self._described.ServerReflectionInfo(
            self._requests(context), context
        ):
            yield answer.SerializeToString()

    async def _requests(self, context):
        while (raw := await self._rpcs.read(context)) is not None:
            yield _read(reflection_pb2.ServerReflectionRequest, raw)


def _name(raw):
    return _read(health_pb2.HealthCheckRequest, raw).service


def _read(kind, raw):
    if len(raw) > _LONGEST:
        raise invalid_argument(
            f"A {kind.__name__} may have at most {_LONGEST} bytes. Received: "
            f"{len(raw)}."
        )
    try:
        return kind.FromString(raw)
    except DecodeError as error:
        raise StatusError(
            Code.INTERNAL, f"The request is no {kind.__name__}: {error}"
        ) from error
