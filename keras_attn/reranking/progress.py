"""`Progress`: a bar on a terminal."""

import sys

import keras


class Progress:
    """Draws Keras's bar as work is done.

    Args:
        verbose: `"auto"`, which draws if the standard output is a terminal,
            0 or 1.
        count: How much there is to do.
        unit: Name of one of it.

    Raises:
        ValueError: If `verbose` is none of the three.
    """

    def __init__(self, verbose, count: int, unit: str):
        if verbose not in ("auto", 0, 1):
            raise ValueError(
                '`verbose` must be "auto", 0 or 1. Received: '
                f'verbose={verbose!r}. "auto" draws a bar on a terminal, and '
                "nothing elsewhere."
            )
        is_seen = sys.stdout.isatty() if verbose == "auto" else verbose
        self._bar = None
        if is_seen and count:
            self._bar = keras.utils.Progbar(count, unit_name=unit)

    def add(self, count: int, **values: float) -> None:
        """Draws that so much more is done, with values to show as they are."""
        if self._bar is not None:
            self._bar.stateful_metrics |= set(values)
            self._bar.add(count, values=list(values.items()))
