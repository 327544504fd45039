"""Splitters of a user's own are saved, loaded and exported.

TensorFlow Serving's own loader answers the exports.
"""

import json
import pathlib
import pickle
import shutil
import subprocess
import sys

import numpy as np
import pytest
import splitters
from splitters import LINES
from splitters import NAMES
from splitters import translator

from keras_attn import Text
from keras_attn import Translator
from keras_attn.text import Characters
from keras_attn.text import Whitespace


@pytest.fixture(scope="session")
def texts(tmp_path_factory):
    return {
        name: splitters.make(name, tmp_path_factory.mktemp(name))
        for name in NAMES
    }


@pytest.fixture(scope="session")
def translators(texts):
    """Translators with each splitter in the source and in the target text."""
    return {name: translator(texts[name], texts[name]) for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_a_text_is_saved_and_loaded_elsewhere(texts, name, tmp_path):
    text = texts[name]
    text.save(tmp_path / "a" / "text.txt")
    shutil.move(tmp_path / "a", tmp_path / "b")
    loaded = Text.load(tmp_path / "b" / "text.txt", splitters.CUSTOM)
    assert type(loaded.split) is type(text.split)
    assert loaded.tokens == text.tokens and loaded.counts == text.counts
    np.testing.assert_array_equal(loaded.ids(LINES), text.ids(LINES))
    for argument in text.split.assets:
        path = loaded.split.get_config()[argument]
        assert pathlib.Path(path).parent == tmp_path / "b"
    loaded.save(tmp_path / "b" / "text.txt")  # in its own place
    loaded.save(tmp_path / "c" / "text.txt")
    shutil.rmtree(tmp_path / "b")
    loaded = Text.load(tmp_path / "c" / "text.txt", splitters.CUSTOM)
    np.testing.assert_array_equal(loaded.ids(LINES), text.ids(LINES))


def test_what_has_a_short_name_is_stored_as_ever(tmp_path):
    for split, part in (("characters", Characters), ("whitespace", Whitespace)):
        for given in (split, part()):
            text = Text("ab", given)
            assert text.split == split
            text.save(tmp_path / "text.txt")
            options = json.loads((tmp_path / "text.txt.json").read_text())
            assert options == {
                "split": split,
                "lowercase": False,
                "max_length": 1000,
                "too_long": "truncate",
                "normalization": "NFC",
            }
            assert Text.load(tmp_path / "text.txt").split == split


def test_a_class_that_keras_does_not_know_is_asked_for(texts, tmp_path):
    texts["bytes"].save(tmp_path / "text.txt")
    with pytest.raises(ValueError, match=r"custom_objects=\{'Bytes': Bytes\}"):
        Text.load(tmp_path / "text.txt")


def test_files_of_a_part_that_are_missing_are_named(texts, tmp_path):
    texts["listed"].save(tmp_path / "text.txt")
    (tmp_path / "text.txt.split.file").unlink()
    with pytest.raises(FileNotFoundError, match=r"text\.txt\.split\.file"):
        Text.load(tmp_path / "text.txt")


def test_a_vocabulary_that_is_not_the_part_s_is_refused(texts, tmp_path):
    texts["listed"].save(tmp_path / "text.txt")
    with open(tmp_path / "text.txt.split.file", "a") as file:
        file.write("another\n")
    with pytest.raises(ValueError, match="10 tokens in the file and 11 in the"):
        Text.load(tmp_path / "text.txt")


@pytest.fixture(scope="module")
def answers(translators, tmp_path_factory):
    """Answers of TensorFlow Serving's loader, where none of ours is."""
    base, requests, names = tmp_path_factory.mktemp("exports"), [], []
    inputs = {"text": np.array([x.encode() for x in LINES], object)}
    for name, made in translators.items():
        made.export(base / "first" / name, signatures=["score"])
    shutil.move(base / "first", base / "moved")  # so all is within
    for name in translators:
        path = str(base / "moved" / name / "1")
        target = {"target": inputs["text"]}
        for signature, given in (
            ("serving_default", inputs),
            ("align", inputs),
            ("score", inputs | target),
        ):
            requests.append((path, signature, given, "c"))
            names.append((name, signature))
    (base / "asked").write_bytes(pickle.dumps(requests))
    program = pathlib.Path(__file__).with_name("c_loader.py")
    subprocess.run(
        [sys.executable, program, base / "asked", base / "answered"],
        check=True,
    )
    found = pickle.loads((base / "answered").read_bytes())
    return dict(zip(names, found, strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_an_export_answers_as_the_translator_does(translators, answers, name):
    result = translators[name](LINES)
    answer = answers[name, "serving_default"]
    assert [x.decode("utf-8", "replace") for x in answer["text"]] == result.text
    np.testing.assert_allclose(answer["score"], result.scores, atol=1e-5)
    aligned = answers[name, "align"]
    for i, row in enumerate(result):
        tokens = aligned["source_tokens"][i, : aligned["source_length"][i]]
        assert [x.decode() for x in tokens] == row.source_tokens
    scores = translators[name].score(LINES, LINES).scores
    np.testing.assert_allclose(answers[name, "score"]["score"], scores, 1e-4)


@pytest.mark.parametrize(
    "name",
    [
        NAMES[0],
        *(pytest.param(name, marks=pytest.mark.full) for name in NAMES[1:]),
    ],
)
def test_a_translator_is_saved_and_loaded(translators, name, tmp_path):
    made = translators[name]
    made.save(tmp_path / "saved")
    shutil.move(tmp_path / "saved", tmp_path / "moved")
    loaded = Translator.load(tmp_path / "moved", splitters.CUSTOM)
    assert loaded(LINES).text == made(LINES).text
    path = loaded.export(tmp_path / "export")
    assert (path / "saved_model.pb").exists()


def test_files_of_parts_that_are_gone_leave_the_directory(
    translators, tmp_path
):
    translators["listed"].save(tmp_path)
    assert (tmp_path / "source.txt.split.file").exists()
    translators["marks"].save(tmp_path)
    assert not list(tmp_path.glob("*.split.*"))
    assert Translator.load(tmp_path)(LINES).text
