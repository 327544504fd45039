"""`keras-attn export`, through the command of keras-attn-serving."""

import pathlib

import numpy as np
import pytest
from keras_attn_serving.command import cli
from support import toys
from support.lazily import ask

import keras_attn

MARIAN = (
    pathlib.Path(__file__).parents[1] / "fixtures" / "hugging_face" / "marian"
)


def run(capsys, *arguments):
    """Returns the exit status, what was printed, and the errors."""
    status = cli.main(["export", *map(str, arguments)])
    return status, *capsys.readouterr()


@pytest.mark.full
def test_a_directory_of_hugging_face_is_served(tmp_path, capsys):
    base = tmp_path / "models"
    given = "--target", "fra", "--search", "num_beams=2", "max_length=9"
    status, printed, _ = run(capsys, MARIAN, base, *given)
    assert status == 0
    assert pathlib.Path(printed.strip()) == base / "1"
    given = {"text": np.array([b"the cat"], object)}
    (found,) = ask([(str(base / "1"), "serving_default", given, "c")])
    told = keras_attn.Translator.from_hugging_face(
        MARIAN, {"num_beams": 2, "max_length": 9}, target="fra"
    )
    assert told.search.num_beams == 2 and told.search.max_length == 8
    assert found["text"][0].decode() == told(["the cat"]).text[0]


def test_a_field_of_the_search_is_given_once(capsys):
    fields = ["--search", "num_beams=1", "--search", "max_length=5"]
    again = [*fields, "--search", "num_beams=2"]
    status, _, told = run(capsys, MARIAN, "models", *again)
    assert status == 2 and "num_beams more than once" in told


def test_a_field_of_the_search_needs_a_value(capsys):
    for wrong in ("num_beams", "num_beams=many"):
        with pytest.raises(SystemExit):
            run(capsys, MARIAN, "models", "--search", wrong)
        assert f"such as num_beams=1, got {wrong}" in capsys.readouterr().err


@pytest.mark.full
def test_a_saved_translator_is_served(tmp_path, capsys):
    translator = toys.Toys()["greedy"]
    translator.save(tmp_path / "saved")
    status, printed, _ = run(
        capsys,
        tmp_path / "saved",
        tmp_path / "models",
        "--signatures",
        "options",
        "score",
    )
    assert status == 0
    given = {"text": np.array([b"abc"], object), "target": [b"A B"]}
    (found,) = ask([(printed.strip(), "score", given, "c")])
    expected = translator.score(["abc"], ["A B"])
    np.testing.assert_allclose(found["score"], expected.scores, rtol=1e-4)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["nowhere"], "which is none"),
        ([MARIAN, "--target=xyz"], "must be a language of the model"),
        (["."], ""),
        ([".", "--target=fra"], "--target are for models of Hugging Face"),
    ],
)
def test_what_cannot_be_exported_is_said(
    arguments, message, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    first, *flags = arguments
    status, _, errors = run(capsys, first, "models", *flags)
    assert status == 2
    assert errors.startswith("error: ") and message in errors
    assert not (tmp_path / "models").exists()
