"""Layers and decoder without TensorFlow: on JAX, and on PyTorch if there.

A backend is chosen when Keras is imported, so each runs in a process of its
own, and in that process TensorFlow cannot be imported at all.
"""

import importlib.util
import os
import pathlib
import subprocess
import sys

import mechanisms
import pytest

TESTS = pathlib.Path(__file__).parent

# Keras makes arrays of its variables in a way that NumPy deprecates.
pytestmark = pytest.mark.filterwarnings(
    "ignore:__array__ implementation:DeprecationWarning"
)

BACKENDS = [
    pytest.param(
        name,
        marks=pytest.mark.skipif(
            importlib.util.find_spec(name) is None,
            reason=f"{name} is not installed",
        ),
    )
    for name in ("jax", "torch")
]

WITHOUT_TENSORFLOW = """
import importlib.abc
import sys

class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("tensorflow", "tensorflow_text"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
"""

# What of the conformance holds for every backend: always, and with the rest.
ALWAYS = [
    "test_attending_step_by_step_is_attending_to_all_at_once",
    "test_training_changes_every_weight",
]
CONFORMANCE = [
    *ALWAYS,
    "test_padding_gets_no_weight_and_changes_nothing",
    "test_dropout_is_drawn_anew_and_repeats_with_its_seed",
]


def run(code, *arguments, backend="jax"):
    """What a fresh process prints in which there is no TensorFlow."""
    result = subprocess.run(
        [sys.executable, "-c", WITHOUT_TENSORFLOW + code, *arguments],
        cwd=TESTS.parent,
        env={
            **os.environ,
            "KERAS_BACKEND": backend,
            "PYTHONPATH": str(TESTS),
            "JAX_PLATFORMS": "cpu",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert result.returncode == 0, result.stdout
    return result.stdout


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "names",
    [ALWAYS, pytest.param(CONFORMANCE, marks=pytest.mark.full)],
    ids=["always", "all"],
)
def test_the_conformance_holds_on_other_backends(backend, names):
    summary = run(
        "import pytest\nsys.exit(pytest.main(sys.argv[1:]))",
        "-q",
        "-m",
        "not full",
        "-p",
        "no:cacheprovider",
        *(f"tests/test_mechanisms.py::{name}" for name in names),
        backend=backend,
    )
    assert " passed" in summary and "skipped" not in summary


@pytest.mark.parametrize("backend", BACKENDS)
def test_models_saved_by_tensorflow_answer_the_same_elsewhere(
    backend, tmp_path
):
    mechanisms.save_models(tmp_path)
    checked = run(
        "import pathlib, mechanisms\n"
        "print(mechanisms.check_models(pathlib.Path(sys.argv[1])))",
        str(tmp_path),
        backend=backend,
    )
    assert int(checked.split()[-1]) == len(mechanisms.MECHANISMS)


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_needs_tensorflow_says_so_where_it_is_missing(backend):
    said = run(
        """
import keras_attn
import numpy as np

assert keras_attn.ScaledDotAttention()(
    np.ones((1, 2, 4)), np.ones((1, 3, 4))
).shape == (1, 2, 4)
for name in ("Translator", "Text", "BeamSearch", "pairs"):
    try:
        getattr(keras_attn, name)
    except ModuleNotFoundError as error:
        print(error)
""",
        backend=backend,
    )
    for name in ("Translator", "Text", "BeamSearch", "pairs"):
        assert f"`keras_attn.{name}` needs TensorFlow" in said
    assert "the layers work without them on JAX and PyTorch" in said
