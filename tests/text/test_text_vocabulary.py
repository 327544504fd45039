"""`Text` counts a vocabulary, and refuses tokens that it could never read."""

import numpy as np
import pytest
import tensorflow as tf
from support.texts import NORMALIZATIONS

from keras_attn import Text
from keras_attn.text.special_tokens import SPECIAL_TOKENS


@pytest.mark.parametrize(
    "token, normalization, becomes",
    [
        ("e\u0301", "NFC", "\u00e9"),
        ("\u2126", "NFC", "\u03a9"),
        ("\u00bd", "NFKC", "1\u20442"),
        ("\u02b0", "NFKC", "h"),
    ],
)
def test_a_token_that_normalization_never_lets_through_is_refused(
    token, normalization, becomes
):
    with pytest.raises(ValueError, match="split into") as caught:
        Text([token], "whitespace", normalization=normalization)
    message = str(caught.value)
    assert f"which is split into {[becomes]}" in message
    assert f"normalization={normalization!r}" in message
    assert f"unicodedata.normalize('{normalization}', token)" in message
    assert Text([token], "whitespace", normalization=None).size == 5


def test_a_vocabulary_is_counted_with_its_normalization():
    lines = ["x\u00b2 x2", "e\u0301 \u00e9"]
    counts = {
        name: Text.from_lines(lines, "whitespace", normalization=name).counts
        for name in NORMALIZATIONS
    }
    assert counts["NFC"] == {"x\u00b2": 1, "x2": 1, "\u00e9": 2}
    assert counts["NFKC"] == {"x2": 2, "\u00e9": 2}
    assert counts[None] == {"x\u00b2": 1, "x2": 1, "e\u0301": 1, "\u00e9": 1}
    assert Text.from_lines(lines, "whitespace").counts == counts["NFC"]


def test_the_frequent_tokens_come_first_and_equals_by_code_point():
    text = Text.from_lines(["b a b", "c a b"], split="whitespace")
    assert text.tokens == [*SPECIAL_TOKENS, "b", "a", "c"]
    assert text.counts == {"b": 3, "a": 2, "c": 1}
    again = Text.from_lines(["c a b", "b a b"], split="whitespace")
    assert again.tokens == text.tokens


def test_rare_tokens_are_left_out():
    lines = ["b a b", "c a b"]
    least = Text.from_lines(lines, "whitespace", min_count=2)
    assert least.tokens == [*SPECIAL_TOKENS, "b", "a"]
    most = Text.from_lines(lines, "whitespace", max_size=5)
    assert most.tokens == [*SPECIAL_TOKENS, "b"] and most.size == 5
    with pytest.raises(ValueError, match="`max_size` counts the 4 special"):
        Text.from_lines(lines, "whitespace", max_size=4)


@pytest.mark.parametrize(
    "token, options",
    [
        ("a b", {"split": "whitespace"}),
        ("ab", {"split": "characters"}),
        ("A", {"split": "characters", "lowercase": True}),
        ("ａ", {"split": "characters", "normalization": "NFKC"}),  # full-width
    ],
)
def test_a_token_that_no_text_can_give_is_refused(token, options):
    with pytest.raises(ValueError, match="a piece that the text is split"):
        Text([token], **options)


def test_one_string_is_no_list_of_lines():
    with pytest.raises(ValueError, match="pass a list of one"):
        Text.from_lines("attention", "characters")


def test_a_vocabulary_is_counted_as_text_is_read():
    lines = ["<unk> Ab", "ａb </s>", ""]  # a full-width a
    text = Text.from_lines(
        lines, "whitespace", lowercase=True, normalization="NFKC"
    )
    assert text.counts == {"ab": 2}
    assert Text.from_lines([], "characters").size == len(SPECIAL_TOKENS)


@pytest.mark.parametrize(
    "lines, message",
    [
        (["a", None], r"`lines` must be strings.*lines\[1\]=None"),
        ([["a", "b"]], r"`lines` must be strings.*lines\[0\]=\['a', 'b'\]"),
        (["a", 3], r"`lines` must be strings.*lines\[1\]=3"),
    ],
)
def test_lines_that_are_no_strings_are_named(lines, message):
    with pytest.raises(ValueError, match=message):
        Text.from_lines(lines, "characters")


def test_lone_surrogates_are_replaced_in_a_vocabulary_s_lines():
    text = Text.from_lines(["a\ud800", b"a\xff"], "characters")
    assert "a" in text.tokens and text.counts["\ufffd"] >= 2


def test_any_iterable_of_lines_makes_a_vocabulary():
    data = tf.data.Dataset.from_tensor_slices(["ab", "b"])
    for lines in ((x for x in ["ab", "b"]), np.array(["ab", "b"]), data):
        text = Text.from_lines(lines, "characters")
        assert text.counts == {"b": 2, "a": 1}


@pytest.mark.parametrize(
    "vocabulary, options, message",
    [
        ("ab", {"split": "letters"}, '"characters" or "whitespace".*letters'),
        ("ab", {"too_long": "ignore"}, '"truncate" or "error".*ignore'),
        ("ab", {"max_length": 0}, "at least 1. Received: max_length=0"),
        ("ab", {"max_length": 2.5}, "an integer, at least 1.*max_length=2.5"),
        ("ab", {"max_length": None}, "an integer, at least 1.*=None"),
        ("ab", {"max_length": True}, "an integer, at least 1.*=True"),
        ("aa", {}, r"must be distinct.*\['a'\]"),
        (["a", ""], {}, "Received: '', which is an empty string or none"),
        (["a", 3], {}, "Received: 3, which is an empty string or none"),
        (["<unk>"], {}, "Received: '<unk>', which is the name of a special"),
        (["a\tb"], {}, "has a NUL, tab or line break"),
        (["a\0"], {}, "has a NUL, tab or line break"),
        (["a\ud800"], {}, "has a lone surrogate, which is no text"),
    ],
)
def test_what_cannot_be_a_vocabulary_is_refused(vocabulary, options, message):
    with pytest.raises(ValueError, match=message):
        Text(vocabulary, **{"split": "characters", **options})
