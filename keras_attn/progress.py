"""Shows on a terminal how far long work is: a bar, or a line for each step."""

import contextlib
import sys
import time

import keras


def is_shown(verbose) -> bool:
    """Returns whether progress is shown.

    Args:
        verbose: `"auto"`, which shows it if the standard output is a
            terminal, 0 or 1.

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
    """Draws Keras's bar as work is done.

    Args:
        verbose: As for `is_shown`.
        count: How much there is to do; `None` if nobody knows.
        unit: Name of one of it.

    Raises:
        ValueError: As for `is_shown`.
    """

    def __init__(self, verbose, count: int | None, unit: str):
        self._bar, self._count, self._done = None, count, 0
        if is_shown(verbose) and count != 0:
            self._bar = keras.utils.Progbar(count, unit_name=unit)

    def add(self, count: int, **values: float) -> None:
        """Draws that so much more is done, with values to show as they are."""
        self._done += count
        if self._bar is not None:
            self._bar.stateful_metrics |= set(values)
            self._bar.add(count, values=list(values.items()))

    def end(self) -> None:
        """Draws the end of work whose amount was not known."""
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
        """Prints the line of a step, which the context carries out."""
        self._number += 1
        if not self._is_shown:
            yield
            return
        print(f"{self._number}/{self._count} {name}", end="", flush=True)
        started = time.perf_counter()
        yield
        print(f" - {time.perf_counter() - started:.1f}s", flush=True)
