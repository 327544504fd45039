"""`Spellings`: the ids of phrases where they may stand in a text."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from support.exports import as_bytes
from support.exports import own_options
from support.lazily import ask

import keras_attn
from keras_attn.decoding.phrases.matcher import ABSENT
from keras_attn.decoding.phrases.spellings import Spellings
from keras_attn.decoding.phrases.spellings import phrases_in

LINES = [
    "the cat sat on the mat",
    "a new cat or an old hat",
    "carte mère et carte graphique",
    "on a mat, the hat; the cat.",
    "日本語を話す人",
    "人は日本語を読む",
] * 3


def byte_pairs(add_space=False):
    letters = keras_attn.text.byte_pair.BYTES
    merges = ["c a", "ca t", "Ġ c", "Ġ ca", "Ġca t", "t h", "th e", "Ġ the"]
    tokens = [*letters, "</s>", "<pad>", *(x.replace(" ", "") for x in merges)]
    special = keras_attn.SpecialTokens(
        pad=257, start=(257,), end=256, unknown=-1
    )
    splitter = keras_attn.BytePair(
        {x: i for i, x in enumerate(tokens)}, merges, special
    )
    return keras_attn.Text(split=splitter, normalization=None)


def pieces(kind):
    words = ["the", "cat", "##s", "hat", "mother", "##board"]
    return keras_attn.WordPiece(words) if kind == "wordpiece" else None


TEXTS = {
    "characters": lambda: keras_attn.Text.from_lines(LINES, "characters"),
    "whitespace": lambda: keras_attn.Text.from_lines(LINES, "whitespace"),
    "unigram": lambda: keras_attn.Text.train(LINES, size=330),
    "bpe": lambda: keras_attn.Text.train(LINES, size=330, kind="bpe"),
    "byte pairs": byte_pairs,
    "words": lambda: keras_attn.Text(split=pieces("wordpiece")),
}


@pytest.fixture(scope="module")
def texts():
    return {name: make() for name, make in TEXTS.items()}


def spelled(text, phrase):
    """Returns where a phrase may stand, with its ids there."""
    made = Spellings(text, 100)
    (rows,) = made(tf.constant([phrase])).numpy().tolist()
    assert len(rows) == made.count
    return made.first, [[x for x in row if x != ABSENT] for row in rows]


def holds(ids, phrase):
    places = range(len(ids) - len(phrase) + 1)
    return any(ids[i : i + len(phrase)] == phrase for i in places)


@pytest.mark.sample_cases(5)
@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("phrase", ["cat", "the cat", "the"])
def test_a_phrase_is_spelled_as_texts_with_it_are_split(texts, name, phrase):
    text = texts[name]
    first, rows = spelled(text, phrase)
    for line in (phrase, f"{phrase} hat", f"hat {phrase}", f"the {phrase} hat"):
        (ids,) = text.uncut_ids([line]).to_list()
        at_first = [x for x in rows[:1] if first and ids[: len(x)] == x]
        anywhere = [x for x in rows[first:] if x and holds(ids, x)]
        assert at_first or anywhere, (line, rows, ids)


def test_only_tokens_with_spaces_have_a_spelling_for_the_beginning(texts):
    for name, text in texts.items():
        assert Spellings(text, 100).first == (name == "byte pairs"), name


def test_a_phrase_does_not_begin_within_a_word(texts):
    for name in ("unigram", "bpe", "byte pairs", "words"):
        text = texts[name]
        first, rows = spelled(text, "cat")
        (ids,) = text.uncut_ids(["hat concat"]).to_list()
        assert not any(holds(ids, x) for x in rows[first:] if x), name


@pytest.mark.parametrize("name", ["unigram", "bpe"])
def test_a_script_without_spaces_has_phrases_after_letters(texts, name):
    text = texts[name]
    _, rows = spelled(text, "日本語")
    (before,) = text.uncut_ids(["人は"]).to_list()
    (written,) = text.strings([before + rows[-1]]).numpy()
    assert written.decode() == "人は日本語"
    (written,) = text.strings([rows[0]]).numpy()
    assert written.decode() == "日本語"
    _, rows = spelled(text, "cat")
    assert not rows[-1]  # none after a letter


def test_unknown_tokens_are_known_as_such(texts):
    for name, phrase in (("characters", "cat!"), ("whitespace", "cat dog")):
        made = Spellings(texts[name], 100)
        ids = made(tf.constant(["cat", phrase]))
        assert made.are_known(ids).numpy().tolist() == [True, False]


def test_rows_of_phrases_are_padded(texts):
    made = Spellings(texts["unigram"], 100)
    lines = tf.constant(["cat\nthe mat", "", " \n hat\n"])
    phrases = phrases_in(lines)
    assert phrases.to_list() == [[b"cat", b"the mat"], [], [b"hat"]]
    ids = made.of_rows(phrases).numpy()
    assert ids.shape[:3] == (3, 2, made.count)
    assert (ids[1] == ABSENT).all() and (ids[2, 1] == ABSENT).all()
    (alone,) = made(tf.constant(["hat"])).numpy()
    assert (ids[2, 0, :, : alone.shape[1]] == alone).all()
    assert made.of_rows(phrases_in(tf.constant([""]))).shape[:2] == (1, 0)


def test_phrases_of_a_row_differ():
    lines = tf.constant(["a b\na  b\n a b ", "b\na\nb\na", "a"])
    expected = [[b"a b"], [b"b", b"a"], [b"a"]]
    assert phrases_in(lines).to_list() == expected


def test_ids_are_as_many_as_an_output_can_have(texts):
    made = Spellings(texts["whitespace"], 4)
    words = texts["whitespace"].tokens[4:]
    lines = ["\n".join(f"{x} {y}" for x in words[:5] for y in words[:5])]
    phrases = phrases_in(tf.constant([*lines, "cat", ""]))
    assert phrases.row_lengths().numpy().tolist() == [25, 1, 0]
    fitting = made.those_that_fit(phrases)
    assert fitting.row_lengths().numpy().tolist() == [4, 1, 0]
    assert made.lengths(phrases).to_list()[1:] == [[1], []]
    long = phrases_in(tf.constant(["cat " * 1000 + "\ncat"]))
    assert made(long.flat_values).shape[-1] <= 6
    assert made.those_that_may_come(long).to_list() == [[b"cat"]]


@pytest.fixture(scope="module")
def without_unknown():
    """A translator whose texts leave out what they do not know."""
    words = ["<s>", "</s>", "a", "dog", "cat", "runs", "sees", "the"]
    lookup = keras.layers.StringLookup(
        vocabulary=words, mask_token="", num_oov_indices=0
    )
    text = keras_attn.Text.from_string_lookup(
        lookup, "whitespace", start="<s>", end="</s>"
    )
    source, target = (keras.Input((None,), dtype="int32") for _ in range(2))
    memory = keras.layers.Embedding(text.size, 4, mask_zero=True)(source)
    decoder = keras_attn.AttentionDecoder(
        keras.layers.GRUCell(4), keras_attn.BahdanauAttention(4)
    )
    hidden = decoder(keras.layers.Embedding(text.size, 4)(target), memory)
    model = keras.Model([source, target], keras.layers.Dense(text.size)(hidden))
    search = keras_attn.BeamSearch(3, max_length=6)
    return keras_attn.Translator(model, text, text, search)


@pytest.mark.parametrize(
    "request_",
    [
        {"terms": [["big cat"]]},
        {"avoid": [["hot dog"]]},
        {"prefixes": ["a big"]},
    ],
    ids=lambda x: next(iter(x)),
)
def test_what_a_text_would_leave_out_is_refused(without_unknown, request_):
    with pytest.raises(ValueError, match="that the target text knows"):
        without_unknown(["a cat"], **request_)
    (found,) = without_unknown(["a big cat"])
    assert found.unknown == 1
    assert without_unknown.score(["a"], ["the big dog"]).unknown == [1]


def test_rules_and_glossaries_of_left_out_words_are_refused(without_unknown):
    for rule in keras_attn.Without(["hot dog"]), keras_attn.Among(["hot dog"]):
        search = keras_attn.BeamSearch(3, max_length=6, rules=[rule])
        with pytest.raises(ValueError, match="hot dog"):
            without_unknown.replace(search=search)
    with pytest.raises(ValueError, match="chubby cat"):
        without_unknown.replace(
            glossary=keras_attn.Glossary({"cat": "chubby cat"})
        )


@pytest.mark.full
def test_an_export_refuses_what_its_text_would_leave_out(
    without_unknown, tmp_path
):
    path = without_unknown.export(tmp_path, signatures=["terms"])
    given = {
        **own_options(without_unknown, ["a cat"] * 4),
        "max_length": np.full(4, 6, "int32"),
        "prefix": as_bytes(["", "a big", "", ""]),
        "terms": as_bytes(["", "", "big cat", ""]),
        "avoid": as_bytes(["", "", "", "hot dog"]),
    }
    (answer,) = ask([(path, "terms", given, "c")])
    errors = [x.decode() for x in answer["error"]]
    assert [bool(x) for x in errors] == [False, True, True, True]
