"""Costly things by name, made when a test first asks for one.

So what only tests marked `full` need is not made for the others.
"""

import atexit
import functools
import os
import pickle
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

_TESTS = Path(__file__).parents[1]


class Lazily(Mapping):
    """Maps names to what `make(name)` returns, made once.

    Args:
        make: Function of a name.
        names: The names.
    """

    def __init__(self, make, names):
        self._make, self._names, self._made = make, list(names), {}

    def __getitem__(self, name):
        if name not in self._made:
            if name not in self._names:
                raise KeyError(name)
            self._made[name] = self._make(name)
        return self._made[name]

    def __iter__(self):
        return iter(self._names)

    def __len__(self):
        return len(self._names)


class Answers:
    """Answers of TensorFlow Serving's loader to the cases of each export.

    A process that can import neither Keras nor keras_attn answers all cases
    of an export at once, when the first of them is asked for.

    Args:
        exports: Paths by name.
        cases_of: Function of a name that returns a dictionary from cases to
            `(signature, inputs)`, or `(signature, inputs, loader)`.
        flags: Further arguments of the process.
    """

    def __init__(self, exports, cases_of, *flags):
        self._exports, self._cases_of = exports, cases_of
        self._flags, self._found = flags, {}

    def __getitem__(self, key):
        name, *case = key
        return self.of(name)[tuple(case) if len(case) > 1 else case[0]]

    def of(self, name):
        """Returns all answers of an export, by case."""
        if name not in self._found:
            cases = self._cases_of(name)
            path = str(self._exports[name])
            asked = [
                (path, *(x if len(x) == 3 else (*x, "c")))
                for x in cases.values()
            ]
            found = ask(asked, *self._flags)
            self._found[name] = dict(zip(cases, found, strict=True))
        return self._found[name]


def ask(requests, *flags):
    """Returns the answers to `(path, signature, inputs, loader)` requests."""
    process = _process(flags)
    pickle.dump(requests, process.stdin)
    process.stdin.flush()
    try:
        return pickle.load(process.stdout)
    except EOFError:
        _process.cache_clear()
        raise AssertionError(f"it ended with {process.wait()}") from None


@functools.cache
def _process(flags):
    """Starts the process that answers, one for all tests of this one."""
    paths = [str(_TESTS), os.environ.get("PYTHONPATH", "")]
    process = subprocess.Popen(
        [sys.executable, "-m", "support.c_loader", *flags],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    atexit.register(_end, process)
    return process


def _end(process):
    process.stdin.close()
    process.stdout.close()
    process.wait()


def some(names, always):
    """Returns parameters of which those not in `always` are `full`."""
    return [
        pytest.param(x, marks=() if x in always else pytest.mark.full)
        for x in names
    ]
