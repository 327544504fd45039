"""Layers and decoder without TensorFlow: on JAX, and on PyTorch if there.

A backend is chosen when Keras is imported, so each runs in a process of its
own, and in that process TensorFlow cannot be imported at all.
"""

import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest
from support import mechanisms

TESTS = pathlib.Path(__file__).parents[1]

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

# As if it were not installed, also to those who only look whether it is.
WITHOUT_TENSORFLOW = """
import sys

sys.modules.update(tensorflow=None, tensorflow_text=None)
"""

# The conformance tests that hold on every backend: those always run, and all.
ALWAYS = [
    "layers/test_mechanisms.py::"
    "test_attending_step_by_step_is_attending_to_all_at_once",
    "layers/test_cells.py::test_a_gru_cell_computes_what_keras_computes",
    "layers/test_decoder.py::test_a_step_in_the_order_pre_is_that_worked_out_by_hand",
]
# A score, an alignment with windows, and one that goes step by step.
SOME = "not attending or bahdanau or local-p or recursive"
CONFORMANCE = [
    *ALWAYS,
    "layers/test_mechanisms.py::test_training_changes_every_weight",
    "layers/test_mechanisms.py::test_padding_gets_no_weight_and_changes_nothing",
    "layers/test_mechanisms.py::test_dropout_is_drawn_anew_and_repeats_with_its_seed",
]
# Files of which some cases are TensorFlow's alone, and skipped.
FILES = [
    "layers/test_alignments.py",
    "layers/test_alignments_hard.py",
    "layers/test_alignments_local.py",
    "layers/test_alignments_monotonic.py",
    "layers/test_alignments_sparse.py",
    "layers/test_attention.py",
    "layers/test_cells.py",
    "layers/test_decoder.py",
    "layers/test_marginal.py",
    "training/test_averaging.py",
    "training/test_scheduled_sampling.py",
    "training/test_schedules.py",
    "layers/test_positions.py",
    "layers/test_scores.py",
    "layers/test_unusual_sizes.py",
    "training/test_token_metrics.py",
]


def run(code, *arguments, backend="jax"):
    """Returns the output of a fresh process without TensorFlow."""
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


def summary_of(tests, backend, some=""):
    """Runs these tests, but not the full ones, and returns the report.

    Args:
        tests: Files, or test functions in them.
        backend: Name of the backend.
        some: Expression that chooses among the tests; all if empty.
    """
    return run(
        "import pytest\nsys.exit(pytest.main(sys.argv[1:]))",
        "-q",
        "-m",
        "not full",
        "-k",
        some,
        "-p",
        "no:cacheprovider",
        *(f"tests/{test}" for test in tests),
        backend=backend,
    )


@pytest.mark.sample_cases(1)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("names", "some"),
    [
        (ALWAYS, SOME),
        pytest.param(CONFORMANCE, "", marks=pytest.mark.full),
    ],
    ids=["always", "all"],
)
def test_the_conformance_holds_on_other_backends(backend, names, some):
    summary = summary_of(names, backend, some)
    assert " passed" in summary and "skipped" not in summary


@pytest.mark.full
@pytest.mark.parametrize("backend", BACKENDS)
def test_these_files_pass_on_other_backends(backend):
    assert " passed" in summary_of(FILES, backend)


@pytest.mark.full
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("every", [6, pytest.param(1, marks=pytest.mark.full)])
def test_models_saved_by_tensorflow_answer_the_same_elsewhere(
    backend, every, tmp_path
):
    mechanisms.save_models(tmp_path, every)
    checked = run(
        "import pathlib\n"
        "from support import mechanisms\n"
        "folder, every = sys.argv[1:]\n"
        "print(mechanisms.check_models(pathlib.Path(folder), int(every)))",
        str(tmp_path),
        str(every),
        backend=backend,
    )
    expected = len(mechanisms.MECHANISMS[::every])
    assert int(checked.split()[-1]) == expected


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


@pytest.mark.full
@pytest.mark.parametrize("backend", BACKENDS)
def test_models_are_checked_without_tensorflow(backend):
    """Each kind of probe once: the rest is the same code on any backend."""
    said = run(
        """
import warnings
import keras
import keras_attn
import numpy as np
from keras import layers, ops

warnings.simplefilter("ignore")

def model(on_target=lambda x: x, on_source=lambda x: x, loss=None):
    source = keras.Input((None,), dtype="int32", name="source")
    target = keras.Input((None,), dtype="int32", name="target")
    embed = layers.Embedding(9, 6, mask_zero=True, name="embed")
    hidden = keras_attn.BahdanauAttention(6)(
        on_target(embed(target)), on_source(embed(source))
    )
    logits = layers.Dense(9, name="last")(hidden)
    found = keras.Model([source, target], logits)
    found.compile("adam", loss=loss or keras_attn.SequenceCrossentropy())
    return found

def look(*given):
    try:
        for finding in keras_attn.check(*given):
            print("warned:", finding.kind, finding.layer)
    except ValueError as error:
        print(error)

def culprit(function):
    return layers.Lambda(function, name="culprit")

ids = np.array([[1, 4, 5, 2, 0], [1, 5, 2, 0, 0]])
data = (ids, ids[:, :-1]), ids[:, 1:]
good = model(layers.GRU(6, return_sequences=True))
before = [np.array(x) for x in good.get_weights()]
assert keras_attn.check(good, data) == []
for old, new in zip(before, good.get_weights()):
    assert (old == np.array(new)).all()
look(model(on_target=culprit(lambda x: ops.flip(x, axis=1))))
look(model(on_target=culprit(lambda x: x - ops.mean(x, 0, keepdims=True))))
look(model(on_source=culprit(lambda x: 2 * x)))
look(model(loss="sparse_categorical_crossentropy"))
look(good, ((ids + 4, ids[:, :-1]), ids[:, :-1]))
print("done")
""",
        backend=backend,
    )
    for part in (
        "leak: 'culprit'",
        "neighbours: ",
        "warned: mask culprit",
        "logits: 'last'",
        "ids: 'embed' knows the ids 0 to 8 (`input_dim=9`), but 'source' has",
        "shift: target_out is 'target' itself",
        "done",
    ):
        assert part in said, said
