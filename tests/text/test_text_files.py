"""A saved `Text` is loaded as it was, also from an earlier version's file."""

import json
import pathlib

import numpy as np
import pytest
from support.texts import NORMALIZATIONS
from support.texts import WRITTEN
from support.texts import by_python
from support.texts import ids
from support.texts import strings

from keras_attn import Text
from keras_attn.text.special_tokens import END
from keras_attn.text.special_tokens import SPECIAL_TOKENS
from keras_attn.text.special_tokens import UNKNOWN


@pytest.mark.parametrize("normalization", NORMALIZATIONS)
def test_a_normalization_is_saved_and_loaded(normalization, tmp_path):
    text = Text.from_lines(
        WRITTEN, split="characters", normalization=normalization
    )
    text.save(tmp_path / "text.txt")
    loaded = Text.load(tmp_path / "text.txt")
    assert loaded.normalization == normalization
    assert loaded.tokens == text.tokens
    np.testing.assert_array_equal(loaded.ids(WRITTEN), text.ids(WRITTEN))
    assert strings(loaded, loaded.ids(WRITTEN)) == [
        by_python(normalization, line) for line in WRITTEN
    ]
    assert not np.any(loaded.ids(WRITTEN) == UNKNOWN)


def test_a_vocabulary_stored_before_there_was_a_choice_keeps_nfkc(tmp_path):
    stored = pathlib.Path(__file__).parents[1] / "fixtures/0.1.1/translator"
    options = json.loads((stored / "source.txt.json").read_text())
    assert "normalization" not in options
    text = Text.load(stored / "source.txt")
    assert text.normalization == "NFKC"
    text.save(tmp_path / "again.txt")
    assert Text.load(tmp_path / "again.txt").normalization == "NFKC"
    letter = next(x for x in text.tokens[4:] if "a" <= x <= "z")
    wide = chr(ord(letter) - ord("a") + ord("\uff41"))
    assert ids(text, [wide]) == ids(text, [letter]) != [[UNKNOWN, END]]


ODD = {
    " ": 9,
    '"': 8,
    "'": 7,
    "#": 6,
    "\\": 5,
    ",": 4,
    "\u0301": 3,
    "\ufffd": 2,
    "\u2028": 1,
    "\x85": 1,
    "0": 1,
}


def test_what_is_saved_is_loaded(tmp_path):
    text = Text(
        ODD,
        split="characters",
        lowercase=True,
        max_length=7,
        too_long="error",
    )
    path = tmp_path / "somewhere" / "vocabulary.txt"
    text.save(path)
    loaded = Text.load(str(path))
    assert loaded.tokens == text.tokens
    assert loaded.counts == ODD
    for name in ("split", "lowercase", "max_length", "too_long", "size"):
        assert getattr(loaded, name) == getattr(text, name)
    for token in ODD:
        row = loaded.ids([f"0{token}0"])
        np.testing.assert_array_equal(row, text.ids([f"0{token}0"]))
        assert strings(loaded, row) == [f"0{token}0"]
        assert text.tokens.index(token) in row.numpy()


def test_a_vocabulary_is_a_plain_file_of_tokens_and_counts(tmp_path):
    Text.from_lines(["été b b"], "whitespace").save(tmp_path / "words.txt")
    assert (tmp_path / "words.txt").read_bytes().decode().split("\n") == [
        *(f"{token}\t0" for token in SPECIAL_TOKENS),
        "b\t2",
        "été\t1",
        "",
    ]
    options = json.loads((tmp_path / "words.txt.json").read_text())
    assert options["split"] == "whitespace"


def test_a_vocabulary_that_is_not_there_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="needs the vocabulary .*none"):
        Text.load(tmp_path / "none")
