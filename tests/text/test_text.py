"""`Text` maps any bytes to ids, and ids to strings; no row affects another."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
from support.texts import CHARACTERS
from support.texts import SPACE
from support.texts import WORDS
from support.texts import A
from support.texts import B
from support.texts import C
from support.texts import ids
from support.texts import strings

from keras_attn import Bytes
from keras_attn import Text
from keras_attn.text.special_tokens import END
from keras_attn.text.special_tokens import PAD
from keras_attn.text.special_tokens import SPECIAL_TOKENS
from keras_attn.text.special_tokens import START
from keras_attn.text.special_tokens import UNKNOWN


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
        for none in ([], np.array([], object), tf.constant([], tf.string)):
            found = text.ids(none)
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
    for run, error in (
        (text.ids, ValueError),
        (graph, tf.errors.InvalidArgumentError),
    ):
        for line in ("abab", "a" * 100_000):
            with pytest.raises(
                error,
                match=r"A text may have at most 3 tokens(.|\n)*Received: a",
            ):
                run(tf.constant(["a", line]))


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


def test_an_id_beyond_32_bits_is_out_of_range_too():
    text = Text(split=Bytes())
    for big in (2**31, 2**32 + 70, -(2**32) + 70):
        found = text.strings(np.array([[70, big]]))
        assert found.numpy().tolist() == [b"B<unk>"]
    assert text.strings(np.array([[70]], "uint8")).numpy().tolist() == [b"B"]


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


ANY_LINES = st.lists(
    st.one_of(st.text(max_size=12), st.binary(max_size=12)), max_size=5
)


@pytest.mark.full
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
