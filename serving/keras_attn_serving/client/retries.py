"""`Retries`: repeats calls that failed.

Every call only reads, so repeating it does no harm. A call is repeated if the
cause may go away by itself: the server is unavailable or busy.
"""

import contextlib
import random
from collections.abc import Awaitable
from collections.abc import Callable
from typing import TypeVar

import grpc

from keras_attn_serving.client.row_parts import is_too_large
from keras_attn_serving.wire.deadline import Deadline
from keras_attn_serving.wire.results import ServingError
from keras_attn_serving.wire.transport import Transport

_Answer = TypeVar("_Answer")

FIRST = 0.2  # seconds before the first retry; each further one doubles them
LONGEST = 10.0
# Seconds that each retry waits for an unavailable server. A restart that loads
# a model took 23 s.
AWAY = 30.0

# Words of connection errors that another try would not fix.
_LASTING = (
    "WRONG_VERSION_NUMBER",
    "RECORD_LAYER_FAILURE",
    "CERTIFICATE_VERIFY_FAILED",
    "Hostname Verification",
    "Failed parsing HTTP/2",
    "not HTTP",
)


class Retries:
    """Repeats calls, with growing pauses.

    Args:
        times: How often a call may be repeated.
        draw: Function that returns a random number from 0 to 1. It varies the
            pauses, so that clients do not all come back at once.
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
        """Returns the answer of the first call that succeeds.

        Args:
            call: Makes a call, given the seconds that are left.
            transport: Carries the call.
            deadline: The deadline of all calls together.

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
                    # If the server stays unavailable, the next call raises the
                    # error.
                    with contextlib.suppress(ServingError):
                        await transport.ready(deadline.left(most=AWAY))
        return await call(deadline.left())


def passes(error: ServingError) -> bool:
    """Returns whether the cause of an error may go away by itself."""
    if error.code == grpc.StatusCode.UNAVAILABLE:
        return not any(word in error.message for word in _LASTING)
    busy = error.code == grpc.StatusCode.RESOURCE_EXHAUSTED
    return busy and not is_too_large(error)
