"""`Rpcs`: gRPC's calls while they wait for their clients.

A client may begin a call and not send its request, or not read the answer. gRPC
keeps the bytes that have arrived and those that have not been sent. It limits
each message, but not all of them together. `Rpcs` limits the total: it reads
the requests, and counts the answers until they have been sent.
"""

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator
from collections.abc import Awaitable
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any

import grpc

from keras_attn_serving.server.errors import Code
from keras_attn_serving.server.errors import StatusError
from keras_attn_serving.server.errors import invalid_argument

# gRPC sends the text in a header, so TensorFlow Serving cuts it.
_LONGEST = 1024
_CODES = {code.value[0]: code for code in grpc.StatusCode}

# Each call that waits for its request may already hold most of a large one.
# While no more calls than these wait, each has its full time.
_WAITING = 64
_PATIENCE = 2.0  # seconds that a client has when others need the memory
_SLOWEST = 50_000  # bytes a second at which a client must read its answer
_CALL = 20_000  # bytes that a call takes in addition to its messages


class Rpcs:
    """The calls that wait for their clients.

    All methods are called in one event loop, whose tasks are `Task`s.

    Args:
        answer_bytes: Most bytes of an answer. Answers that have not been sent
            may have four times as many together, or 80 MB if that is more.
        seconds: Seconds in which a request must arrive.
    """

    def __init__(self, answer_bytes: int, seconds: float):
        # Room for many small answers, whatever the limit of one.
        self._together = max(4 * answer_bytes, 4000 * _CALL)
        self._seconds = seconds
        # In both, the oldest come first.
        self._waiting: dict[asyncio.Timeout, float] = {}
        self._unread: dict[asyncio.Task, _Answer] = {}
        self._bytes = 0

    def unary(
        self, method: Callable[[bytes, Any], Awaitable[bytes]]
    ) -> grpc.RpcMethodHandler:
        """Returns a handler of calls with one request and one answer.

        Both are bytes, so that gRPC does not parse in the event loop.
        """

        @_answering
        async def call(_, context):
            request = await self.read(context)
            if request is None:
                raise invalid_argument("The call ended without a request.")
            answer = await method(request, context)
            self._note(len(answer))  # until the task ends
            return answer

        # For gRPC the request is a stream, so that this class reads it.
        return grpc.stream_unary_rpc_method_handler(call)

    def stream(
        self, method: Callable[[Any], AsyncIterator[bytes]]
    ) -> grpc.RpcMethodHandler:
        """Returns a handler of calls with a stream of answers.

        Args:
            method: It takes the context, with which it may `read` requests.
        """

        @_answering
        async def call(_, context):
            async with contextlib.aclosing(method(context)) as answers:
                async for answer in answers:
                    with self._noted(len(answer)):
                        await context.write(answer)

        return grpc.stream_stream_rpc_method_handler(call)

    async def read(self, context: grpc.aio.ServicerContext) -> bytes | None:
        """Returns the next request of a call; `None` if there is none.

        Raises:
            StatusError: DEADLINE_EXCEEDED if it takes too long, UNAVAILABLE
                if its memory is needed for others.
        """
        try:
            async with asyncio.timeout(self._seconds) as time:
                self._waiting[time] = asyncio.get_running_loop().time()
                self._give_way()
                request = await context.read()
        except TimeoutError:
            raise _too_slow(self._seconds, time in self._waiting) from None
        finally:
            self._waiting.pop(time, None)
        return None if request is grpc.aio.EOF else request

    def _give_way(self):
        """Ends calls that wait for their requests, if too many do."""
        now = asyncio.get_running_loop().time()
        while len(self._waiting) > _WAITING:
            oldest, since = next(iter(self._waiting.items()))
            if now - since < _PATIENCE:
                return
            del self._waiting[oldest]
            oldest.reschedule(now)

    @contextlib.contextmanager
    def _noted(self, size: int) -> Iterator[None]:
        task = self._note(size)
        try:
            yield
        finally:
            task.remove_done_callback(self._forget)
            self._forget(task)

    def _note(self, size):
        """Counts the answer of the current task until the task ends."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        size += _CALL
        while self._bytes + size > self._together:
            oldest, answer = next(iter(self._unread.items()))
            if loop.time() - answer.since < _PATIENCE:
                raise StatusError(
                    Code.UNAVAILABLE,
                    "The server has too much to do for this call: its clients "
                    f"have yet to read {self._bytes} bytes of answers. Send it "
                    "again later.",
                )
            self._end(oldest)
        timer = loop.call_later(
            self._seconds + size / _SLOWEST, self._end, task
        )
        self._unread[task] = _Answer(size, loop.time(), timer)
        self._bytes += size
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task):
        if (answer := self._unread.pop(task, None)) is not None:
            self._bytes -= answer.size
            answer.timer.cancel()

    def _end(self, task):
        """Ends a call whose client does not read the answer."""
        self._forget(task)
        # Cancelling the task is not enough, because it has passed the answer to
        # gRPC. gRPC drops the answer with the call, which the task's parent
        # holds.
        if task.parent is not None:
            task.parent.cancel()
        task.cancel()


class Task(asyncio.Task):
    """A task that knows the task that created it.

    gRPC creates two tasks for each call: one that waits for the call's end and,
    inside it, one that answers.

    Attributes:
        parent: The task, or `None`.
    """

    def __init__(self, coroutine, *, loop, **options):
        super().__init__(coroutine, loop=loop, **options)
        self.parent = asyncio.current_task(loop)


def make_task(
    loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any
) -> Task:
    """Makes a `Task`; the task factory of the event loop."""
    return Task(coroutine, loop=loop, **options)


class _Answer:
    """An answer that has not been sent: its bytes, start and timer."""

    def __init__(self, size, since, timer):
        self.size, self.since, self.timer = size, since, timer


def _answering(method: Callable) -> Callable:
    # Converts a `StatusError` to a gRPC status for the client.
    @functools.wraps(method)
    async def call(requests, context):
        try:
            return await method(requests, context)
        except StatusError as error:
            if context.cancelled():  # no one waits for the status
                return None
            await context.abort(_CODES[error.code], cut(error.details))

    return call


def cut(details: str) -> str:
    """Cuts the text of an error as TensorFlow Serving does."""
    # Encodes no more than is kept: the text may quote a long request.
    raw = details[: _LONGEST + 1].encode("utf-8", "replace")
    if len(raw) <= _LONGEST:
        return details
    return raw[:_LONGEST].decode("utf-8", "ignore") + "...TRUNCATED"


def _too_slow(seconds, late):
    if late:
        return StatusError(
            Code.DEADLINE_EXCEEDED,
            f"The request did not arrive within {seconds:g} seconds.",
        )
    return StatusError(
        Code.UNAVAILABLE,
        "The request arrived too slowly: the server needs its memory for "
        "others. Send it again later.",
    )
