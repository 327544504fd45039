"""`Progress`: says on a terminal what an export is doing."""

import contextlib
import sys
import time


class Progress:
    """Prints a line for each step: its number, its name and its seconds.

    Args:
        verbose: `"auto"`, which prints if the standard output is a terminal,
            0 or 1.
        count: Number of steps.
    """

    def __init__(self, verbose, count):
        is_seen = sys.stdout.isatty() if verbose == "auto" else verbose
        self._is_seen, self._count, self._number = bool(is_seen), count, 0

    @contextlib.contextmanager
    def step(self, name):
        """Prints the line of a step, which the context carries out."""
        self._number += 1
        if not self._is_seen:
            yield
            return
        print(f"{self._number}/{self._count} {name}", end="", flush=True)
        started = time.perf_counter()
        yield
        print(f" - {time.perf_counter() - started:.1f}s", flush=True)


def require_verbose(verbose) -> None:
    """Raises `ValueError` unless it is one of the three values."""
    if verbose not in ("auto", 0, 1):
        raise ValueError(
            '`verbose` must be "auto", 0 or 1. Received: '
            f'verbose={verbose!r}. "auto" prints a line for each step on a '
            "terminal, and nothing elsewhere."
        )
