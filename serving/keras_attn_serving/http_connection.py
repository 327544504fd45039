"""`Connection`: one client of the HTTP server, and whether the server waits.

uvicorn's protocol closes a connection that is idle after an answer. It keeps
one that has never sent a whole request, or does not read its answer. This one
knows since when its server has been waiting for the client.
"""

import json
import re
from collections.abc import Callable
from typing import Any

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

_LONGEST_HEAD = 16 * 1024  # bytes of a request's first line and headers
# RFC 9112, 3.2.2: a server must take a request that names its own address.
_ABSOLUTE = re.compile(rb"https?://[^/?#]*", re.IGNORECASE)


class Connection(H11Protocol):
    """A connection of one client.

    Args:
        config: uvicorn's configuration.
        state: What uvicorn's server knows of all its connections.
        ended: Called when the connection has ended.

    Attributes:
        since: The event loop's time at which the server began to wait for the
            client: when it connected, or was last answered.
    """

    def __init__(
        self,
        config: Config,
        state: ServerState,
        ended: Callable[["Connection"], Any],
    ):
        super().__init__(config, state, {})
        self.conn = self._requests = _Requests(h11.SERVER, _LONGEST_HEAD)
        self._ended = ended
        self._unread = 0  # bytes of answers that the client has not read
        self.since = self.loop.time()

    @property
    def waits(self) -> bool:
        """Whether it is the client's turn: to send, or to read its answer."""
        cycle = self.cycle
        return cycle is None or cycle.response_complete or cycle.more_body

    def late(self, seconds: float) -> bool:
        """Whether the client has let so many seconds pass.

        A request whose body does not arrive is answered by the application,
        which has a time limit of its own. A client that reads its answer
        slowly is not late.
        """
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            return False
        unread = self.transport.get_write_buffer_size()
        if unread < self._unread:
            self.since = self.loop.time()
        self._unread = unread
        return self.loop.time() - self.since > seconds

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        self._ended(self)

    def on_response_complete(self) -> None:
        self.since = self.loop.time()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuses what is not HTTP, and closes the connection."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.close()  # the request was answered before its end
            return
        body = json.dumps({"error": self._requests.refusal or msg}).encode()
        headers = [
            ("content-type", "application/json"),
            ("content-length", str(len(body))),
            ("connection", "close"),
        ]
        for event in (
            h11.Response(status_code=400, headers=headers),
            h11.Data(data=body),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event))
        self.transport.close()


class _Requests(h11.Connection):
    """h11's parser, with two rules of RFC 9112 that it leaves to its users.

    Attributes:
        refusal: Why the last request was refused, or "".
    """

    refusal = ""

    def next_event(self) -> Any:
        try:
            event = super().next_event()
            if isinstance(event, h11.Request):
                _require_one_length(event)
                return _of_this_server(event)
            return event
        except h11.RemoteProtocolError as error:
            self.refusal = f"The request is not valid HTTP: {error}"
            raise


def _require_one_length(request):
    # Servers that take different ones for the end of a body could be made to
    # see different requests (6.1 and 11.2).
    names = {name for name, _ in request.headers}
    if b"transfer-encoding" not in names:
        return
    if b"content-length" in names:
        raise h11.RemoteProtocolError(
            "it may have Content-Length or Transfer-Encoding, but not both."
        )
    if request.http_version < b"1.1":
        raise h11.RemoteProtocolError(
            "Transfer-Encoding needs HTTP/1.1. Received: HTTP/"
            f"{request.http_version.decode()}."
        )


def _of_this_server(request):
    absolute = _ABSOLUTE.match(request.target)
    if not absolute:
        return request
    path = request.target[absolute.end() :]
    return h11.Request(
        method=request.method,
        headers=request.headers,
        target=path if path.startswith(b"/") else b"/" + path,
        http_version=request.http_version,
    )
