"""`BytePair`, against the library `tokenizers`."""

import json

import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies
from support import splitters
from support.splitters import LINES
from support.splitters import byte_pair_tokenizer

import keras_attn
from keras_attn import SpecialTokens
from keras_attn import Text

pytestmark = pytest.mark.full

NAMED = "<s>", "<pad>", "</s>", "<unk>"
BART = SpecialTokens(pad=1, start=(2, 0), end=2, unknown=3, source_start=(0,))
SIGNS = strategies.text("ab cé日\u00a0\u2028'sdm09.,\U0001f642", max_size=30)


@pytest.fixture(scope="module")
def files():
    return splitters.byte_pairs(LINES * 5, 320, NAMED)


@pytest.fixture(scope="module")
def part(files):
    return keras_attn.BytePair(*files, special=BART)


@pytest.fixture(scope="module")
def ids_of(part):
    return tf.function(
        part.ids,
        input_signature=[tf.TensorSpec([None], tf.string)],
        autograph=False,
    )


@given(strategies.lists(strategies.text(max_size=30) | SIGNS, max_size=4))
def test_ids_are_those_of_tokenizers_and_come_back(files, part, ids_of, lines):
    lines = [x.replace("\0", "") for x in lines]
    found = ids_of(tf.constant(lines, tf.string))
    expected = byte_pair_tokenizer(*files).encode_batch(lines)
    assert found.to_list() == [x.ids for x in expected]
    written = [x.decode() for x in part.strings(found).numpy()]
    assert written == lines
    pieces = part.split(tf.constant(lines, tf.string))
    tokens = [[part.tokens[i] for i in x.ids] for x in expected]
    assert [[x.decode() for x in row] for row in pieces.to_list()] == tokens
    assert [x.decode() for x in part.join(pieces).numpy()] == lines


def test_all_lines_of_a_text_are_those_of_tokenizers(files, ids_of):
    lines = splitters.fuzz(300)
    lines = [x.replace("\0", "") for x in lines]
    expected = byte_pair_tokenizer(*files).encode_batch(lines)
    assert ids_of(tf.constant(lines)).to_list() == [x.ids for x in expected]


@pytest.mark.parametrize(
    "merges",
    [
        ["a a", "aa a", "aa aa"],
        # A token that is made in two ways, and a merge before its parts'.
        ["b c", "abc d", "a b", "ab c", "a bc"],
        ["ab ab", "a b", "b a", "ba b"],
    ],
)
def test_merges_in_any_order_are_taken_one_by_one(merges):
    pieces = [*"abcd", "aa", "ab", "ba", "bc"]
    pieces += ["".join(x.split()) for x in merges]
    vocabulary = {x: i for i, x in enumerate(dict.fromkeys(pieces))}
    part = keras_attn.BytePair(vocabulary, merges)
    lines = ["aaaaaaa", "abcd" * 3 + "abc", "abababab", "ba" * 5, "dabcabcd"]
    found = part.split(tf.constant(lines)).to_list()
    other = byte_pair_tokenizer(vocabulary, merges).encode_batch(lines)
    assert [[x.decode() for x in row] for row in found] == [
        x.tokens for x in other
    ]


def test_a_special_token_that_is_written_is_no_special_token(part):
    text = Text(split=part)
    (ids,) = text.ids(["</s>"]).numpy()
    assert ids[-1] == 2 and not {0, 1, 2, 3} & {*ids[:-1]}
    assert text.strings([ids]).numpy() == [b"</s>"]


def test_tokens_are_readable_and_differ():
    merges = "Ġ a|Ã ©|Ã© Ġ|â ĸ|âĸ ģ|< 0|<0 x|<0x C|<0xC 3|<0xC3 >|< s"
    merges = merges.split("|")
    named = "<pad>", "<s>", "</s>"
    made = (x.replace(" ", "") for x in merges)
    letters = [*named, *"aĠÃ©âĸģĊ<0xC3s>", *made]
    vocabulary = {x: i for i, x in enumerate(letters)}
    special = SpecialTokens(pad=0, start=(1,), end=2, unknown=3)
    part = keras_attn.BytePair(vocabulary, merges, special)
    assert part.tokens == [
        *named,
        *("a", "▁", "<0xC3>", "<0xA9>", "<0xE2>", "<0x96>", "<0x81>"),
        *("<0x0A>", "<", "0", "x", "C", "3", "s", ">", "▁a", "é", "é▁"),
        *("<0xE2><0x96>", "<0xE2><0x96><0x81>", "<0", "<0x", "<0xC"),
        *("<0xC3", "<0x3C><0x30><0x78><0x43><0x33><0x3E>", "<s"),
    ]
    lines = ["é a", "▁<0xC3>"]
    pieces = part.split(tf.constant(lines))
    assert [x.decode() for x in part.join(pieces).numpy()] == lines


def test_without_special_tokens_those_of_the_file_are_left_out(files):
    text = Text(split=keras_attn.BytePair(*files))
    assert not {*NAMED} & {*text.tokens[4:]}
    assert text.size == len(files[0])
    (ids,) = text.ids(["to be"]).numpy()
    tokens = [text.tokens[i] for i in ids]
    assert tokens[-1] == "</s>" and "".join(tokens[:-1]) == "to▁be"


def test_a_byte_that_the_vocabulary_lacks_is_unknown():
    part = keras_attn.BytePair({"a": 0, "b": 1, "ab": 2}, ["a b"])
    text = Text(split=part)
    assert text.ids(["abxb"]).numpy().tolist() == [[6, 3, 5, 2]]
    found = text.tokens_of(["abxb"]).to_list()
    assert found == [[b"ab", b"x", b"b", b"</s>"]]
    assert text.strings([[6, 3, 5, 2]]).numpy() == [b"ab<unk>b"]


def test_without_an_unknown_token_all_bytes_are_needed(files):
    special = SpecialTokens(0, start=(0,), end=1, unknown=-1)
    letters = {"<pad>": 0, "</s>": 1, "a": 2, "b": 3, "ab": 4}
    with pytest.raises(ValueError, match="must have all 256 bytes"):
        keras_attn.BytePair(letters, ["a b"], special)
    special = SpecialTokens(1, start=(0,), end=2, unknown=-1)
    text = Text(split=keras_attn.BytePair(*files, special))
    assert text.strings(text.ids(["x日\x01"])).numpy()[0].decode() == "x日\x01"


def test_the_files_of_a_network_are_read(files, part, tmp_path):
    vocabulary, merges = files
    (tmp_path / "vocab.json").write_text(json.dumps(vocabulary))
    (tmp_path / "merges.txt").write_text(
        "\n".join(["#version: 0.2", *merges, ""])
    )
    read = keras_attn.BytePair(
        str(tmp_path / "vocab.json"), tmp_path / "merges.txt", BART
    )
    assert read.get_config() == part.get_config()


def test_the_same_sign_many_times_is_merged_in_a_few_passes():
    merges = ["- -", "-- --", "---- ----"]
    vocabulary = {"-" * 2**i: i for i in range(4)}
    part = keras_attn.BytePair(vocabulary, merges)
    lines = ["-" * n for n in (0, 1, 2, 3, 7, 8, 9, 31, 20_003)]
    found = part.split(tf.constant(lines)).to_list()
    other = byte_pair_tokenizer(vocabulary, merges).encode_batch(lines)
    assert [[x.decode() for x in row] for row in found] == [
        x.tokens for x in other
    ]


def test_bytes_that_are_unknown_are_joined_to_text():
    part = keras_attn.BytePair({"a": 0, "b": 1, "ab": 2}, ["a b"])
    pieces = part.split(tf.constant(["abéa"]))
    assert part.join(pieces).numpy()[0].decode() == "abéa"
    replaced = tf.ragged.constant([["ab", "▁word"]])
    assert part.join(replaced).numpy() == [b"ab word"]


def test_bytes_alone_are_a_vocabulary():
    vocabulary, _ = splitters.byte_pairs([], 256)
    text = Text(split=keras_attn.BytePair(vocabulary, []))
    assert text.strings(text.ids(["é a"])).numpy()[0].decode() == "é a"


def test_names_that_are_taken_are_given_to_no_other_token():
    vocabulary = {
        "<0x0A>": 0,
        "Ċ": 1,
        "<": 2,
        "s": 3,
        ">": 4,
        "<s": 5,
        "<s>": 6,
    }
    merges = [["<", "s"], ["<s", ">"]]  # pairs, as some files have them
    part = keras_attn.BytePair(vocabulary, merges)
    assert Text(split=part).tokens[-1] == "<0x3C><0x73><0x3E>"
    special = SpecialTokens(0, start=(0,), end=2, unknown=4)
    part = keras_attn.BytePair(vocabulary, merges, special)
    assert len({*part.tokens}) == len(part.tokens) == 7
    assert part.tokens[:2] == ["<0x0A>", "<0x0A>#0"]


@pytest.mark.parametrize(
    ("vocabulary", "merges", "message"),
    [
        ({"a": 0, "b": 0}, [], "2 tokens with 1 ids"),
        ({"a": 0, "b": -1}, [], "at least 0, for each"),
        ({}, [], "must have a token at least"),
        ({"▁": 0, "t": 1, "▁t": 2}, ["▁ t"], "`SentencePiece` reads these"),
        ({"a": 0, "b</w>": 1, "ab</w>": 2}, ["a b</w>"], "ends of words"),
    ],
)
def test_vocabularies_of_another_kind_are_refused(vocabulary, merges, message):
    with pytest.raises(ValueError, match=message):
        keras_attn.BytePair(vocabulary, merges)


@pytest.mark.parametrize("merge", ["a c", "ab", "a b c", "b a"])
def test_a_merge_of_no_tokens_is_refused(merge):
    with pytest.raises(ValueError, match="must name two tokens of the vocab"):
        keras_attn.BytePair({"a": 0, "b": 1, "ab": 2}, [merge])
