"""`Seldom`: a log that an attack cannot flood."""

import logging
import time

_SECONDS = 60.0


class Seldom:
    """Logs a warning at most once a minute, with how often it was due.

    Args:
        log: The logger.
        text: The warning. `%d` in it stands for the number.
    """

    def __init__(self, log: logging.Logger, text: str):
        self._log, self._text = log, text
        self._times, self._next = 0, 0.0

    def __call__(self, *values: object) -> None:
        """Counts that the warning is due, and logs it if a minute has passed.

        Args:
            values: Values for the text after the number.
        """
        self._times += 1
        now = time.monotonic()
        if now >= self._next:
            self._log.warning(self._text, self._times, *values)
            self._times, self._next = 0, now + _SECONDS
