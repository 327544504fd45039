"""`HttpServer`: an ASGI application behind a port.

uvicorn speaks HTTP. This module takes the connections, because asyncio logs
thousands of lines a second when the file descriptors are used up. It also ends
connections whose clients keep the server waiting:

- after some seconds without the whole head of a request, or without reading,
- when there are too many of them, or no file descriptor is left for a new one:
  the one that has waited longest is closed.

So new clients are answered, however many others are silent.
"""

import asyncio
import contextlib
import logging
import math
import socket
from collections.abc import Sequence
from typing import Any

import uvicorn

from keras_attn_serving.server.connections import Connections
from keras_attn_serving.server.http_connection import Connection
from keras_attn_serving.server.seldom import Seldom

_LOG = logging.getLogger(__name__)

# Between two tries to accept a connection while no file descriptor is free:
# short, because one may become free as soon as an answer is sent.
_RETRY_SECONDS = 0.1
# Time for the last answers to be sent after their requests were cancelled.
_LAST_SECONDS = 0.5


class HttpServer:
    """Answers HTTP, in the running event loop.

    Args:
        app: The ASGI application.
        sockets: The sockets on which it listens.
        limits: Limits on how many connections may wait for their clients, and
            how long.
    """

    def __init__(
        self,
        app: Any,
        sockets: Sequence[socket.socket],
        limits: Connections,
    ):
        self._sockets, self._limits = sockets, limits
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                http="h11",
                lifespan="off",
                ws="none",
                log_config=None,
                access_log=False,
                server_header=False,
                # Longer than `_watch` waits, which closes idle connections
                # first.
                timeout_keep_alive=math.ceil(limits.idle_seconds) + 1,
            )
        )
        # uvicorn's own set: it has a connection as soon as it can be closed.
        self._connections = self._server.server_state.connections
        self._tasks: list[asyncio.Task] = []
        self._serving: asyncio.Task | None = None
        self._crowded = Seldom(
            _LOG,
            f"%d HTTP connections were closed: more than {limits.most} waited "
            "for their clients. --max_connections allows more",
        )
        self._used_up = Seldom(
            _LOG,
            "no file descriptor is left for new HTTP connections (%d tries). A "
            "larger `ulimit -n` allows more",
        )

    def start(self) -> None:
        """Begins to take connections."""
        # Without sockets, uvicorn leaves accepting connections to us. It still
        # updates the date of its answers, and shuts connections down.
        self._serving = asyncio.ensure_future(self._server.serve(sockets=[]))
        work = [self._watch(), *map(self._accept, self._sockets)]
        self._tasks = list(map(asyncio.ensure_future, work))

    async def stop(self, grace: float) -> None:
        """Finishes the requests in flight, for up to `grace` seconds.

        Then they are cancelled; the application answers them with an error.
        """
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        for each in self._sockets:
            each.close()
        if self._serving is None:
            return
        self._server.should_exit = True
        _, late = await asyncio.wait([self._serving], timeout=grace)
        if late:
            self._server.force_exit = True
            await self._serving
            if tasks := list(self._server.server_state.tasks):
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks, timeout=_LAST_SECONDS)
        for connection in list(self._connections):
            self._end(connection)

    async def _accept(self, listening):
        loop = asyncio.get_running_loop()
        listening.setblocking(False)
        while True:
            try:
                accepted, _ = await loop.sock_accept(listening)
            except ConnectionError:  # the client has left already
                continue
            except OSError:  # no file descriptor, or no memory
                self._used_up()
                more = self._make_room()
                await asyncio.sleep(0.0 if more else _RETRY_SECONDS)
                continue
            with contextlib.suppress(OSError):  # the client has just left
                await loop.connect_accepted_socket(self._connection, accepted)
            waiting = sum(each.waits for each in self._connections)
            if waiting > self._limits.most:
                self._crowded()
                self._make_room()

    def _connection(self):
        return Connection(self._server.config, self._server.server_state)

    def _make_room(self):
        """Ends the connection that has waited longest for its client.

        Returns whether there was one.
        """
        waiting = [each for each in self._connections if each.waits]
        if waiting:
            self._end(min(waiting, key=lambda each: each.since))
        return bool(waiting)

    def _end(self, connection):
        self._connections.discard(connection)
        connection.transport.abort()

    async def _watch(self):
        """Ends connections that have waited too long for their clients."""
        seconds = self._limits.idle_seconds
        while True:
            await asyncio.sleep(min(1.0, seconds / 4))
            for each in list(self._connections):
                if each.late(seconds):
                    self._end(each)
