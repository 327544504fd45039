"""Shows the progress of long work: a bar, or a line for each step."""

import contextlib
import sys
import time

import keras


def is_shown(verbose) -> bool:
    """Returns whether progress is shown.

    Args:
        verbose: 1 to show it, 0 to hide it, or `"auto"` to show it if the
            standard output is a terminal.

    Raises:
        ValueError: If `verbose` is none of the three.
    """
    if verbose not in ("auto", 0, 1):
        raise ValueError(
            '`verbose` must be "auto", 0 or 1. Received: '
            f'verbose={verbose!r}. "auto" shows progress on a terminal, and '
            "nothing elsewhere."
        )
    return sys.stdout.isatty() if verbose == "auto" else bool(verbose)


class Bar:
    """Draws Keras's progress bar.

    Args:
        verbose: As for `is_shown`.
        count: Number of units of work, or `None` if it is unknown.
        unit: Name of a unit, such as `"step"`.

    Raises:
        ValueError: As for `is_shown`.
    """

    def __init__(self, verbose, count: int | None, unit: str):
        self._bar, self._count, self._done = None, count, 0
        if is_shown(verbose) and count != 0:
            self._bar = keras.utils.Progbar(count, unit_name=unit)

    def add(self, count: int, **values: float) -> None:
        """Adds finished units to the bar.

        Args:
            count: Number of units finished since the last call.
            **values: Numbers to show beside the bar, without averaging.
        """
        self._done += count
        if self._bar is not None:
            self._bar.stateful_metrics |= set(values)
            self._bar.add(count, values=list(values.items()))

    def end(self) -> None:
        """Finishes a bar that was made without a known `count`."""
        if self._bar is not None and self._count is None:
            self._bar.update(self._done, finalize=True)


class Steps:
    """Prints a line for each step: its number, its name and its seconds.

    Args:
        verbose: As for `is_shown`.
        count: Number of steps.

    Raises:
        ValueError: As for `is_shown`.
    """

    def __init__(self, verbose, count: int):
        self._is_shown, self._count = is_shown(verbose), count
        self._number = 0

    @contextlib.contextmanager
    def step(self, name: str):
        """Prints a line for the step that runs inside this context."""
        self._number += 1
        if not self._is_shown:
            yield
            return
        print(f"{self._number}/{self._count} {name}", end="", flush=True)
        started = time.perf_counter()
        yield
        print(f" - {time.perf_counter() - started:.1f}s", flush=True)
