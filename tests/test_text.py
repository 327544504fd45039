"""`Text`: any bytes give a defined result and leave other rows alone."""

import json
import pathlib
import unicodedata

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from keras_attn import Text
from keras_attn.text import END
from keras_attn.text import PAD
from keras_attn.text import SPECIAL_TOKENS
from keras_attn.text import START
from keras_attn.text import UNKNOWN

CHARACTERS = Text("abcé日 ", split="characters")
WORDS = Text(["to", "be", "or", "Été"], split="whitespace")
A, B, C, ACUTE, DAY, SPACE = range(4, 10)


def ids(text, lines, **options):
    return text.ids(tf.constant(lines, tf.string), **options).numpy().tolist()


def strings(text, rows):
    return [x.decode() for x in text.strings(rows).numpy()]


def test_characters_become_ids_with_an_end_token_and_padding():
    assert ids(CHARACTERS, ["abc", "b"]) == [[A, B, C, END], [B, END, PAD, PAD]]


def test_words_become_ids_and_white_space_of_any_kind_parts_them():
    line = "  to\u3000be\u00a0or\tto\u2003be\n"
    assert ids(WORDS, [line]) == [[4, 5, 6, 4, 5, END]]


@pytest.mark.parametrize("normalization", ["NFC", "NFKC", None])
def test_all_white_space_parts_words_and_nothing_else_does(normalization):
    text = Text(["a", "b"], "whitespace", normalization=normalization)
    spaces = [chr(i) for i in range(0x20, 0x3100) if chr(i).isspace()]
    assert len(spaces) == 20
    for space in spaces:
        line = f"{space}a{space}b{space}{space}a{space}"
        assert ids(text, [line]) == [[4, 5, 4, END]], ascii(space)
    for other in "\u180e\u200b\ufeff\x1c":
        assert ids(text, [f"a{other}b"]) == [[UNKNOWN, END]], ascii(other)


def test_a_start_token_comes_first_if_asked_for():
    assert ids(CHARACTERS, ["a", ""], start=True) == [
        [START, A, END],
        [START, END, PAD],
    ]


def test_an_empty_string_is_an_end_token():
    assert ids(CHARACTERS, [""]) == [[END]]
    assert ids(WORDS, ["", "   "]) == [[END], [END]]


def test_an_empty_batch_has_no_rows_and_one_column():
    for text in (CHARACTERS, WORDS):
        found = text.ids(tf.constant([], tf.string))
        assert found.shape == (0, 1)
        assert found.dtype == tf.int32


def test_an_unknown_character_or_word_is_unknown():
    assert ids(CHARACTERS, ["axb"]) == [[A, UNKNOWN, B, END]]
    assert ids(WORDS, ["to sleep"]) == [[4, UNKNOWN, END]]


def test_text_spelled_like_a_special_token_is_unknown():
    for special in SPECIAL_TOKENS:
        assert ids(WORDS, [f"to {special} be"]) == [[4, UNKNOWN, 5, END]]
    # A character is never a special token, and neither are several.
    assert ids(CHARACTERS, ["</s>"]) == [[UNKNOWN] * 4 + [END]]


def test_invalid_utf_8_is_unknown_and_harms_no_other_row():
    lines = [b"a\xff\xfeb", b"\xe6\x97", b"a\xed\xa0\x80b", b"ab"]
    rows = [[x for x in row if x != PAD] for row in ids(CHARACTERS, lines)]
    assert rows[0] == [A, UNKNOWN, UNKNOWN, B, END]
    assert set(rows[1][:-1]) == {UNKNOWN}
    assert rows[2][0] == A and rows[2][-2:] == [B, END]
    assert rows[3] == [A, B, END]


def test_nul_is_an_unknown_character_and_ends_nothing():
    lower = Text("ab", split="characters", lowercase=True)
    assert ids(lower, [b"A\0B"]) == [[A, UNKNOWN, B, END]]
    assert ids(CHARACTERS, [b"a\0b", b"\0", b"ab\0"]) == [
        [A, UNKNOWN, B, END],
        [UNKNOWN, END, PAD, PAD],
        [A, B, UNKNOWN, END],
    ]


def test_a_long_line_is_cut_and_its_neighbours_are_not():
    rows = np.array(ids(CHARACTERS, ["ab", "c" * 100_000, ""]))
    assert rows.shape == (3, 1001)
    assert rows[0].tolist() == [A, B, END] + [PAD] * 998
    assert rows[1].tolist() == [C] * 1000 + [END]
    assert rows[2].tolist() == [END] + [PAD] * 1000
    tokens = CHARACTERS.tokens_of(tf.constant(["c" * 100_000]))
    assert tokens.row_lengths().numpy().tolist() == [1001]


def test_a_long_line_is_refused_where_that_was_asked_for():
    text = Text("ab", "characters", max_length=3, too_long="error")
    assert ids(text, ["aba", "b"]) == [[4, 5, 4, END], [5, END, PAD, PAD]]
    assert ids(text, []) == []
    graph = tf.function(
        text.ids, input_signature=[tf.TensorSpec([None], tf.string)]
    )
    for run in (text.ids, graph):
        for line in ("abab", "a" * 100_000):
            with pytest.raises(
                tf.errors.InvalidArgumentError,
                match=r"A text may have at most 3 tokens(.|\n)*Received: a",
            ):
                run(tf.constant(["a", line]))


# NFKC changes these texts; NFC only joins letter and accent.
WRITTEN = [
    "k\u02b0 a t\u02b2 x\u00b2",  # aspirated, palatalised, squared
    "\u00bd \ufb01 \u2122",  # a half, the ligature fi, a trade mark
    "e\u0301a\u0323\u0307 n\u0303",  # decomposed accents, one of several
    "\u1112\u1161\u11ab\u1100\u1173\u11af",  # Hangul, by its jamo
    "\uff76\uff9e\uff86",  # half-width kana
    "\uff41\u3000\u00a0\u2126\u212b",  # full width, spaces, singletons
]
NORMALIZATIONS = ["NFC", "NFKC", None]


def by_python(normalization, line):
    """Normalises by Python's implementation of Unicode's algorithm."""
    if normalization is None:
        return line
    return unicodedata.normalize(normalization, line)


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
def test_normalisation_is_that_of_unicode(normalization):
    text = Text([], split="characters", normalization=normalization)
    found = ["".join(row) for row in pieces(text, WRITTEN)]
    assert found == [by_python(normalization, line) for line in WRITTEN]
    words = Text([], split="whitespace", normalization=normalization)
    assert pieces(words, WRITTEN) == [
        by_python(normalization, line).split() for line in WRITTEN
    ]


@pytest.mark.parametrize("normalization", NORMALIZATIONS)
def test_every_code_point_is_normalised_as_python_does(normalization):
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


# Code points that normalisation moves, joins or replaces, and any others.
# Code points that this Python does not know may be normalised elsewhere.
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
def test_any_text_is_normalised_as_python_does(line, normalization):
    expected = by_python(normalization, line.replace("\0", "\ufffd"))
    for control in "\t\n\v\f\r":
        expected = expected.replace(control, " ")
    text = Text([], split="characters", normalization=normalization)
    eager = b"".join(text.pieces(tf.constant([line])).to_list()[0])
    assert eager.decode() == expected


@pytest.mark.parametrize("normalization", NORMALIZATIONS)
def test_a_graph_normalises_as_eager_execution_does(normalization):
    text = Text([], "characters", normalization=normalization)
    graph = tf.function(
        text.pieces, input_signature=[tf.TensorSpec([None], tf.string)]
    )
    lines = tf.constant([*WRITTEN, "", "a\0b\tc"])
    assert graph(lines).to_list() == text.pieces(lines).to_list()


@given(st.binary(max_size=20))
@settings(max_examples=100)
def test_without_normalisation_bytes_pass_or_have_their_defined_answer(line):
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
def test_normalised_or_not_nul_and_invalid_bytes_are_unknown(normalization):
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
def test_lower_case_goes_with_each_normalisation(normalization, expected):
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
def test_a_normalisation_that_there_is_not_is_refused(bad):
    message = r'`normalization` must be "NFC", "NFKC" or None.*Received: norm'
    with pytest.raises(ValueError, match=message):
        Text("a", "characters", normalization=bad)
    with pytest.raises(ValueError, match=message):
        Text.from_lines(["a"], "characters", normalization=bad)


@pytest.mark.parametrize(
    "token, normalization, becomes",
    [
        ("e\u0301", "NFC", "\u00e9"),
        ("\u2126", "NFC", "\u03a9"),
        ("\u00bd", "NFKC", "1\u20442"),
        ("\u02b0", "NFKC", "h"),
    ],
)
def test_a_token_that_normalisation_never_lets_through_is_refused(
    token, normalization, becomes
):
    with pytest.raises(ValueError, match="split into") as caught:
        Text([token], "whitespace", normalization=normalization)
    message = str(caught.value)
    assert f"which is split into {[becomes]}" in message
    assert f"normalization={normalization!r}" in message
    assert f"unicodedata.normalize('{normalization}', token)" in message
    assert Text([token], "whitespace", normalization=None).size == 5


def test_a_vocabulary_is_counted_with_its_normalisation():
    lines = ["x\u00b2 x2", "e\u0301 \u00e9"]
    counts = {
        name: Text.from_lines(lines, "whitespace", normalization=name).counts
        for name in NORMALIZATIONS
    }
    assert counts["NFC"] == {"x\u00b2": 1, "x2": 1, "\u00e9": 2}
    assert counts["NFKC"] == {"x2": 2, "\u00e9": 2}
    assert counts[None] == {"x\u00b2": 1, "x2": 1, "e\u0301": 1, "\u00e9": 1}
    assert Text.from_lines(lines, "whitespace").counts == counts["NFC"]


@pytest.mark.parametrize("normalization", NORMALIZATIONS)
def test_a_normalisation_is_saved_and_loaded(normalization, tmp_path):
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
    stored = pathlib.Path(__file__).parent / "fixtures/0.1.1/translator"
    options = json.loads((stored / "source.txt.json").read_text())
    assert "normalization" not in options
    text = Text.load(stored / "source.txt")
    assert text.normalization == "NFKC"
    text.save(tmp_path / "again.txt")
    assert Text.load(tmp_path / "again.txt").normalization == "NFKC"
    letter = next(x for x in text.tokens[4:] if "a" <= x <= "z")
    wide = chr(ord(letter) - ord("a") + ord("\uff41"))
    assert ids(text, [wide]) == ids(text, [letter]) != [[UNKNOWN, END]]


def test_what_is_cut_is_told():
    text = Text("ab ", "characters", max_length=3)
    lines = ["", "ab", "aba", "abab", b"\xff" * 9, "e\u0301" * 3]
    told = text.is_truncated(tf.constant(lines)).numpy().tolist()
    assert told == [False, False, False, True, True, False]
    words = Text(["a"], "whitespace", max_length=2)
    told = words.is_truncated(["a b", "a  b\u3000", "a b c"]).numpy()
    assert told.tolist() == [False, False, True]
    assert text.is_truncated(tf.constant([], tf.string)).shape == (0,)


def test_line_breaks_and_tabs_are_spaces():
    assert ids(CHARACTERS, ["a\tb\nc\r\v\f"]) == [
        [A, SPACE, B, SPACE, C, SPACE, SPACE, SPACE, END]
    ]


def test_lower_case_is_that_of_unicode_and_only_if_asked_for():
    lower = Text(["été", "σ"], split="whitespace", lowercase=True)
    assert ids(lower, ["ÉTÉ Été Σ"]) == [[4, 4, 5, END]]
    assert ids(WORDS, ["Été été"]) == [[7, UNKNOWN, END]]


def test_scripts_mix():
    text = Text.from_lines(["aбγא字あ🙂"], split="characters")
    assert text.size == 4 + 7
    assert strings(text, text.ids(["aбγא字あ🙂"])) == ["aбγא字あ🙂"]


def test_what_is_known_comes_back_as_it_was():
    lines = ["abc", "", "日é a", " b "]
    assert strings(CHARACTERS, CHARACTERS.ids(lines)) == lines
    lines = ["to be or", "Été", ""]
    assert strings(WORDS, WORDS.ids(lines, start=True)) == lines


def test_unknown_reads_unk_and_ids_out_of_range_too():
    assert strings(CHARACTERS, [[A, UNKNOWN, B, END, PAD]]) == ["a<unk>b"]
    assert strings(WORDS, [[4, 99, -1, END]]) == ["to <unk> <unk>"]


def test_strings_take_ids_of_any_rank():
    cube = tf.constant([[[A, END], [B, C]], [[PAD, PAD], [C, END]]])
    found = CHARACTERS.strings(cube).numpy().tolist()
    assert found == [[b"a", b"bc"], [b"", b"c"]]
    assert CHARACTERS.strings(cube[:0]).shape == (0, 2)
    assert CHARACTERS.strings([A, B]).numpy() == b"ab"


def test_tokens_are_as_written_also_where_unknown():
    rows = WORDS.tokens_of(tf.constant(["to sleep", ""])).to_list()
    assert rows == [[b"to", b"sleep", b"</s>"], [b"</s>"]]


def test_a_graph_gives_what_eager_execution_gives():
    lines = tf.constant([b"ab x", b"", b"\xff\0", "é日".encode()])
    for text in (CHARACTERS, WORDS):
        graph = tf.function(
            lambda lines, text=text: text.strings(text.ids(lines)),
            input_signature=[tf.TensorSpec([None], tf.string)],
        )
        np.testing.assert_array_equal(
            graph(lines), text.strings(text.ids(lines))
        )


def test_a_batch_of_another_rank_is_refused():
    for lines in ("abc", [["abc"]]):
        with pytest.raises((ValueError, tf.errors.InvalidArgumentError)):
            CHARACTERS.ids(tf.constant(lines))


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


ANY_LINES = st.lists(
    st.one_of(st.text(max_size=12), st.binary(max_size=12)), max_size=5
)


@given(ANY_LINES, st.booleans())
@settings(max_examples=50)
def test_any_text_gives_ids_in_range_and_the_same_alone(lines, start):
    lines = [
        x if isinstance(x, bytes) else x.encode("utf-8", "surrogatepass")
        for x in lines
    ]
    for text in (CHARACTERS, WORDS):
        together = ids(text, lines, start=start)
        for line, row in zip(lines, together, strict=True):
            length = row.index(END) + 1
            assert not any(row[length:])
            inner = row[start : length - 1]
            assert all(UNKNOWN <= x < text.size for x in inner)
            assert row[:start] == [START] * start
            assert ids(text, [line], start=start) == [row[:length]]


@given(st.lists(st.text("abcé日 ", max_size=9), min_size=1, max_size=4))
@settings(max_examples=25)
def test_any_text_of_known_characters_comes_back(lines):
    assert strings(CHARACTERS, CHARACTERS.ids(lines)) == lines
