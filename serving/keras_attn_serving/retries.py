"""`Deadline` and `Retries`: when a call that failed is made again.

Every call only reads, so making it twice does no harm. A call is made again
if the reason may pass by itself: the server is away, or has too much to do.
"""

import contextlib
import math
import random
import time
from collections.abc import Awaitable
from collections.abc import Callable
from typing import TypeVar

import grpc

from keras_attn_serving.parts import is_too_large
from keras_attn_serving.results import ServingError
from keras_attn_serving.transport import Transport

_Answer = TypeVar("_Answer")

FIRST = 0.2  # seconds before the first retry; each further one doubles them
LONGEST = 10.0
# Seconds that each retry waits for a server that is away. A restart with a
# model to load was seen to take 23.
AWAY = 30.0
_ENDLESS = 1e9  # seconds, of which neither gRPC nor sockets know more

# What is said of a connection that will be no better next time.
_LASTING = (
    "WRONG_VERSION_NUMBER",
    "RECORD_LAYER_FAILURE",
    "CERTIFICATE_VERIFY_FAILED",
    "Hostname Verification",
    "Failed parsing HTTP/2",
    "not HTTP",
)


class Deadline:
    """The time by which a call must be over, with all its parts.

    Args:
        seconds: From now; `None` for no limit.
    """

    def __init__(self, seconds: float | None):
        if seconds is not None and math.isnan(seconds):
            raise ValueError(
                "`timeout` must be a number of seconds, or None for no limit. "
                f"Received: timeout={seconds}"
            )
        if seconds is not None and seconds > _ENDLESS:
            seconds = None
        self.seconds = seconds
        self._end = None if seconds is None else time.monotonic() + seconds

    def left(self, most: float | None = None) -> float | None:
        """Returns the seconds left, 0 or more, or `None` for no limit.

        Args:
            most: The most seconds to return.
        """
        if self._end is None:
            return most
        left = max(0.0, self._end - time.monotonic())
        return left if most is None else min(left, most)


class Retries:
    """Makes calls again, with growing pauses.

    Args:
        times: How often a call may be made again.
        draw: Function that returns a random number from 0 to 1. Pauses vary
            by it, so that clients do not all come back at once.
    """

    def __init__(self, times: int, draw: Callable[[], float] = random.random):
        if isinstance(times, bool) or not isinstance(times, int) or times < 0:
            raise ValueError(
                "`retries` must be the number of times that a call may be "
                f"made again, 0 or more. Received: retries={times!r}"
            )
        self._times = times
        self._draw = draw

    async def run(
        self,
        call: Callable[[float | None], Awaitable[_Answer]],
        transport: Transport,
        deadline: Deadline,
    ) -> _Answer:
        """Returns the answer of the first call that gets one.

        Args:
            call: Makes a call; it takes the seconds that are left.
            transport: What carries it.
            deadline: Of all calls together.

        Raises:
            ServingError: If the last call fails, or an earlier one for a
                reason that will not pass.
        """
        for number in range(self._times):
            try:
                return await call(deadline.left())
            except ServingError as error:
                pause = min(LONGEST, FIRST * 2**number)
                pause *= 0.5 + self._draw()
                left = deadline.left()
                if not passes(error) or (left is not None and left <= pause):
                    raise
                await transport.sleep(pause)
                if error.code == grpc.StatusCode.UNAVAILABLE:
                    # If it stays away, the next call says why.
                    with contextlib.suppress(ServingError):
                        await transport.ready(deadline.left(most=AWAY))
        return await call(deadline.left())


def passes(error: ServingError) -> bool:
    """Returns whether the reason of an error may pass by itself."""
    if error.code == grpc.StatusCode.UNAVAILABLE:
        return not any(word in error.message for word in _LASTING)
    busy = error.code == grpc.StatusCode.RESOURCE_EXHAUSTED
    return busy and not is_too_large(error)
