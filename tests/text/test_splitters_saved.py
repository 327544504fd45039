"""Splitters of a user's own are saved, loaded and exported.

TensorFlow Serving's own loader answers the exports.
"""

import json
import pathlib
import shutil

import numpy as np
import pytest
from support import splitters
from support.lazily import Answers
from support.lazily import Lazily
from support.lazily import some
from support.splitters import LINES
from support.splitters import NAMES
from support.splitters import fuzz
from support.splitters import translator

from keras_attn import Text
from keras_attn import Translator
from keras_attn.text.built_in import Characters
from keras_attn.text.built_in import Whitespace


@pytest.fixture(scope="session")
def texts(tmp_path_factory):
    return Lazily(
        lambda name: splitters.make(name, tmp_path_factory.mktemp(name)), NAMES
    )


@pytest.fixture(scope="session")
def translators(texts):
    """Translators with each splitter in the source and in the target text."""
    return Lazily(lambda name: translator(texts[name], texts[name]), NAMES)


@pytest.mark.sample_cases(1)
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
    with pytest.raises(ValueError, match="14 tokens in the file and 15 in the"):
        Text.load(tmp_path / "text.txt")


def test_a_text_reads_no_files_of_another_directory(texts, tmp_path):
    texts["listed"].save(tmp_path / "saved" / "text.txt")
    path = tmp_path / "saved" / "text.txt.json"
    options = json.loads(path.read_text())
    secret = tmp_path / "secret"
    shutil.copy(tmp_path / "saved" / "text.txt.split.file", secret)

    def refused(match):
        path.write_text(json.dumps(options))
        with pytest.raises(ValueError, match=match):
            Text.load(tmp_path / "saved" / "text.txt", splitters.CUSTOM)

    for name in (str(secret), "../secret", "..", "a/b", ""):
        options["split_files"] = {"file": name}
        refused("files that lie beside it, without a directory. Received: '")
    options["split_files"] = {}
    options["split"]["config"]["file"] = str(secret)
    refused(r"`split_files` alone. Received: file='.*secret'")


@pytest.mark.parametrize(
    "splitter, config",
    [
        ("WordPiece", {"vocabulary": "secret"}),
        ("BytePair", {"vocabulary": {"a": 0}, "merges": "secret"}),
        ("SentencePiece", {"model": "secret"}),
    ],
)
@pytest.mark.parametrize("named", ["module", "registered_name", "class_name"])
def test_a_path_in_the_place_of_a_vocabulary_is_refused(
    splitter, config, named, tmp_path
):
    Text("ab", "characters").save(tmp_path / "text.txt")
    path = tmp_path / "text.txt.json"
    options = json.loads(path.read_text())
    stored = {"class_name": splitter, "config": config, "module": None}
    full = f"keras_attn>{splitter}"
    stored["registered_name"] = full if named != "class_name" else None
    if named == "class_name":
        stored["class_name"] = full
    if named == "module":
        stored["module"] = "keras_attn.text.subwords"
    for split in (stored, {"class_name": "Outer", "config": {"of": [stored]}}):
        path.write_text(json.dumps(options | {"split": split}))
        with pytest.raises(ValueError, match="Received: .*='secret' of '.*"):
            Text.load(tmp_path / "text.txt")


FUZZ = fuzz(60)

# The others are left to `make test-all`.
ALWAYS = ["sentencepiece"]


@pytest.fixture(scope="module")
def answers(translators, tmp_path_factory):
    """Answers of TensorFlow Serving's loader, where none of ours is."""

    def export(name):
        folder = tmp_path_factory.mktemp("exports")
        translators[name].export(folder / "first", signatures=["score"])
        shutil.move(folder / "first", folder / "moved")  # so all is within
        return folder / "moved" / "1"

    text = {"text": np.array([x.encode() for x in LINES], object)}
    fuzz = {"text": np.array([_utf8(x) for x in FUZZ], object)}
    cases = {
        "plain": ("serving_default", text),
        "fuzz": ("align", fuzz),
        "align": ("align", text),
        "score": ("score", text | {"target": text["text"]}),
    }
    return Answers(
        Lazily(export, NAMES),
        lambda name: cases,
    )


@pytest.mark.full
@pytest.mark.parametrize("name", some(NAMES, ALWAYS))
def test_an_export_answers_as_the_translator_does(translators, answers, name):
    result = translators[name](LINES)
    answer = answers[name, "plain"]
    assert [x.decode("utf-8", "replace") for x in answer["text"]] == result.text
    np.testing.assert_allclose(answer["score"], result.scores, atol=1e-5)
    aligned = answers[name, "align"]
    for i, row in enumerate(result):
        tokens = aligned["source_tokens"][i, : aligned["source_length"][i]]
        assert [x.decode() for x in tokens] == row.source_tokens
    _require_equal(answers[name, "fuzz"], translators[name](FUZZ))
    scores = translators[name].score(LINES, LINES).scores
    np.testing.assert_allclose(answers[name, "score"]["score"], scores, 1e-4)


def _require_equal(answer, result):
    for i, row in enumerate(result):
        assert answer["text"][i].decode("utf-8", "replace") == row.text
        length = answer["source_length"][i]
        tokens = answer["source_tokens"][i, :length]
        assert [x.decode() for x in tokens] == row.source_tokens
        aligned = answer["alignments"][i, : len(row.tokens), :length]
        np.testing.assert_allclose(aligned, row.alignment, atol=1e-5)


def _utf8(line):
    return line.encode("utf-8")


@pytest.mark.full
@pytest.mark.parametrize("name", some(NAMES, ALWAYS))
def test_a_translator_is_saved_and_loaded(translators, name, tmp_path):
    made = translators[name]
    made.save(tmp_path / "saved")
    shutil.move(tmp_path / "saved", tmp_path / "moved")
    loaded = Translator.load(tmp_path / "moved", splitters.CUSTOM)
    assert loaded(LINES).text == made(LINES).text
    path = loaded.export(tmp_path / "export")
    assert (path / "saved_model.pb").exists()


@pytest.mark.full
def test_files_of_parts_that_are_gone_leave_the_directory(
    translators, tmp_path
):
    translators["listed"].save(tmp_path)
    assert (tmp_path / "source.txt.split.file").exists()
    translators["marks"].save(tmp_path)
    assert not list(tmp_path.glob("*.split.*"))
    assert Translator.load(tmp_path)(LINES).text
