"""`Progress`: a progress bar on standard error."""

import sys
import time

_WIDTH = 30  # characters of the bar
_PAUSE = 0.1  # seconds between two updates


class Progress:
    """Shows the progress of a command.

    Args:
        shown: Whether to show anything.
        total: The amount of work; `None` if it is not known.
    """

    def __init__(self, shown: bool, total: int | None):
        self._shown, self._total = shown, total
        self._began = self._updated = time.monotonic()
        self._lines = 0
        self._drawn = False

    def add(self, lines: int, done: int) -> None:
        """Counts lines.

        Args:
            lines: Number of further lines.
            done: The amount of work done so far.
        """
        self._lines += lines
        now = time.monotonic()
        if self._shown and now - self._updated >= _PAUSE:
            self._updated = now
            self._draw(done, now)

    def clear(self) -> None:
        """Removes the bar, so that something else may be written."""
        if self._drawn:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()
            self._drawn = False

    def _draw(self, done, now):
        rate = self._lines / (now - self._began)
        text = f"{self._lines} lines, {rate:.0f} a second"
        if self._total:
            part = min(1.0, done / self._total)
            bar = "#" * round(part * _WIDTH)
            text = f"[{bar:.<{_WIDTH}}] {part:4.0%}  {text}"
        sys.stderr.write(f"\r{text}\033[K")
        sys.stderr.flush()
        self._drawn = True
