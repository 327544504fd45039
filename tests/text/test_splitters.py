"""Splitters of a user's own read, write and stream, in source and target."""

import numpy as np
import pytest
import tensorflow as tf
from support import splitters
from support.lazily import Lazily
from support.splitters import LINES
from support.splitters import NAMES
from support.splitters import translator

import keras_attn
from keras_attn import Text
from keras_attn.text.special_tokens import END
from keras_attn.text.special_tokens import UNKNOWN


@pytest.fixture(scope="session")
def texts(tmp_path_factory):
    return Lazily(
        lambda name: splitters.make(name, tmp_path_factory.mktemp(name)), NAMES
    )


@pytest.fixture(scope="session")
def translators(texts):
    """Translators with each splitter in the source and in the target text."""
    return Lazily(lambda name: translator(texts[name], texts[name]), NAMES)


def test_pieces_of_one_s_own_are_counted_looked_up_and_joined(texts):
    text = texts["marks"]
    assert text.tokens[4:8] == ["be", "!", ",", "question"]
    ids = text.ids(["hello,world!", "to be"])
    assert text.strings(ids).numpy().tolist() == [b"hello, world!", b"to be"]
    assert isinstance(text.split, splitters.Marks)
    assert text.split is text.splitter


@pytest.mark.sample_cases(3)
@pytest.mark.parametrize("name", NAMES)
def test_what_is_read_can_be_written(texts, name):
    text = texts[name]
    ids = text.ids(LINES)
    assert ids.dtype == tf.int32
    again = text.ids(text.strings(ids))
    known = ~np.any(ids == UNKNOWN, axis=1)
    assert known.any()
    rows = [row[row != 0].tolist() for row in np.array(ids)[known]]
    others = [row[row != 0].tolist() for row in np.array(again)[known]]
    assert rows == others
    assert all(row[-1] == END for row in rows)


@pytest.mark.full
@pytest.mark.sample_cases(2)
@pytest.mark.parametrize("name", NAMES)
def test_a_graph_and_an_empty_batch(texts, name):
    text = texts[name]
    graph = tf.function(
        lambda lines: text.strings(text.ids(lines, start=True)),
        input_signature=[tf.TensorSpec([None], tf.string)],
    )
    lines = tf.constant(LINES)
    np.testing.assert_array_equal(graph(lines), text.strings(text.ids(lines)))
    assert graph(lines[:0]).shape == (0,)
    assert text.ids(lines[:0]).shape == (0, 1)


@pytest.mark.sample_cases(1)
@pytest.mark.parametrize("name", NAMES)
def test_lines_are_cut_to_their_longest(texts, name):
    text = Text(
        None if texts[name].splitter.tokens else texts[name].tokens[4:],
        texts[name].splitter,
        max_length=3,
    )
    assert text.ids(LINES).shape == (5, 4)
    lengths = text.lengths(LINES).numpy()
    assert text.is_truncated(LINES).numpy().tolist() == list(lengths > 3)
    tokens = text.tokens_of(tf.constant(LINES)).row_lengths().numpy()
    assert tokens.tolist() == [min(x, 3) + 1 for x in lengths]


def test_bytes_are_ids_whatever_they_are():
    text = Text(split=splitters.Bytes())
    assert text.size == 260
    assert text.ids(["a\u00e9"]).numpy().tolist() == [
        [4 + 0x61, 4 + 0xC3, 4 + 0xA9, END]
    ]
    assert text.tokens_of(["a"]).to_list() == [[b"<0x61>", b"</s>"]]
    assert text.strings([[4 + 0x61, 999, -5, UNKNOWN, END]]).numpy() == [
        b"a<unk><unk><unk>"
    ]
    assert text.token_ids(["<0x00>", "x"]).numpy().tolist() == [4, UNKNOWN]


def test_ids_that_stand_for_nothing_are_unknown():
    class Odd(splitters.Bytes):
        def ids(self, strings):
            ids = super().ids(strings)
            return tf.where(ids == 4 + ord("~"), 1, ids)

    text = Text(split=Odd())
    assert text.ids(["a~"]).numpy().tolist() == [[4 + 0x61, UNKNOWN, END]]


@pytest.mark.sample_cases(3)
@pytest.mark.parametrize("name", NAMES)
def test_pairs_take_any_text(texts, name):
    data = keras_attn.pairs(LINES, LINES, texts[name], texts[name], buckets=1)
    (source, target_in), target_out = next(iter(data))
    assert source.shape == target_out.shape == target_in.shape


@pytest.mark.full
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("ignore:The source is empty")
def test_a_stream_says_what_a_call_does(translators, name):
    result = translators[name](LINES)
    assert len(set(result.text)) > 1
    for line, row in zip(LINES, result, strict=True):
        tokens = list(translators[name].stream(line))
        assert [x.token for x in tokens] == row.tokens
        assert "".join(x.text for x in tokens) == row.text


def test_a_stream_of_bytes_waits_for_whole_characters():
    text = Text(split=splitters.Bytes())
    growing = keras_attn.text.incremental_detokenizer.IncrementalDetokenizer(
        text, by_tokens=False
    )
    told = []
    for byte in "aé日".encode() + b"\xe6":
        told.append(growing.add(4 + byte, f"<0x{byte:02X}>", last=False))
    assert told == ["a", "", "é", "", "", "日", ""]
    assert growing.end() == "\ufffd"


@pytest.mark.full
def test_a_prefix_begins_a_text_of_any_part(translators):
    for name, prefix in (("bytes", "日"), ("listed", "to be")):
        result = translators[name](["hello"], prefixes=[prefix])
        assert result.text[0].startswith(prefix)
    with pytest.raises(ValueError, match="tokens that the target text knows"):
        translators["listed"](["hello"], prefixes=["nowhere"])


@pytest.mark.full
def test_unknown_is_replaced_where_parts_split_and_join(texts):
    listed, own = texts["listed"], texts["bytes"]
    made = translator(
        listed,
        listed,
        search=keras_attn.GreedySearch(max_length=4, min_length=3),
        replace_unknown=True,
        forbidden=listed.tokens[4:],
    )
    result = made(["hello stranger"])
    assert any(row.replaced for row in result)
    assert "<unk>" not in result.text[0]
    tokens = list(made.stream("hello stranger"))
    assert "".join(x.text for x in tokens) == result.text[0]
    for texts_, name in (((own, listed), "split"), ((listed, own), "join")):
        with pytest.raises(ValueError, match=rf"needs `{name}\(\)` in the"):
            translator(*texts_, replace_unknown=True)
