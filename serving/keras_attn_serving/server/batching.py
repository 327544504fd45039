"""`Batches`: joins requests of several clients into one run of the model.

It follows TensorFlow Serving's batching session, errors included, in all but
two points. A request waits for others only while the model is busy, so a lone
client never waits. And if a client has left, or the deadline of a request has
passed, only that request is dropped.
"""

import asyncio
import collections
import contextlib
from collections.abc import Mapping
from collections.abc import Sequence
from concurrent import futures
from typing import NamedTuple

import numpy as np

from keras_attn_serving.server.calls import Executor
from keras_attn_serving.server.calls import Job
from keras_attn_serving.server.config import Batching
from keras_attn_serving.server.errors import Code
from keras_attn_serving.server.errors import StatusError
from keras_attn_serving.server.errors import invalid_argument
from keras_attn_serving.server.limits import Limits
from keras_attn_serving.server.metrics import Metrics
from keras_attn_serving.server.room import Room
from keras_attn_serving.server.workers import named

_SMALL = 64 * 1024  # bytes of an answer that the event loop writes itself


class Batches(Executor):
    """Gathers calls into batches and runs these in a few threads.

    Calls of one signature, with the same outputs, of one version of a model
    share batches.

    Args:
        config: Sizes, waiting time and queue.
        limits: The time limit of a run, and the bytes that may wait.
        metrics: Counts batches.
        calls: Most calls that are answered at a time; `None` for any number.
    """

    def __init__(
        self,
        config: Batching,
        limits: Limits,
        metrics: Metrics,
        calls: int | None = None,
    ):
        super().__init__()
        self._calls = calls
        self._config, self._limits = config, limits
        self._metrics = metrics
        self._queues: dict[tuple, collections.deque[_Task]] = {}
        self._free = config.num_batch_threads
        self._bytes, self._room = 0, Room(limits.elements)
        self._timer: asyncio.TimerHandle | None = None
        self._pool = futures.ThreadPoolExecutor(
            config.num_batch_threads, thread_name_prefix="keras_attn_batch"
        )
        # Reads and writes large messages.
        self._readers = futures.ThreadPoolExecutor(
            2, thread_name_prefix="keras_attn_serving"
        )

    async def _answer(self, call, remaining):
        if self._calls is not None and self._active > self._calls:
            raise StatusError(
                Code.RESOURCE_EXHAUSTED,
                f"The server takes {self._calls} calls at a time. Send this "
                "one again later, or start the server with a larger "
                "--grpc_max_threads.",
            )
        if self._bytes + call.size > 4 * self._limits.message_bytes:
            raise _full("the waiting requests have too many bytes")
        loop = asyncio.get_running_loop()
        deadline = None if remaining is None else loop.time() + remaining
        self._bytes += call.size
        with contextlib.ExitStack() as stack:
            stack.callback(self._forget, call.size)
            opening = call.open()
            if call.small:
                job = stack.enter_context(opening)
            else:
                opened = loop.run_in_executor(
                    self._readers, stack.enter_context, opening
                )
                try:
                    job = await asyncio.shield(opened)
                finally:  # the stack may not close before it is open
                    await asyncio.wait([opened])
            # A request of a few bytes may declare large arrays.
            larger = max(0, _bytes_of(job.plan.feeds) - call.size)
            if self._bytes + larger > 4 * self._limits.message_bytes:
                raise _full("the waiting requests have too many bytes")
            self._bytes += larger
            stack.callback(self._forget, larger)
            values = await self._values(job, deadline)
            size = _bytes_of(values)
            if size <= _SMALL:
                return call.answer(job, values)
            return await loop.run_in_executor(
                self._readers, call.answer, job, values
            )

    def close(self) -> None:
        self._pool.shutdown()
        self._readers.shutdown()

    def _forget(self, size):
        self._bytes -= size

    async def _values(self, job, deadline):
        """Returns a job's outputs, if they come in time."""
        task = self._queued(job, deadline)
        try:
            async with asyncio.timeout_at(deadline):
                return await task.future
        except TimeoutError:
            if any(task is x for queue in self._queues.values() for x in queue):
                raise _late() from None
            raise StatusError(
                Code.DEADLINE_EXCEEDED, "Deadline exceeded"
            ) from None
        finally:
            if task.future.cancelled():  # others may have waited behind it
                self._start()

    def _queued(self, job, deadline):
        """Puts a job into its queue; returns the task."""
        loop = asyncio.get_running_loop()
        rows = _rows(job.plan.feeds)
        most = self._config.max_batch_size
        if rows > most:
            raise invalid_argument(
                f"Task size {rows} is larger than maximum input batch size "
                f"{most}"
            )
        feeds, outputs = sorted(job.plan.feeds), tuple(job.plan.outputs)
        key = job.model, job.signature, tuple(feeds), outputs
        most_calls = self._limits.queued_calls
        if sum(map(len, self._queues.values())) >= most_calls:
            raise _full(f"{most_calls} calls wait")
        queue = self._queues.setdefault(key, collections.deque())
        waiting = sum(x.rows for x in queue if not x.future.done())
        if waiting + rows > self._config.max_enqueued_batches * most:
            raise _full(
                f"{waiting} rows wait and max_enqueued_batches is "
                f"{self._config.max_enqueued_batches}"
            )
        future = loop.create_future()
        task = _Task(job, rows, deadline, loop.time(), future)
        queue.append(task)
        self._start()
        return task

    def _start(self):
        """Starts the batches that are due, and sets a timer for the next."""
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._free:
            self._drop()
            now, ready, later = loop.time(), [], []
            for key, queue, tasks in self._with_room():
                due = self._due(queue)
                if due <= now:
                    ready.append((key, tasks))
                else:
                    later.append(due)
            if not ready:
                if later:
                    self._timer = loop.call_at(min(later), self._start)
                return
            # Of the queues that are full or have waited long enough, take the
            # one whose first call has waited longest, so each gets its turn.
            key, tasks = min(ready, key=lambda x: x[1][0].arrived)
            self._take(key, tasks)
            self._launch(tasks)

    def _with_room(self):
        """Yields the key, the calls and the next batch of each queue.

        Batches get room in the order in which their first calls came. While
        one waits for it in its queue, only small calls are taken: they need
        none.
        """
        room, held_up = self._room, False
        for key, queue in sorted(
            self._queues.items(), key=lambda x: x[1][0].arrived
        ):
            tasks = self._batch(queue, self._limits.elements)
            elements = self._elements(tasks)
            if elements > room.small and (held_up or not room.has(elements)):
                held_up = True
                queue = [x for x in queue if self._elements([x]) <= room.small]
                tasks = self._batch(queue, room.small)
            if tasks:
                yield key, queue, tasks

    def _due(self, queue):
        """Returns the time until which the calls of a queue may wait."""
        arrived = queue[0].arrived
        idle = self._free == self._config.num_batch_threads
        rows = sum(x.rows for x in queue)
        if idle or rows >= self._config.max_batch_size:
            return arrived
        return arrived + self._config.batch_timeout_micros / 1e6

    def _drop(self):
        """Removes calls that no one waits for, or whose deadline has passed."""
        now = asyncio.get_running_loop().time()
        for key, queue in list(self._queues.items()):
            for task in queue:
                late = task.deadline is not None and task.deadline <= now
                if late and not task.future.done():
                    task.future.set_exception(_late())
            left = collections.deque(x for x in queue if not x.future.done())
            if left:
                self._queues[key] = left
            else:
                del self._queues[key]

    def _batch(self, queue, most):
        """Returns the first calls of a queue that fit into a batch.

        Args:
            queue: The calls.
            most: Most elements of several calls together.
        """
        tasks, rows, longest = [], 0, 0
        for task in queue:
            rows += task.rows
            longest = max(longest, task.job.plan.longest)
            # All rows are padded to the longest.
            large = self._size(rows) * longest > most
            if rows > self._config.max_batch_size or (tasks and large):
                break
            tasks.append(task)
        return tasks

    def _take(self, key, tasks):
        """Removes the calls of a batch from their queue."""
        taken = set(map(id, tasks))
        left = [x for x in self._queues[key] if id(x) not in taken]
        if left:
            self._queues[key] = collections.deque(left)
        else:
            del self._queues[key]

    def _launch(self, tasks):
        loop = asyncio.get_running_loop()
        self._free -= 1
        now = loop.time()
        # The run may take as long as the call with the latest deadline.
        ends = [x.deadline for x in tasks]
        seconds = self._limits.run_seconds
        if None not in ends:
            seconds = min(seconds, max(ends) - now)
        for task in tasks:
            self._metrics.queued(
                self._config.thread_pool_name, now - task.arrived, task.rows
            )
        place = self._room.place()
        place.take(self._elements(tasks))
        running = loop.run_in_executor(self._pool, self._run, tasks, seconds)
        running.add_done_callback(
            lambda done: self._finished(tasks, place, done, seconds)
        )

    def _run(self, tasks, seconds):
        """Runs a batch, in a thread; returns the outputs of each call."""
        rows = sum(x.rows for x in tasks)
        size = self._size(rows)
        self._metrics.processed(size, size - rows)
        values = self._executed(tasks, size - rows, seconds)
        if len(tasks) == 1 and size == rows:
            return [values]
        return _split(values, [x.rows for x in tasks], size)

    def _executed(self, tasks, extra, seconds):
        job = tasks[0].job
        if len(tasks) == 1 and not extra:
            return job.model.execute(job.plan, seconds)
        feeds = {
            name: _joined(
                name,
                [x.job.plan.feeds[name] for x in tasks],
                extra,
                self._config.pad_variable_length_inputs,
            )
            for name in job.plan.feeds
        }
        return job.model.execute(job.plan._replace(feeds=feeds), seconds)

    def _size(self, rows):
        """Returns the rows of a batch, with those that fill it up."""
        allowed = self._config.allowed_batch_sizes if rows else ()
        return next((x for x in allowed if x >= rows), rows)

    def _elements(self, tasks):
        """Returns the elements of a batch; all rows are padded."""
        size = self._size(sum(x.rows for x in tasks))
        return size * max(x.job.plan.longest for x in tasks)

    def _finished(self, tasks, place, done, seconds):
        self._free += 1
        place.give()
        error = done.exception()
        if isinstance(error, StatusError):
            error = named(error, seconds, self._limits.run_seconds)
        answers = [None] * len(tasks) if error else done.result()
        for task, values in zip(tasks, answers, strict=True):
            if task.future.done():
                continue
            if error is not None:
                task.future.set_exception(error)
            else:
                task.future.set_result(values)
        self._start()


class _Task(NamedTuple):
    """A call that waits for a batch."""

    job: Job
    rows: int
    deadline: float | None
    arrived: float
    future: asyncio.Future


def _rows(feeds: Mapping[str, np.ndarray]) -> int:
    sizes = set()
    for array in feeds.values():
        if not array.ndim:
            raise invalid_argument(
                "Batching Run() input tensors must have at least one dimension"
            )
        sizes.add(len(array))
    if len(sizes) != 1:
        raise invalid_argument(
            "Batching Run() input tensors must have equal 0th-dimension size"
        )
    return sizes.pop()


def _joined(
    name: str, arrays: Sequence[np.ndarray], extra: int, pad: bool
) -> np.ndarray:
    """Joins the rows of an input, and adds copies of a row."""
    shapes = {x.shape[1:] for x in arrays}
    if len(shapes) > 1:
        if not pad or len({len(x) for x in shapes}) > 1:
            raise StatusError(
                Code.FAILED_PRECONDITION,
                f"Tensors with name '{name}' from different tasks have "
                "different shapes and padding is turned off. Set "
                "pad_variable_length_inputs to true, or ensure that all "
                "tensors with the same name have equal dimensions starting "
                "with the first dim.",
            )
        widest = tuple(map(max, zip(*shapes, strict=True)))
        arrays = [_padded(x, widest) for x in arrays]
    if extra:
        row = next(x for x in arrays if len(x))[:1]
        arrays = [*arrays, np.repeat(row, extra, axis=0)]
    return np.concatenate(arrays)


def _padded(array, sizes):
    if array.shape[1:] == sizes:
        return array
    # TensorFlow Serving pads with the first element too.
    first = array.flat[0] if array.size else np.zeros((), array.dtype)[()]
    if array.dtype == object and not array.size:
        first = b""
    result = np.empty((len(array), *sizes), array.dtype)
    result.fill(first)
    result[tuple(map(slice, array.shape))] = array
    return result


def _split(values, rows, size):
    """Returns the outputs of each call."""
    for array in values.values():
        if not array.ndim:
            raise StatusError(
                Code.FAILED_PRECONDITION,
                "Batched output tensor has 0 dimensions",
            )
        if len(array) != size:
            raise StatusError(
                Code.FAILED_PRECONDITION,
                "Batched output tensor's 0th dimension does not equal the sum "
                "of the 0th dimension sizes of the input tensors",
            )
    ends = np.cumsum(rows)
    return [
        {name: array[end - count : end] for name, array in values.items()}
        for count, end in zip(rows, ends, strict=True)
    ]


def _bytes_of(arrays):
    return sum(
        x.nbytes + (sum(map(len, x.flat)) if x.dtype == object else 0)
        for x in arrays.values()
    )


def _late():
    return StatusError(
        Code.RESOURCE_EXHAUSTED,
        "Run() timeout exceeded while waiting in batching queue",
    )


def _full(why):
    return StatusError(
        Code.UNAVAILABLE,
        "The batch scheduling queue to which this task was submitted is full: "
        f"{why}",
    )
