"""The example that translates with a model of Hugging Face, on a tiny one."""

import dataclasses
import io
import re

import pytest
from support.programs import PROGRAM
from support.programs import ROOT
from support.programs import load
from support.programs import run

import keras_attn

PRETRAINED = PROGRAM.with_name("pretrained.py")
FOLDER = ROOT / "tests" / "fixtures" / "hugging_face"
LINES = ["The cat sleeps.", "How are you today?", "", "Open the door."]


@pytest.fixture(scope="module")
def pretrained():
    return load(PRETRAINED)


@pytest.mark.full
def test_the_program_does_all_of_it(tmp_path):
    for name, lines in ("en", LINES), ("fr", reversed(LINES)):
        text = "\n".join(lines) + "\n"
        (tmp_path / name).write_text(text, encoding="utf-8")
    flags = "--target fra --beams 2 --batch_size 3 --lines en --references fr"
    written = "--output out --picture out.png --export models/en-fr --serve"
    printed = run(
        FOLDER / "marian",
        *flags.split(),
        *written.split(),
        program=PRETRAINED,
        folder=tmp_path,
    ).stdout
    assert "4/4" in printed  # of the bar
    assert re.search(r"[\d.]+ s, [\d.]+ sentences per second\.\n", printed)
    assert re.search(r"BLEU [\d.]+   nrefs:1\|case:mixed", printed)
    assert (tmp_path / "out.png").read_bytes()[:4] == b"\x89PNG"
    assert (tmp_path / "models/en-fr/1/saved_model.pb").exists()

    translator = keras_attn.Translator.from_hugging_face(
        FOLDER / "marian", target="fra"
    )
    expected = keras_attn.Translator(
        translator.model,
        translator.source_text,
        translator.target_text,
        dataclasses.replace(translator.search, num_beams=2, num_hypotheses=1),
    )
    texts = expected(LINES).text
    assert (tmp_path / "out").read_text("utf-8").split("\n") == [*texts, ""]
    answer = printed.split("The server says:")[1]
    assert "serving model en-fr version 1" in answer
    assert answer.endswith(f"  {LINES[0]}\n  -> {texts[0]}\n")


def test_lines_come_from_the_standard_input_too(pretrained, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("one\x85\ntwo\n"))
    assert pretrained.read(pretrained.Path("-")) == ["one\x85", "two"]
    assert len(pretrained.read(None)) == 5


def test_lines_and_references_of_different_numbers_are_refused(
    pretrained, tmp_path
):
    (tmp_path / "en").write_text("a\nb\n")
    (tmp_path / "fr").write_text("a\n")
    files = "--lines", tmp_path / "en", "--references", tmp_path / "fr"
    with pytest.raises(SystemExit, match="2 lines and 1 references"):
        pretrained.main(["nothing", *map(str, files)])


def test_a_server_needs_an_export(pretrained, capsys):
    with pytest.raises(SystemExit):
        pretrained.main(["nothing", "--serve"])
    assert "--serve needs --export" in capsys.readouterr().err
