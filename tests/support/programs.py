"""Runs the programs of examples/."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


PROGRAM = ROOT / "examples" / "pronounce.py"


# The packages of this checkout, whether or not they are installed.
ENVIRONMENT = os.environ | {
    "PYTHONPATH": os.pathsep.join(
        [str(ROOT), str(ROOT / "serving"), os.environ.get("PYTHONPATH", "")]
    ),
    "PYTHONUNBUFFERED": "1",
}


def run(*arguments, program=PROGRAM, folder=None):
    finished = subprocess.run(
        [sys.executable, program, *map(str, arguments)],
        env=ENVIRONMENT,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
    )
    if finished.returncode:
        pytest.fail(f"{arguments}:\n{finished.stdout}\n{finished.stderr}")
    return finished


def load(program):
    spec = importlib.util.spec_from_file_location(program.stem, program)
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(program.parent)  # as Python does for a program
        spec.loader.exec_module(module)
    return module
