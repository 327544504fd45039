"""`Room`: limits how many elements run at the same time."""

import collections
import threading
from concurrent import futures

from keras_attn_serving.server.errors import Code
from keras_attn_serving.server.errors import StatusError
from keras_attn_serving.server.workers import Later

_SMALL = 64  # a run of at most the room's elements divided by this is small


class Room:
    """Limits the elements of all runs at the same time.

    A run's memory grows with its elements. All runs together may have as many
    elements as a single one, so they take no more memory than the largest
    request that is allowed. Small runs take no room, so they do not wait for
    large ones. Threads may share it.

    Args:
        elements: The most elements of all runs together, and of a single run.

    Attributes:
        small: The most elements of a small run.
    """

    def __init__(self, elements: int):
        self._elements = self._free = elements
        self.small = elements // _SMALL
        self._waiting: collections.deque[Place] = collections.deque()
        self._lock = threading.Lock()

    def has(self, elements: int) -> bool:
        """Returns whether a run would have room now."""
        with self._lock:
            free = 0 if self._waiting else self._free
            return self._needed(elements) <= free

    def place(self) -> "Place":
        """Returns the place of a further run, with no room yet."""
        return Place(self)

    def _needed(self, elements):
        return 0 if elements <= self.small else min(elements, self._elements)

    def _serve(self):
        """Gives room to those that wait, in their order; takes the lock."""
        while self._waiting and self._waiting[0].needed <= self._free:
            place = self._waiting.popleft()
            self._free -= place.needed
            place.held = place.needed
            place.ready.set_result(None)


class Place:
    """The place of one run in a `Room`.

    A thread calls `take` and `give`, and runs in between. The event loop waits
    for the run and calls `leave` when it waits no longer. So nobody waits in a
    thread, and a run that nobody waits for does not begin.

    Args:
        room: The room.
    """

    def __init__(self, room: Room):
        self._room = room
        self._runs = self._left = False
        # The room reads and writes these.
        self.needed = self.held = 0
        self.ready: futures.Future[None] = futures.Future()

    def take(self, elements: int) -> Later | None:
        """Reserves room for a run, in the order of the first calls.

        Args:
            elements: The elements of the run.

        Returns:
            `None` if the run may begin; otherwise when to call this again.

        Raises:
            StatusError: CANCELLED if `leave` was called.
        """
        room = self._room
        with room._lock:
            if self._left:
                raise StatusError(Code.CANCELLED, "Nobody waits for this run.")
            needed = room._needed(elements)
            if self.held < needed:
                # Nothing is held, unless the model has changed meanwhile.
                self._release()
                self.needed, self.ready = needed, futures.Future()
                room._waiting.append(self)
                room._serve()
            if self.held < needed:
                return Later(self.ready)
            self._runs = True
            return None

    def give(self) -> None:
        """Gives the room back, after the run."""
        with self._room._lock:
            self._runs = False
            self._release()

    def leave(self) -> None:
        """Gives the room back, or waits no longer.

        The room of a run that has begun is needed until that ends.
        """
        with self._room._lock:
            self._left = True
            if not self._runs:
                self._release()

    def _release(self):
        room = self._room
        if self in room._waiting:
            room._waiting.remove(self)
        room._free += self.held
        self.held = 0
        room._serve()
