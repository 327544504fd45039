"""`Call`: a request to run a model, by any protocol."""

import abc
import asyncio
import contextlib
import functools
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from keras_attn_serving.server.model import Model
from keras_attn_serving.server.room import Place
from keras_attn_serving.server.room import Room
from keras_attn_serving.server.validation import Plan
from keras_attn_serving.server.workers import Later
from keras_attn_serving.server.workers import Workers


class Job(NamedTuple):
    """The work of a call: a plan, and the loaded model that runs it."""

    model: Model
    signature: str
    plan: Plan


SMALL = 64 * 1024  # bytes of a message


class Call(abc.ABC):
    """A request, and the way to write its answer.

    Attributes:
        size: Bytes of the request.
    """

    size: int

    @property
    def small(self) -> bool:
        """Whether reading it takes no longer than passing it to a thread."""
        return self.size <= SMALL

    @abc.abstractmethod
    def open(self) -> contextlib.AbstractContextManager[Job]:
        """Reads and checks the request; holds the model until it is closed.

        Raises:
            StatusError: If the request is invalid.
        """

    @abc.abstractmethod
    def answer(self, job: Job, values: Mapping[str, np.ndarray]) -> bytes:
        """Returns the message of an answer.

        Args:
            job: What `open` returned.
            values: Arrays by the names of the outputs.

        Raises:
            StatusError: If it has too many bytes, or an output cannot be sent.
        """

    def run(self, place: Place, timeout: float | None = None) -> bytes | Later:
        """Runs the call alone, in this thread, if there is room.

        A call that has to wait is read again then: what was read takes more
        memory than the request.

        Args:
            place: The call's place in a room.
            timeout: Seconds until the run is cancelled.

        Returns:
            The message of the answer, or when to call this again.

        Raises:
            StatusError: If the request is invalid, or the run fails.
        """
        with self.open() as job:
            later = place.take(job.plan.elements)
            if later is not None:
                return later
            try:
                return self.answer(job, job.model.execute(job.plan, timeout))
            finally:
                place.give()


class Executor(abc.ABC):
    """Decides when calls run, and in which thread.

    All methods but `close()` are called in one event loop.
    """

    def __init__(self) -> None:
        self._active = 0
        self._idle = asyncio.Event()
        self._idle.set()

    async def answer(self, call: Call, remaining: float | None) -> bytes:
        """Answers a call.

        Args:
            call: The call.
            remaining: Seconds until its deadline, or `None`.

        Raises:
            StatusError: If it cannot be answered.
        """
        self._active += 1
        self._idle.clear()
        try:
            return await self._answer(call, remaining)
        finally:
            self._active -= 1
            if not self._active:
                self._idle.set()

    async def idle(self) -> None:
        """Returns when no call is being answered."""
        await self._idle.wait()

    @abc.abstractmethod
    async def _answer(self, call: Call, remaining: float | None) -> bytes: ...

    @abc.abstractmethod
    def close(self) -> None:
        """Waits for the runs, and ends the threads."""


class Alone(Executor):
    """Runs each call by itself, in one of a few threads.

    A thread also reads and writes the messages, so large ones do not delay the
    answers of other calls. A call that waits for room holds no thread, so small
    ones go on.

    Args:
        workers: The threads.
        room: Room for the elements of the calls that run.
    """

    def __init__(self, workers: Workers, room: Room):
        super().__init__()
        self._workers, self._room = workers, room

    async def _answer(self, call, remaining):
        place = self._room.place()
        try:
            run = functools.partial(call.run, place)
            return await self._workers.run(run, remaining, call.size)
        finally:
            place.leave()

    def close(self) -> None:
        self._workers.close()
