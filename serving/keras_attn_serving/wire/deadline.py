"""`Deadline`: the time by which a call must be over."""

import math
import time

_ENDLESS = 1e9  # seconds; neither gRPC nor sockets take more


class Deadline:
    """The time by which a call must be over, with all its parts.

    Args:
        seconds: Seconds from now; `None` for no limit.
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
