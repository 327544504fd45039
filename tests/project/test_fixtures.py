"""Models saved by earlier versions load, and answer as they did then."""

import json
import pathlib
import shutil

import keras
import numpy as np
import pytest
from keras_attn_serving import OnnxModel
from support.lazily import ask

import keras_attn

FIXTURES = pathlib.Path(__file__).parents[1] / "fixtures"
VERSIONS = sorted(x.name for x in FIXTURES.iterdir() if x.name[0].isdecimal())


@pytest.fixture(scope="module", params=VERSIONS)
def stored(request):
    return FIXTURES / request.param


@pytest.fixture(scope="module")
def expected(stored):
    return json.loads((stored / "expected.json").read_text("utf-8"))


def test_this_version_has_its_fixture():
    assert keras_attn.__version__ in VERSIONS


def test_a_stored_model_computes_what_it_did(stored, expected):
    model = keras.saving.load_model(stored / "translator" / "model.keras")
    found = model([np.array(expected["ids"]), np.array(expected["target"])])
    np.testing.assert_allclose(found, expected["logits"], atol=1e-4)


@pytest.mark.sample_cases(1)
@pytest.mark.parametrize(
    "path",
    sorted(
        x.parent
        for folders in ("[0-9]*", "of_others-*")
        for x in FIXTURES.glob(f"{folders}/*/translator.json")
    ),
    ids=lambda path: "-".join(path.parts[-2:]),
)
def test_a_stored_translator_says_what_it_did(path):
    expected = json.loads((path.parent / "expected.json").read_text("utf-8"))
    translator = keras_attn.Translator.load(path)
    lines = expected["lines"]
    expected = expected.get(path.name, expected)  # 0.1.0 has but one
    result = translator(expected.get("lines", lines))
    for n, row in enumerate(result):
        hypotheses = (row, *row.alternatives)
        assert [x.text for x in hypotheses] == expected["texts"][n]
        np.testing.assert_allclose(
            [x.score for x in hypotheses], expected["scores"][n], atol=1e-4
        )
        assert row.tokens == expected["tokens"][n]
        assert row.source_tokens == expected["source_tokens"][n]
        np.testing.assert_allclose(
            row.alignment, expected["alignments"][n], atol=1e-4
        )


@pytest.mark.sample_cases(1)
def test_a_stored_export_is_served_as_it_was(stored, expected, tmp_path):
    shutil.unpack_archive(stored / "saved_model.zip", tmp_path / "models")
    path = str(tmp_path / "models" / "1")
    lines = [x.encode() for x in expected["lines"]]
    inputs = {"text": np.array(lines, object)}
    requests = [(path, "nbest", inputs, x) for x in ("c", "python")]
    expected = expected.get("translator", expected)
    for answer in ask(requests):
        texts = [[x.decode() for x in row] for row in answer["texts"]]
        assert texts == expected["texts"]
        np.testing.assert_allclose(
            answer["scores"], expected["scores"], atol=1e-4
        )


@pytest.mark.parametrize(
    "path", sorted(FIXTURES.glob("[0-9]*/onnx.zip")), ids=lambda x: x.parts[-2]
)
def test_a_stored_onnx_export_answers_as_the_translator_did(path, tmp_path):
    shutil.unpack_archive(path, tmp_path)
    expected = json.loads((path.parent / "expected.json").read_text("utf-8"))
    answer = OnnxModel(tmp_path / "1").predict(expected["lines"], "nbest")
    assert answer["texts"] == expected["translator"]["texts"]
    np.testing.assert_allclose(
        answer["scores"], expected["translator"]["scores"], atol=1e-4
    )


def test_the_fixtures_are_small(stored):
    size = sum(x.stat().st_size for x in stored.rglob("*") if x.is_file())
    assert size < 700_000
