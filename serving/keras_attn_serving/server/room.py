"""`Room`: limits how many elements run at the same time."""

import collections
import contextlib
import threading
import time
from collections.abc import Iterator

from keras_attn_serving.server.errors import Code
from keras_attn_serving.server.errors import StatusError

_SMALL = 1 / 64  # of the room


class Room:
    """Limits the elements of all runs at the same time.

    A run's memory grows with its elements. All runs together may have as many
    elements as a single one, so they take no more memory than the largest
    request that is allowed. Small runs take no room, so they do not wait for
    large ones. Threads may share it.

    Args:
        elements: The most elements of all runs together, and of a single run.
    """

    def __init__(self, elements: int):
        self._elements = self._free = elements
        self._waiting: collections.deque[object] = collections.deque()
        self._changed = threading.Condition()

    @contextlib.contextmanager
    def taken(
        self, elements: int, timeout: float | None = None
    ) -> Iterator[float | None]:
        """Reserves room for a run in a `with` block, in the order of calls.

        Args:
            elements: The elements of the run.
            timeout: Seconds that waiting and the run may take.

        Yields:
            The seconds that are left for the run, `None` without a timeout.

        Raises:
            StatusError: DEADLINE_EXCEEDED if there is no room in time.
        """
        if elements <= _SMALL * self._elements:
            yield timeout
            return
        elements = min(elements, self._elements)
        left = self._take(elements, timeout)
        try:
            yield left
        finally:
            with self._changed:
                self._free += elements
                self._changed.notify_all()

    def _take(self, elements, timeout):
        me, started = object(), time.monotonic()

        def mine():
            return self._waiting[0] is me and elements <= self._free

        with self._changed:
            self._waiting.append(me)
            try:
                if not self._changed.wait_for(mine, timeout):
                    raise StatusError(
                        Code.DEADLINE_EXCEEDED, "Deadline exceeded"
                    )
                self._free -= elements
            finally:
                self._waiting.remove(me)
                self._changed.notify_all()
        if timeout is None:
            return None
        return timeout - (time.monotonic() - started)
