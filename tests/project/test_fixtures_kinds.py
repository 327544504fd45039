"""One of each kind that 0.3.0 saved still loads, and does what it did.

`fixtures/make_kinds.py` wrote them.
"""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

import keras
import numpy as np
import pytest
from support import resuming
from support.lazily import ask

import keras_attn

TESTS = pathlib.Path(__file__).parents[1]
FOLDER = TESTS / "fixtures" / "kinds-0.3.0"
EXPECTED = json.loads((FOLDER / "expected.json").read_text("utf-8"))


def test_each_registered_class_is_in_a_file():
    texts = [x.read_text("utf-8") for x in FOLDER.rglob("*.json")]
    for path in FOLDER.rglob("*.keras"):
        with zipfile.ZipFile(path) as archive:
            texts.append(archive.read("config.json").decode())
    words = {*re.findall(r"\w+", " ".join(texts))}
    names = {x.removeprefix("keras_attn>") for x in EXPECTED["registered"]}
    assert not names - words


def inputs_of(model):
    """What `make_kinds.py` gave to the model."""
    random = np.random.default_rng(0)
    return [
        random.integers(1, 7, (2, 4)).astype(x.dtype)
        if "int" in x.dtype
        else random.normal(size=(2, 4, x.shape[-1])).astype("float32")
        for x in model.inputs
    ]


@pytest.mark.full
@pytest.mark.sample_cases(2)
@pytest.mark.parametrize("name", EXPECTED["models"])
def test_a_model_computes_what_it_did(name):
    model = keras.saving.load_model(FOLDER / f"{name}.keras")
    found = model(inputs_of(model))
    found = found if isinstance(found, (list, tuple)) else [found]
    expected = EXPECTED["models"][name]
    if name == "reinforce":  # the others are drawn
        found, expected = found[:1], expected[:1]
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)


@pytest.mark.full
def test_a_compiled_model_is_trained_on():
    model = keras.saving.load_model(FOLDER / "decoders.keras")
    loss = model.train_on_batch(inputs_of(model), np.ones((2, 4)))
    assert np.isfinite(loss).all() and len(loss) == 4


@pytest.mark.full
def test_a_sampling_translator_says_what_it_did():
    assert_said(FOLDER / "sampling", EXPECTED["sampling"], "lines")


@pytest.mark.full
@pytest.mark.filterwarnings("ignore:.*T5MultiHeadAttention")
@pytest.mark.parametrize("name", EXPECTED["hub"])
def test_a_translator_of_keras_hub_says_what_it_did(name):
    assert_said(FOLDER / name, EXPECTED["hub"][name], "sources")


def assert_said(path, expected, sources):
    sources = expected[sources]
    if isinstance(sources, list) and not isinstance(sources[0], str):
        sources = np.array(sources, "float32")
    result = keras_attn.Translator.load(path)(sources)
    for n, row in enumerate(result):
        hypotheses = (row, *row.alternatives)
        assert [x.text for x in hypotheses] == expected["texts"][n]
        np.testing.assert_allclose(
            [x.score for x in hypotheses], expected["scores"][n], atol=1e-4
        )
        assert row.tokens == expected["tokens"][n]
        np.testing.assert_allclose(
            row.alignment, expected["alignments"][n], atol=1e-4
        )


@pytest.mark.full
def test_a_request_with_options_is_answered_as_it_was(tmp_path):
    shutil.unpack_archive(FOLDER / "options.zip", tmp_path)
    request, answer = (EXPECTED["options"][x] for x in ("request", "answer"))
    given = {name: as_sent(name, x) for name, x in request.items()}
    path = str(tmp_path / "1")
    for found in ask([(path, "options", given, x) for x in ("c", "python")]):
        assert {*found} == {*answer}
        for name, expected in answer.items():
            if found[name].dtype == object:
                assert (
                    np.char.decode(found[name].astype("S"), "utf-8").tolist()
                    == expected
                )
            else:
                np.testing.assert_allclose(found[name], expected, atol=1e-4)


def as_sent(name, values):
    if isinstance(values[0], str):
        return np.array([x.encode() for x in values], object)
    return np.array(values, EXPECTED["options"]["dtypes"][name])


def test_an_onnx_export_answers_as_it_did(tmp_path):
    shutil.unpack_archive(FOLDER / "onnx.zip", tmp_path)
    done = subprocess.run(
        [sys.executable, TESTS / "support" / "onnx_client.py", tmp_path / "1"],
        input=json.dumps(["abc", "deadb"]),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == EXPECTED["onnx"]


@pytest.mark.full
def test_a_training_goes_on_to_the_same_weights(tmp_path):
    shutil.copytree(FOLDER / "training", tmp_path / "training")
    weights = resuming.train(tmp_path / "training")
    with np.load(FOLDER / "trained.npz") as expected:
        assert len(weights) == len(expected.files)
        for one, name in zip(weights, expected.files, strict=True):
            np.testing.assert_allclose(one, expected[name], atol=1e-4)


def test_the_fixtures_are_small():
    files = [x for x in FOLDER.rglob("*") if x.is_file()]
    assert sum(x.stat().st_size for x in files) < 2_500_000
