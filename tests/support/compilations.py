"""Counts what XLA compiles, as TensorFlow's own log says it.

The log is switched on by the environment, so it needs a process of its own.
"""

import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

_TESTS = Path(__file__).parents[1]
_COMPILED = re.compile(r"\] Compiled (\S+) \d+ times")


def with_tests_on_path() -> dict:
    """Returns the environment of a process that imports from `tests`."""
    paths = [str(_TESTS), os.environ.get("PYTHONPATH", "")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)}


def logging_compilations() -> dict:
    """Returns the environment of a process whose log says what is compiled."""
    return with_tests_on_path() | {
        "TF_CPP_MIN_LOG_LEVEL": "0",
        "TF_CPP_VMODULE": "device_compilation_profiler=2",
    }


def compiled_functions(log: str) -> list[str]:
    """Returns the names of the functions that XLA compiled, by a log."""
    return _COMPILED.findall(log)


class CountingLoader:
    """TensorFlow Serving's loader with XLA, which counts compilations.

    Args:
        log: Path of a file for the log.
    """

    def __init__(self, log):
        self._log = log
        with open(log, "wb") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "support.c_loader", "--xla"],
                env=logging_compilations(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
            )

    def ask(self, path, requests) -> tuple[list, list[str]]:
        """Returns answers, and the names of functions compiled for them.

        Args:
            path: Path of an export.
            requests: Pairs of a signature and its inputs.
        """
        before = len(self._compiled())
        asked = [(str(path), *request, "c") for request in requests]
        pickle.dump(asked, self._process.stdin)
        self._process.stdin.flush()
        return pickle.load(self._process.stdout), self._compiled()[before:]

    def _compiled(self):
        return compiled_functions(self._log.read_text(errors="replace"))

    def close(self):
        for stream in (self._process.stdin, self._process.stdout):
            stream.close()
        self._process.wait()
