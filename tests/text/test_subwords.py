"""Subwords and bytes, against the packages that made them known."""

import unicodedata

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf
import tokenizers
from hypothesis import given
from hypothesis import strategies

import keras_attn
from keras_attn import Text
from keras_attn.text import subwords
from keras_attn.text.special_tokens import UNKNOWN

LINES = [
    "to be or not to be, that is the question",
    "whether 'tis nobler in the mind to suffer",
    "the slings and arrows of outrageous fortune",
    "or to take arms against a sea of troubles",
    "déjà vu: naïve façade, 12 % of 3.5",
] * 4
PIECES = ["to", "be", "no", "##t", "##thing", ",", "!", "é", "##s", "a", "##a"]
SHARED = tf.constant(["", *LINES, "日本語 ½ ﬁ ™ kʰ 😀", "to  be", " x "])


@pytest.fixture(scope="module", params=["unigram", "bpe"])
def trained(request):
    return Text.train(LINES, size=330, kind=request.param)


@pytest.fixture(scope="module")
def made():
    return {
        "unigram": Text.train(LINES, size=330),
        "bpe": Text.train(LINES, size=330, kind="bpe"),
        "bytes": Text(split=keras_attn.Bytes()),
        "wordpiece": Text(split=keras_attn.WordPiece(PIECES)),
    }


def processor(text):
    path = text.splitter.get_config()["model"]
    return sentencepiece.SentencePieceProcessor(model_file=path)


def test_ids_are_those_of_sentencepiece_moved_by_the_special_ones(trained):
    own = processor(trained)
    for line in LINES:
        pieces = own.encode(line, out_type=str)
        ids = trained.ids([line])[0, :-1]
        assert [trained.tokens[i] for i in ids] == pieces
        assert trained.strings([ids]).numpy()[0].decode() == own.decode(pieces)
        found = trained.tokens_of([line]).to_list()[0]
        assert [x.decode() for x in found] == [*pieces, "</s>"]


def test_the_same_lines_give_the_same_subwords(trained):
    for kind in ("unigram", "bpe"):
        one, other = (Text.train(LINES, size=330, kind=kind) for _ in "ab")
        assert one.tokens == other.tokens
        contents = (x.splitter._content for x in (one, other))
        assert len(set(contents)) == 1


def test_the_size_counts_the_special_tokens():
    assert Text.train(LINES, size=330, kind="bpe").size == 330
    assert Text.train(LINES, size=330).size <= 330
    few = Text.train(LINES, size=5000, byte_fallback=False)
    assert few.size < 500  # no more pieces are in the lines


def test_without_bytes_a_strange_character_is_unknown():
    text = Text.train(LINES, size=100, byte_fallback=False)
    assert UNKNOWN in text.ids(["日"]).numpy()
    assert UNKNOWN not in Text.train(LINES, size=330).ids(["日"]).numpy()


@pytest.mark.full
@pytest.mark.sample_cases(1)
@given(strategies.text(max_size=40))
@pytest.mark.parametrize("name", ["unigram", "bpe", "bytes"])
def test_any_text_comes_back(made, name, line):
    text = made[name]
    (found,) = text.strings(text.ids([line])).numpy()
    # As a `Text` reads it; SentencePiece joins spaces.
    read = Text([], "characters")._normalize(tf.constant([_utf8(line)]))
    expected = read.numpy()[0].decode()
    if name != "bytes":
        expected = " ".join(x for x in expected.split(" ") if x)
        expected = expected.replace("▁", " ").strip(" ")
        found = b" ".join(x for x in found.split(b" ") if x)
        expected = " ".join(x for x in expected.split(" ") if x)
    assert found.decode() == expected


def _utf8(line):
    return line.encode("utf-8", "surrogatepass")


@pytest.mark.parametrize("name", ["unigram", "bpe", "bytes", "wordpiece"])
def test_long_and_empty_texts_have_their_ids(made, name):
    text = made[name]
    long = "to be, " * 20_000
    ids = text.ids(["", long, "to"])
    assert ids.shape == (3, text.max_length + 1)
    assert ids[0, 0] == 2 and text.is_truncated(["", long]).numpy()[1]


def test_wordpiece_finds_what_the_tokenizers_library_finds(made):
    text = made["wordpiece"]
    model = tokenizers.models.WordPiece(
        {"[UNK]": 0} | {x: i + 1 for i, x in enumerate(PIECES)},
        unk_token="[UNK]",
    )
    other = tokenizers.Tokenizer(model)
    other.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    for line in ("to be, not nothing!", "nots zebra a,a!", "é aaa tobe", ""):
        expected = [
            UNKNOWN if i == 0 else i + 3 for i in other.encode(line).ids
        ]
        assert text.ids([line]).numpy()[0].tolist()[:-1] == expected


def test_wordpiece_shows_unknown_words_as_written(made):
    found = made["wordpiece"].tokens_of(["nots zebra, é!"]).to_list()[0]
    written = [x.decode() for x in found]
    assert written == ["no", "##t", "##s", "zebra", ",", "é", "!", "</s>"]


def test_wordpiece_leaves_invisible_characters_out(made):
    text = made["wordpiece"]
    found = text.tokens_of(["\ufeffto be\u200b", "to\u00adbe\x01to"]).to_list()
    assert found == [[b"to", b"be", b"</s>"], [b"to", b"be", b"to", b"</s>"]]
    ids = text.ids(["\ufeffto be\u200b", "to\u00adbe\x01to"]).numpy().tolist()
    assert ids == text.ids(["to be", "to be to"]).numpy().tolist()


def test_wordpiece_leaves_the_list_s_own_special_tokens_out(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", *PIECES, ""]))
    text = Text(split=keras_attn.WordPiece(path))
    assert text.tokens[4:] == PIECES


def test_bytes_that_are_no_text_become_a_sign(made):
    ids = [[4 + 0xF0, 4 + 0x9F, 4 + 0x41, 2]]
    assert made["bytes"].strings(ids).numpy()[0].decode() == "\ufffdA"


# Normalization


def test_a_model_that_normalizes_does_so_alone():
    text = Text.train(
        LINES, size=330, trainer={"normalization_rule_name": "nmt_nfkc"}
    )
    assert text.normalization is None
    assert text.strings(text.ids(["ﬁ ½"])).numpy()[0].decode() == "fi 1⁄2"
    with pytest.raises(ValueError, match="text is normalized once"):
        Text(split=text.splitter, normalization="NFC")


def test_other_models_leave_it_to_the_text(trained):
    assert trained.normalization == "NFC"
    line = "de\u0301ja\u0300 vu"
    (found,) = trained.strings(trained.ids([line])).numpy()
    assert found.decode() == unicodedata.normalize("NFC", line)


# Draws


def test_draws_spell_the_same_in_several_ways(trained):
    text = trained.sampled(alpha=0.3)
    ids = [tuple(text.ids(LINES[:1]).numpy()[0]) for _ in range(8)]
    assert len(set(ids)) > 2
    for row in ids:
        assert trained.strings([row]).numpy()[0].decode() == LINES[0]


@pytest.mark.full
def test_pairs_draw_anew_in_each_epoch(trained):
    drawing = trained.sampled(alpha=0.3)
    data = keras_attn.pairs(
        LINES[:2], LINES[:2], drawing, trained, batch_size=2, shuffle=False
    )
    epochs = [next(iter(data))[0] for _ in range(4)]
    sources = {x[0].numpy().tobytes() for x in epochs}
    targets = {x[1].numpy().tobytes() for x in epochs}
    assert len(sources) > 1 and len(targets) == 1


def test_a_draw_that_would_be_cut_gives_way(trained):
    line = LINES[0]
    length = int(trained.lengths([line])[0])
    for too_long in ("error", "truncate"):
        text = Text(
            split=trained.splitter, max_length=length, too_long=too_long
        ).sampled(alpha=0.3)
        ids = text.ids([line] * 30).numpy()
        assert len({tuple(x) for x in ids}) >= 1
        for row in text.strings(ids).numpy():
            assert row.decode() == line


@pytest.mark.parametrize(
    "options", [{"nbest": 0}, {"nbest": 1}, {"nbest": 2.5}, {"alpha": -1}]
)
def test_draws_that_are_none_are_refused(trained, options):
    with pytest.raises(ValueError, match="`nbest` must be -1 or an integer"):
        trained.sampled(**options)


def test_a_text_that_draws_is_not_saved(trained, tmp_path):
    with pytest.raises(ValueError, match="is for training and not saved"):
        trained.sampled().save(tmp_path / "text.txt")


def test_what_is_saved_is_what_was_read(trained, tmp_path):
    path = tmp_path / "m.model"
    path.write_bytes(trained.splitter._content)
    text = Text(split=keras_attn.SentencePiece(path))
    other = Text.train(LINES[:2], size=300, kind="bpe")
    path.write_bytes(other.splitter._content)
    text.save(tmp_path / "text.txt")
    loaded = Text.load(tmp_path / "text.txt")
    np.testing.assert_array_equal(loaded.ids(LINES), text.ids(LINES))


def test_long_lines_are_learnt_from_too():
    text = Text.train([*LINES, "xyz " * 1100], size=80, byte_fallback=False)
    assert UNKNOWN not in text.ids(["xyz"]).numpy()


def test_short_lines_are_enough():
    text = Text.train(["ab", "abab"] * 3, size=8, byte_fallback=False)
    assert text.strings(text.ids(["ab"])).numpy() == [b"ab"]


def test_a_text_that_begins_within_a_word_has_no_mark(made):
    ids = [[4 + PIECES.index("##s"), 4 + PIECES.index("to")]]
    assert made["wordpiece"].strings(ids).numpy()[0] == b"s to"


def test_a_translator_takes_no_text_that_draws(trained):
    with pytest.raises(ValueError, match="`source_text` must split a string"):
        keras_attn.Translator(None, trained.sampled(), trained)


def test_only_subwords_of_sentencepiece_are_drawn(made):
    with pytest.raises(ValueError, match="Only subwords of SentencePiece"):
        made["bytes"].sampled()


# Mistakes


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"lines": "one line"}, "`lines` must be a list"),
        ({"lines": []}, "none has a character"),
        ({"lines": ["", ""]}, "none has a character"),
        ({"kind": "words"}, '`kind` must be "unigram" or "bpe"'),
        ({"size": 0}, "`size` must be a positive integer"),
        ({"size": 10}, "could not train"),
        ({"trainer": {"no_such": 1}}, "could not train"),
    ],
)
def test_training_that_cannot_be_says_why(arguments, message):
    with pytest.raises(ValueError, match=message):
        Text.train(**({"lines": LINES} | arguments))


def test_a_model_that_is_none_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="where there is none"):
        keras_attn.SentencePiece(tmp_path / "no.model")
    with pytest.raises(ValueError, match="3 bytes that are none"):
        keras_attn.SentencePiece(b"abc")


def test_without_the_package_its_extra_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "sentencepiece", None)
    with pytest.raises(ImportError, match=r"keras-attn\[subwords\]"):
        subwords.SentencePiece(b"")


def test_seeds_set_later_do_no_harm(trained):
    before = trained.ids(LINES).numpy()
    tf.random.set_seed(7)
    np.testing.assert_array_equal(trained.ids(LINES).numpy(), before)


SMALL = [b"to be or not to be", b"to see or not to see"] * 3


@pytest.fixture(scope="module")
def small():
    return subwords.train(SMALL, 40, "bpe", False, {})


def test_a_splitter_that_nothing_holds_works(small):
    found = keras_attn.SentencePiece(small).ids(tf.constant(["to be"]))
    text = Text(split=keras_attn.SentencePiece(small))
    assert found.to_list() == [text.ids(["to be"]).numpy()[0, :-1].tolist()]


def test_an_unknown_character_reads_unk(small):
    text = Text(split=keras_attn.SentencePiece(small))
    found = text.strings(text.ids(["to € be"])).numpy()
    assert found == [b"to <unk> be"]


def test_a_piece_may_be_a_line_break(small, tmp_path):
    model = subwords._proto(small)
    model.pieces.add(piece="\n", score=-100.0, type=4)
    content = model.SerializeToString()
    text = Text(split=keras_attn.SentencePiece(content))
    text.save(tmp_path / "text")
    again = Text.load(tmp_path / "text")
    assert again.tokens == text.tokens and "\n" in again.tokens
    assert again.lookup([again.tokens.index("\n")]).numpy() == [b"\n"]


@pytest.mark.parametrize("kind", ["char", "word"])
def test_models_that_cannot_draw_are_refused(kind):
    options = {"hard_vocab_limit": False}
    content = subwords.train(SMALL, 40, kind, False, options)
    with pytest.raises(ValueError, match="unigram and BPE"):
        Text(split=keras_attn.SentencePiece(content)).sampled()


def test_a_merge_is_dropped_with_a_probability(small):
    with pytest.raises(ValueError, match="from 0 to 1"):
        Text(split=keras_attn.SentencePiece(small)).sampled(alpha=2.0)


def test_the_size_counts_the_special_pieces_of_a_trainer():
    options = {"bos_id": -1, "eos_id": -1}
    lines = [x.decode() for x in SMALL]
    for trainer in (None, options, {"pad_id": 3}):
        text = Text.train(
            lines, size=24, kind="bpe", byte_fallback=False, trainer=trainer
        )
        assert text.size == 24


def test_a_network_may_number_the_pieces_itself(trained, tmp_path):
    model = trained.splitter.get_config()["model"]
    own = subwords.SentencePiece(model)
    names = ["</s>", "<unk>", *own.tokens[::-1][2:], "other", "<pad>"]
    special = keras_attn.SpecialTokens(
        pad=len(names) - 1, start=(len(names) - 1,), end=0, unknown=1
    )
    text = Text(
        split=subwords.SentencePiece(model, special=special, vocabulary=names)
    )
    assert text.tokens == names
    line = "to be or not"
    pieces = [x.decode() for x in trained.tokens_of([line]).to_list()[0]]
    expected = [names.index(x) if x in names else 1 for x in pieces]
    assert text.ids([line]).numpy().tolist() == [expected]
    # A piece that the model lacks is written as it is.
    ids = [*expected[:-1], names.index("other")]
    (written,) = text.strings([ids]).numpy()
    assert written.decode().endswith("other")
    text.save(tmp_path / "text.txt")
    again = Text.load(tmp_path / "text.txt")
    assert again.tokens == names
    assert again.ids([line]).numpy().tolist() == [expected]


def test_what_the_model_does_not_know_may_be_a_token():
    model = subwords.train(SMALL, 24, "unigram", False, {})
    names = ["</s>", "<unk>", "▁to", "мир", "ж", "<pad>"]
    special = keras_attn.SpecialTokens(pad=5, start=(5,), end=0, unknown=1)
    text = Text(
        split=subwords.SentencePiece(model, special=special, vocabulary=names)
    )
    # Neighbouring letters that the model does not know are one piece.
    for line, token in {"to мир": 3, "to ж": 4, "to мж": 1}.items():
        (*_, found, end) = text.ids([line]).numpy()[0].tolist()
        assert (found, end) == (token, 0), line


def test_a_vocabulary_needs_special_tokens(trained):
    model = trained.splitter.get_config()["model"]
    with pytest.raises(ValueError, match="needs `special`, with an unknown"):
        subwords.SentencePiece(model, vocabulary=["a", "b"])


def test_text_is_normalized_once():
    rule = {"normalization_rule_name": "nfkc"}
    with pytest.raises(ValueError, match="Leave out one"):
        Text.train(["to be"], size=20, trainer=rule, normalization="NFC")
