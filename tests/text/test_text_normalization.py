"""`Text` normalizes as Unicode says, and changes nothing else."""

import unicodedata

import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
from support.texts import ACUTE
from support.texts import CHARACTERS
from support.texts import DAY
from support.texts import NORMALIZATIONS
from support.texts import SPACE
from support.texts import WORDS
from support.texts import WRITTEN
from support.texts import A
from support.texts import by_python
from support.texts import ids

from keras_attn import Text
from keras_attn.text.special_tokens import END
from keras_attn.text.special_tokens import PAD
from keras_attn.text.special_tokens import UNKNOWN


def pieces(text, lines):
    return [
        [piece.decode() for piece in row]
        for row in text.pieces(tf.constant(lines)).to_list()
    ]


def test_text_stays_as_it_is_written_but_for_how_accents_are_encoded():
    text = Text([], split="characters")
    assert text.normalization == "NFC"
    assert ["".join(row) for row in pieces(text, WRITTEN)] == [
        "k\u02b0 a t\u02b2 x\u00b2",
        "\u00bd \ufb01 \u2122",
        "\u00e9\u1ea1\u0307 \u00f1",
        "\ud55c\uae00",
        "\uff76\uff9e\uff86",
        "\uff41\u3000\u00a0\u03a9\u00c5",
    ]
    assert ids(CHARACTERS, ["e\u0301", "\u00e9", "\uff41"]) == [
        [ACUTE, END],
        [ACUTE, END],
        [UNKNOWN, END],
    ]


def test_nfkc_joins_what_looks_alike_where_asked_for():
    text = Text("abcé日 ", split="characters", normalization="NFKC")
    assert ids(text, ["e\u0301", "\uff41", "日", "\u2002"]) == [
        [ACUTE, END],
        [A, END],
        [DAY, END],
        [SPACE, END],
    ]


@pytest.mark.parametrize("normalization", NORMALIZATIONS)
def test_normalization_is_that_of_unicode(normalization):
    text = Text([], split="characters", normalization=normalization)
    found = ["".join(row) for row in pieces(text, WRITTEN)]
    assert found == [by_python(normalization, line) for line in WRITTEN]
    words = Text([], split="whitespace", normalization=normalization)
    assert pieces(words, WRITTEN) == [
        by_python(normalization, line).split() for line in WRITTEN
    ]


@pytest.mark.parametrize("normalization", NORMALIZATIONS)
def test_every_code_point_is_normalized_as_python_does(normalization):
    text = Text([], split="characters", normalization=normalization)
    known = [
        chr(i)
        for i in range(1, 0x110000)
        if unicodedata.category(chr(i)) not in ("Cn", "Cs")
        and chr(i) not in "\t\n\v\f\r"
    ]
    # In a line of its own, and where marks of two classes follow.
    for end in ("", "\u0307\u0323"):
        lines = [character + end for character in known]
        rows = text.pieces(tf.constant(lines))
        found = tf.strings.reduce_join(rows, axis=1).numpy()
        wrong = [
            line
            for line, row in zip(lines, found, strict=True)
            if row != by_python(normalization, line).encode()
        ]
        assert not wrong, (len(wrong), wrong[:5])


# Code points that normalization moves, joins or replaces, and any others.
# Code points that this Python does not know may be normalized elsewhere.
MARKED = st.text(
    st.one_of(
        st.sampled_from("aeiouknAEIOUJ \u1112\u1161\u11ab\u00bd\ufb01\uff76"),
        st.integers(0x300, 0x36F).map(chr),
        st.characters(exclude_categories=["Cs", "Cn"]),
    ),
    max_size=12,
)


@given(MARKED, st.sampled_from(NORMALIZATIONS))
@settings(max_examples=150)
def test_any_text_is_normalized_as_python_does(line, normalization):
    expected = by_python(normalization, line.replace("\0", "\ufffd"))
    for control in "\t\n\v\f\r":
        expected = expected.replace(control, " ")
    text = Text([], split="characters", normalization=normalization)
    eager = b"".join(text.pieces(tf.constant([line])).to_list()[0])
    assert eager.decode() == expected


@pytest.mark.parametrize("normalization", NORMALIZATIONS)
def test_a_graph_normalizes_as_eager_execution_does(normalization):
    text = Text([], "characters", normalization=normalization)
    graph = tf.function(
        text.pieces, input_signature=[tf.TensorSpec([None], tf.string)]
    )
    lines = tf.constant([*WRITTEN, "", "a\0b\tc"])
    assert graph(lines).to_list() == text.pieces(lines).to_list()


@given(st.binary(max_size=20))
@settings(max_examples=100)
def test_without_normalization_bytes_pass_or_have_their_defined_answer(line):
    text = Text([], split="characters", normalization=None)
    (found,) = text.pieces(tf.constant([line])).to_list()
    found = b"".join(found)
    try:
        line.decode()
    except UnicodeDecodeError:
        assert "\ufffd" in found.decode()
    else:
        nul = line.replace(b"\0", "\ufffd".encode())
        assert found == nul.translate(bytes.maketrans(b"\t\n\v\f\r", b" " * 5))


@pytest.mark.parametrize("normalization", NORMALIZATIONS)
def test_normalized_or_not_nul_and_invalid_bytes_are_unknown(normalization):
    text = Text("ab ", split="characters", normalization=normalization)
    assert ids(text, [b"a\0b", b"\xff", b"a\r\nb"]) == [
        [4, UNKNOWN, 5, END, PAD],
        [UNKNOWN, END, PAD, PAD, PAD],
        [4, 6, 6, 5, END],
    ]


@pytest.mark.parametrize(
    "normalization, expected",
    [
        ("NFC", "k\u02b0\u00e9\u00bd"),
        ("NFKC", "kh\u00e91\u20442"),
        (None, None),
    ],
)
def test_lower_case_goes_with_each_normalization(normalization, expected):
    line = "K\u02b0E\u0301\u00bd"
    expected = expected or line.lower()
    text = Text(
        [], split="characters", lowercase=True, normalization=normalization
    )
    assert pieces(text, [line]) == [list(expected)]


def test_lower_case_letters_are_joined_with_their_accents_again():
    # j with a caron has a code point of its own, J with a caron has none.
    text = Text("\u01f0\u1e96", split="characters", lowercase=True)
    lines = ["J\u030c", "\u01f0", "j\u030c", "H\u0331"]
    assert ids(text, lines) == [[4, END], [4, END], [4, END], [5, END]]


@pytest.mark.parametrize("bad", ["nfc", "NFD", "", False, ["NFC"]])
def test_a_normalization_that_there_is_not_is_refused(bad):
    message = r'`normalization` must be "NFC", "NFKC" or None.*Received: norm'
    with pytest.raises(ValueError, match=message):
        Text("a", "characters", normalization=bad)
    with pytest.raises(ValueError, match=message):
        Text.from_lines(["a"], "characters", normalization=bad)


def test_lower_case_is_that_of_unicode_and_only_if_asked_for():
    lower = Text(["été", "σ"], split="whitespace", lowercase=True)
    assert ids(lower, ["ÉTÉ Été Σ"]) == [[4, 4, 5, END]]
    assert ids(WORDS, ["Été été"]) == [[7, UNKNOWN, END]]
