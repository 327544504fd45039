"""Words, and where they begin and end among their tokens."""

import pytest
import tensorflow as tf

import keras_attn
from keras_attn.text.word_groups import WordGroups
from keras_attn.text.word_groups import pieces_of


def byte_pairs(*merges):
    letters = keras_attn.text.byte_pair.BYTES
    merged = [x.replace(" ", "") for x in merges]
    tokens = [*letters, "</s>", "<pad>", *merged]
    special = keras_attn.SpecialTokens(
        pad=257, start=(257,), end=256, unknown=-1
    )
    splitter = keras_attn.BytePair(
        {x: i for i, x in enumerate(tokens)}, merges, special
    )
    return keras_attn.Text(split=splitter, normalization=None)


def grouped(text, line):
    (ids,) = text.ids([line], end=False)
    text, first, after = WordGroups(text)(ids)
    return [
        (word.decode(), int(i), int(j))
        for word, i, j in zip(text.numpy(), first, after, strict=True)
    ]


def test_words_begin_with_a_space():
    text = keras_attn.Text.from_lines(["ab c"], split="characters")
    assert grouped(text, "ab c") == [("ab", 0, 2), ("c", 3, 4)]
    text = keras_attn.Text.from_lines(["ab c"], split="whitespace")
    assert grouped(text, "ab c") == [("ab", 0, 1), ("c", 1, 2)]


def test_marks_count_for_no_time():
    text = keras_attn.Text.from_lines(['"ab," c!'], split="characters")
    assert grouped(text, '"ab," c!') == [('"ab,"', 1, 3), ("c!", 6, 7)]
    assert grouped(text, '" c') == [('"', 0, 1), ("c", 2, 3)]


@pytest.mark.full
@pytest.mark.sample_cases(1)
@pytest.mark.parametrize(
    "line, words",
    [
        ("don't go", ["don't", "go"]),
        ("été 😀", ["été", "😀"]),
        ("你好 a", ["你", "好", "a"]),
        ("한국 a", ["한국", "a"]),
        ("  a  b ", ["a", "b"]),
        ("", []),
    ],
)
def test_bytes(line, words):
    assert [x for x, _, _ in grouped(byte_pairs(), line)] == words


@pytest.mark.full
def test_a_whole_character_without_spaces_begins_a_word():
    text = byte_pairs("ä ½", "ä½ ł")
    assert pieces_of(text)[-1].decode() == "你"
    assert grouped(text, "你你a") == [("你", 0, 1), ("你a", 1, 3)]


def test_sentence_pieces(tmp_path):
    lines = ["the cat sat on the mat", "a cat and a mat"] * 9
    text = keras_attn.Text.train(lines, size=300)
    found = grouped(text, "the cat, mat")
    assert [x for x, *_ in found] == ["the", "cat,", "mat"]
    pieces = pieces_of(text)
    assert {pieces[i] for i in text.special.without_text} == {b""}


def test_in_a_graph_of_any_size():
    text = keras_attn.Text.from_lines(["ab c"], split="characters")
    groups = WordGroups(text)
    run = tf.function(groups, input_signature=[tf.TensorSpec([None], tf.int32)])
    for line, words in [("ab c", [b"ab", b"c"]), ("", [])]:
        (ids,) = text.ids([line], end=False)
        assert run(ids).text.numpy().tolist() == words
