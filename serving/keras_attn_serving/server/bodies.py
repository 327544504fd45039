"""`Bodies`: the bodies of HTTP requests, while they arrive.

A client may announce a body and send it slowly, or never. What has arrived is
kept as it was sent, zipped bodies too, and all of it together has one limit:
beyond it the body that has been arriving for longest is refused. So clients
that send what they announce are answered, however many others do not.
"""

import asyncio
import logging
from collections.abc import AsyncIterable

from keras_attn_serving.server.errors import Code
from keras_attn_serving.server.errors import StatusError
from keras_attn_serving.server.seldom import Seldom

_LOG = logging.getLogger(__name__)


class Bodies:
    """Reads bodies. All methods are called in one event loop.

    Args:
        most: Bytes that one body may have.
        together: Bytes that all arriving bodies may have together.
    """

    def __init__(self, most: int, together: int):
        self._most, self._together = most, together
        self._arriving: dict[_Body, None] = {}  # the oldest is the first
        self._bytes = 0
        self._closed = False
        self._warn = Seldom(
            _LOG,
            "%d requests by REST were refused: they arrived too slowly, and "
            f"all arriving requests had more than {together} bytes together",
        )

    async def read(
        self, chunks: AsyncIterable[bytes], seconds: float | None
    ) -> bytes:
        """Returns a body when all of it has arrived.

        Args:
            chunks: Its parts.
            seconds: Seconds in which it must arrive, or `None`.

        Raises:
            StatusError: RESOURCE_EXHAUSTED if it is too large,
                DEADLINE_EXCEEDED if it takes too long, UNAVAILABLE if its
                memory is needed for others or the server stops.
        """
        body = _Body()
        try:
            async with asyncio.timeout(seconds) as body.time:
                self._arriving[body] = None
                if self._closed:
                    self._refuse(body, _STOPS)
                async for chunk in chunks:
                    self._add(body, chunk)
                if body.refusal is not None:
                    raise body.refusal
                return b"".join(body.chunks)
        except TimeoutError:
            raise body.refusal or StatusError(
                Code.DEADLINE_EXCEEDED,
                f"The request did not arrive within {seconds} seconds.",
            ) from None
        finally:
            self._drop(body)

    def close(self) -> None:
        """Refuses the bodies that have not arrived, and further ones."""
        self._closed = True
        for body in list(self._arriving):
            self._refuse(body, _STOPS)

    def _add(self, body, chunk):
        if body not in self._arriving:  # refused since it last sent something
            return
        body.chunks.append(chunk)
        body.size += len(chunk)
        self._bytes += len(chunk)
        if body.size > self._most:
            raise too_large(self._most)
        while self._bytes > self._together:
            self._warn()
            self._refuse(
                next(iter(self._arriving)),
                "The request arrived too slowly: the server needs its memory "
                "for others. Send it again later.",
            )

    def _refuse(self, body, why):
        body.refusal = StatusError(Code.UNAVAILABLE, why)
        self._drop(body)
        body.time.reschedule(asyncio.get_running_loop().time())  # now

    def _drop(self, body):
        if body in self._arriving:
            del self._arriving[body]
            self._bytes -= body.size
        body.chunks.clear()


_STOPS = "The server stops."


class _Body:
    """The chunks of a body that have arrived, and its time limit."""

    time: asyncio.Timeout

    def __init__(self):
        self.chunks: list[bytes] = []
        self.size = 0
        self.refusal: StatusError | None = None


def too_large(most: int) -> StatusError:
    """Returns the error for a body that has too many bytes."""
    return StatusError(
        Code.RESOURCE_EXHAUSTED,
        f"A request may have at most {most} bytes. Send it in several, or "
        "start the server with a larger --max_message_bytes.",
    )
