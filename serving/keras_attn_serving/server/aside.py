"""`Aside`: threads for calls that run no model.

The event loop answers health checks. A call whose work grows with its request
or with a model must not run there, and must not wait for the model's threads
either.
"""

import math
from collections.abc import Callable
from typing import Any

from keras_attn_serving.server.errors import invalid_argument
from keras_attn_serving.server.limits import Limits
from keras_attn_serving.server.workers import Workers

# Most bytes of a call that runs no model. Python's lock is held while a message
# is parsed, in any thread: for a second if it has 16 MiB.
_MOST = 1 << 20


class Aside:
    """Runs functions that need no model, outside the event loop.

    All methods but `close()` are called in one event loop.

    Args:
        limits: How many calls and bytes may wait.
    """

    def __init__(self, limits: Limits):
        waiting = limits.queued_calls, math.inf, 4 * limits.message_bytes
        self._calls = Workers(2, *waiting)
        # A configuration may take minutes to load.
        self._reloads = Workers(1, *waiting)

    async def run(
        self,
        function: Callable[[], Any],
        size: int = 0,
        remaining: float | None = None,
    ) -> Any:
        """Runs a function in a thread.

        Args:
            function: What to run.
            size: Bytes of the request.
            remaining: Seconds until the call's deadline, or `None`.

        Raises:
            StatusError: If the request is too large, or too many wait.
        """
        require_size(size)
        return await self._calls.run(lambda _: function(), remaining, size)

    async def reload(self, function: Callable[[], Any], size: int) -> Any:
        """Runs a function that may take minutes, one at a time.

        Args:
            function: What to run.
            size: Bytes of the request.

        Raises:
            StatusError: If the request is too large, or too many wait.
        """
        require_size(size)
        return await self._reloads.run(lambda _: function(), None, size)

    def close(self) -> None:
        """Waits for the functions, and ends the threads."""
        self._calls.close()
        self._reloads.close()


def require_size(size: int) -> None:
    """Checks the bytes of a call that runs no model.

    Args:
        size: Bytes of the request, after unzipping if that has been done.

    Raises:
        StatusError: If it has too many.
    """
    if size > _MOST:
        raise invalid_argument(
            f"A request that runs no model may have at most {_MOST} bytes. "
            f"Received: {size}."
        )
