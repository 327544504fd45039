"""`Connection`: an HTTP client, and how long the server has waited for it.

uvicorn's protocol closes a connection that is idle after an answer. But it
keeps one whose client never sends a whole request, or does not read its answer.
This class knows how long the server has been waiting for the client.

It also answers a client that has sent its request and then closed its side of
the connection. uvicorn's protocol treats such a client as gone. The two cases
cannot be distinguished, so the answer must come within 2 seconds; after that,
the client counts as gone here too.
"""

import asyncio
import json
import re
from typing import Any

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

_LONGEST_HEAD = 16 * 1024  # bytes of a request's first line and headers
# h11 is written in Python and takes 10 us per chunk, even for one byte: eight
# bodies of a million such chunks kept a health check waiting for 19 s. Clients
# that write piece by piece may send a thousand small chunks; beyond these,
# chunks must have a minimum mean size. Usual chunks have 4 kB and more.
_SMALL_CHUNKS = 1000
_MEAN_CHUNK = 256  # bytes
# Time to answer a client that has closed its side.
_SECONDS_AFTER_END = 2.0
# RFC 9112, 3.2.2: a server must take a request that names its own address.
_ABSOLUTE = re.compile(rb"https?://[^/?#]*", re.IGNORECASE)


class Connection(H11Protocol):
    """A connection of one client.

    Args:
        config: uvicorn's configuration.
        state: State that uvicorn's server shares among its connections.

    Attributes:
        since: The event loop's time at which the server began to wait for the
            client: when it connected, or was last answered.
    """

    def __init__(self, config: Config, state: ServerState):
        super().__init__(config, state, {})
        self.conn = self._requests = _Requests(h11.SERVER, _LONGEST_HEAD)
        self._unread = 0  # bytes of answers that the client has not read
        # Set when the client has closed its side; when it fires, the client
        # counts as gone.
        self._end: asyncio.TimerHandle | None = None
        self.since = self.loop.time()

    @property
    def waits(self) -> bool:
        """Whether it is the client's turn: to send, or to read its answer."""
        cycle = self.cycle
        return cycle is None or cycle.response_complete or cycle.more_body

    def late(self, seconds: float) -> bool:
        """Whether the client has let `seconds` pass.

        A request whose body does not arrive is answered by the application,
        which has its own time limit. A client that reads its answer slowly is
        not late.
        """
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            return False
        unread = self.transport.get_write_buffer_size()
        if unread < self._unread:
            self.since = self.loop.time()
        self._unread = unread
        return self.loop.time() - self.since > seconds

    def data_received(self, data: bytes) -> None:
        # h11 takes a head of any length if all of it comes at once.
        for start in range(0, len(data), _LONGEST_HEAD):
            if self.transport.is_closing():  # refused
                return
            super().data_received(data[start : start + _LONGEST_HEAD])

    def eof_received(self) -> bool:  # type: ignore[override]
        """Keeps the connection open while an answer is being computed."""
        cycle = self.cycle
        if cycle is None or cycle.response_complete or cycle.more_body:
            return False
        if self._end is None:
            self._end = self.loop.call_later(
                _SECONDS_AFTER_END, self.transport.close
            )
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        if self._end is not None:
            self._end.cancel()

    def on_response_complete(self) -> None:
        self.since = self.loop.time()
        super().on_response_complete()
        # It may have begun with the next request, sent before the end.
        if self._end is not None and self.cycle.response_complete:
            self.transport.close()  # once the answer has left

    def send_400_response(self, msg: str) -> None:
        """Refuses an invalid request, and closes the connection."""
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

    It also refuses bodies of very many small chunks.

    Attributes:
        refusal: Why the last request was refused, or "".
    """

    refusal = ""
    _chunks = _bytes = 0  # of the body that arrives

    def next_event(self) -> Any:
        try:
            event = super().next_event()
            if isinstance(event, h11.Request):
                _require_one_length(event)
                self._chunks = self._bytes = 0
                return _of_this_server(event)
            if isinstance(event, h11.Data):
                self._bytes += len(event.data)
                self._chunks += event.chunk_start
                self._require_few_chunks()
            return event
        except _TooMany as error:
            self.refusal = str(error)
            raise
        except h11.RemoteProtocolError as error:
            self.refusal = f"The request is not valid HTTP: {error}"
            raise

    def _require_few_chunks(self):
        small = self._chunks - self._bytes // _MEAN_CHUNK
        if small > _SMALL_CHUNKS:
            raise _TooMany(
                f"A body may have at most {_SMALL_CHUNKS} chunks, and one more "
                f"for every {_MEAN_CHUNK} bytes. Received: {self._chunks} "
                f"chunks of {self._bytes} bytes together. Send larger chunks, "
                "or the body's Content-Length instead."
            )


class _TooMany(h11.RemoteProtocolError):
    """More chunks than a body may have."""


def _require_one_length(request):
    # Servers that disagree on which one ends a body could be made to see
    # different requests (RFC 9112, 6.1 and 11.2).
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
