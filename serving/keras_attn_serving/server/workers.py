"""`Workers`: the threads that run the model, and the calls that wait for one.

The server answers in an event loop. Only runs of the model take a thread, so
no number of open streams or waiting calls keeps health checks from an answer.
"""

import asyncio
import collections
import contextlib
import math
from collections.abc import Callable
from concurrent import futures
from typing import Any
from typing import NamedTuple

from keras_attn_serving.server.errors import Code
from keras_attn_serving.server.errors import StatusError

_SHARE = 0.2  # weight of the last run in the moving means
_CAUTION = 3.0  # a call may take the mean plus this many spreads


class Later(NamedTuple):
    """Returned by a function that cannot run yet.

    Attributes:
        ready: Done when the function is to be called again.
    """

    ready: futures.Future


class Workers:
    """Runs functions in a few threads, in the order in which they came.

    All methods but `close()` are called in one event loop. A call that is
    cancelled while it waits never runs. A call that would be answered after
    its deadline is refused at once, so that under overload the time goes to
    calls that can still be answered. A function that returns `Later` waits
    without a thread, and then gets the next one that is free.

    Args:
        threads: Number of functions that run at a time.
        queued: Number of calls that may wait for a thread, and of those that
            may wait after `Later`; further ones are refused.
        run_seconds: Time limit of each run, in seconds.
        queued_bytes: Bytes of the requests that may wait.
    """

    def __init__(
        self,
        threads: int,
        queued: int,
        run_seconds: float,
        queued_bytes: float = math.inf,
    ):
        self._pool = futures.ThreadPoolExecutor(
            threads, thread_name_prefix="keras_attn_serving"
        )
        self._threads = self._free = threads
        self._queued, self._run_seconds = queued, run_seconds
        self._queued_bytes, self._bytes = queued_bytes, 0
        self._waiting: collections.deque = collections.deque()
        self._first: collections.deque = collections.deque()  # before those
        self._later = 0  # calls that wait after `Later`
        # Moving means of the seconds of a run, and of their distance from the
        # mean.
        self._mean = self._spread = 0.0

    async def run(
        self,
        function: Callable[[float], Any],
        remaining: float | None,
        size: int = 0,
    ) -> Any:
        """Runs a function in a thread.

        Args:
            function: Called with the seconds that it may use; once more each
                time that it returns `Later`.
            remaining: Seconds until the call's deadline, or `None`.
            size: Bytes of the request.

        Raises:
            StatusError: UNAVAILABLE if too many calls wait, or too many for
                this one's deadline; DEADLINE_EXCEEDED if that passes after
                `Later`.
        """
        loop = asyncio.get_running_loop()
        deadline = None if remaining is None else loop.time() + remaining
        await self._turn(deadline, size)
        result = await self._ran(function, deadline)
        while isinstance(result, Later):
            await self._ready(result, deadline, size)
            await self._turn(deadline, size, first=True)
            result = await self._ran(function, deadline)
        return result

    def close(self) -> None:
        """Waits for the runs, and ends the threads."""
        self._pool.shutdown()

    async def _ran(self, function, deadline):
        """Runs a function in the thread that is free for it."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        seconds = self._run_seconds
        if deadline is not None:
            seconds = min(seconds, deadline - started)
        try:
            job = self._pool.submit(function, seconds)
        except BaseException:
            self._give()
            raise
        job.add_done_callback(
            lambda done: loop.call_soon_threadsafe(self._ended, started, done)
        )
        # If this is cancelled the thread goes on, and is free when it ends.
        try:
            return await asyncio.wrap_future(job)
        except StatusError as error:
            raise named(error, seconds, self._run_seconds) from error

    async def _ready(self, later, deadline, size):
        """Returns when a function is to be called again."""
        self._require_place(self._later, size)
        self._later += 1
        self._bytes += size
        try:
            async with asyncio.timeout_at(deadline):
                # The future is not this call's to cancel.
                await asyncio.shield(asyncio.wrap_future(later.ready))
        except TimeoutError:
            raise StatusError(
                Code.DEADLINE_EXCEEDED, "Deadline exceeded"
            ) from None
        finally:
            self._later -= 1
            self._bytes -= size

    async def _turn(self, deadline, size, first=False):
        """Returns when a thread is free for this call.

        Args:
            deadline: The call's deadline, or `None`.
            size: Bytes of the request.
            first: Whether it had a thread before, and so goes before those
                that had none, however many wait.
        """
        if self._free:
            self._free -= 1
            return
        queue = self._first if first else self._waiting
        if not first:
            self._require_place(len(queue), size)
            before = len(queue) + 1
            expected = self._mean * (1 + before / self._threads)
            self._require_time(deadline, expected + _CAUTION * self._spread)
        turn = asyncio.get_running_loop().create_future()
        queue.append(turn)
        self._bytes += size
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                with contextlib.suppress(ValueError):  # `_give` was faster
                    queue.remove(turn)
            else:  # its turn had just come
                self._give()
            raise
        finally:
            self._bytes -= size
        try:  # not even a short run would end in time
            self._require_time(deadline, self._mean - self._spread)
        except StatusError:
            self._give()
            raise

    def _require_place(self, waiting, size):
        """Raises if so many calls wait that this one may not."""
        full = self._bytes + size > self._queued_bytes
        if waiting >= self._queued or full:
            raise _unavailable(f"its queue of {waiting} calls is full")

    def _require_time(self, deadline, expected):
        """Raises unless a call is expected to end in time."""
        if deadline is None:
            return
        if asyncio.get_running_loop().time() + expected > deadline:
            raise _unavailable(
                "it would be answered after its deadline, as a run takes up "
                f"to {self._mean + _CAUTION * self._spread:.2g} s and "
                f"{len(self._waiting)} calls are in the queue"
            )

    def _ended(self, started, done):
        seconds = asyncio.get_running_loop().time() - started
        failed = done.cancelled() or done.exception() is not None
        # It was refused before it ran, or has to wait.
        if (failed and seconds < self._mean) or (
            not failed and isinstance(done.result(), Later)
        ):
            self._give()
            return
        share = _SHARE if self._mean else 1.0
        away = abs(seconds - self._mean) if self._mean else 0.0
        self._mean += share * (seconds - self._mean)
        self._spread += share * (away - self._spread)
        self._give()

    def _give(self):
        """Gives a thread to the call that waits longest."""
        while queue := self._first or self._waiting:
            turn = queue.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1


def named(error: StatusError, seconds: float, most: float) -> StatusError:
    """Returns an error that names the limit of a run, if that ended it.

    Args:
        error: The error of the run.
        seconds: How many seconds it could have taken.
        most: How many seconds a run may take.
    """
    if error.code is not Code.DEADLINE_EXCEEDED or seconds < most:
        return error
    return StatusError(
        error.code,
        f"A run may take at most {most:g} seconds. Send fewer texts per "
        "request, or start the server with a larger --max_run_seconds.",
    )


def _unavailable(why):
    return StatusError(
        Code.UNAVAILABLE,
        f"The server has too much to do for this call: {why}. Send it again "
        "later, or with a longer deadline.",
    )
