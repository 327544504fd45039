"""Texts of Keras's own layers: their ids, held against the layers."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import keras_attn
from keras_attn import Text

LINES = ["So it is, he said.", "It was NOT so!", "été ÉTÉ foo's"]
ASKED = [*LINES, "he unknown said was", "  ", "", "[so] a\\b it^is-he]x"]


def without_padding(rows):
    return [[x for x in row if x] for row in np.asarray(rows).tolist()]


@keras.saving.register_keras_serializable("tests")
def without_vowels(strings):
    return tf.strings.regex_replace(strings, "[aeiou]", "")


@keras.saving.register_keras_serializable("tests")
def at_commas(strings):
    return tf.strings.split(strings, ",")


@pytest.mark.sample_cases(2)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"standardize": "lower"},
        {"standardize": "strip_punctuation"},
        {"standardize": None},
        {"standardize": without_vowels},
        {"split": "character"},
        {"split": at_commas},
        {"max_tokens": 8, "output_sequence_length": 5},
        {"ragged": True},
    ],
    ids=lambda x: "-".join(getattr(y, "__name__", str(y)) for y in x.values()),
)
def test_ids_are_those_of_the_layer(options, tmp_path):
    layer = layers.TextVectorization(**options)
    layer.adapt(LINES)
    text = Text.from_text_vectorization(layer)
    expected = layer(tf.constant(ASKED))
    if options.get("ragged"):
        expected = expected.to_tensor()
    found = text.source_ids(ASKED)
    assert without_padding(found) == without_padding(expected)
    text.save(tmp_path / "text.txt")
    loaded = Text.load(tmp_path / "text.txt")
    np.testing.assert_array_equal(loaded.source_ids(ASKED), found)
    assert loaded.tokens == text.tokens
    assert text.max_length == options.get("output_sequence_length", 1000)


def test_start_and_end_are_words_of_the_vocabulary():
    layer = layers.TextVectorization(standardize="lower")
    layer.adapt(["[start] so it is [end]"])
    text = Text.from_text_vectorization(
        layer, start="[start]", end="[end]", wrap_source=True
    )
    words = layer.get_vocabulary()
    start, end = words.index("[start]"), words.index("[end]")
    ids = text.ids(["it is"], start=True).numpy()[0].tolist()
    assert ids == [start, words.index("it"), words.index("is"), end]
    np.testing.assert_array_equal(text.source_ids(["it is"]), [ids])
    assert text.strings([ids]).numpy().tolist() == [b"it is"]
    # Nobody writes a special token into a text.
    (found,) = text.ids(["[end] it"], end=False).numpy().tolist()
    assert found == [1, words.index("it")]


def test_a_source_without_an_end_is_no_target():
    layer = layers.TextVectorization()
    layer.adapt(LINES)
    text = Text.from_text_vectorization(layer)
    assert text.special.end == -1
    np.testing.assert_array_equal(text.ids(["so"]), text.source_ids(["so"]))
    assert text.tokens_of(["so it"]).to_list() == [[b"so", b"it"]]
    source, target = (keras.Input((None,), dtype="int32") for _ in "12")
    model = keras.Model([source, target], layers.Embedding(9, 9)(target))
    with pytest.raises(ValueError, match="target_text without an end token"):
        keras_attn.Translator(model, text, text)


def test_characters_of_a_string_lookup(tmp_path):
    layer = layers.StringLookup(vocabulary=list("^$abc"), mask_token="")
    text = Text.from_string_lookup(layer, "character", start="^", end="$")
    assert text.tokens == ["<pad>", "<unk>", "<s>", "</s>", "a", "b", "c"]
    ids = text.ids(["abz", "^a"]).numpy().tolist()
    assert ids == [[4, 5, 1, 3], [1, 4, 3, 0]]
    assert text.strings(ids[:1]).numpy().tolist() == [b"ab<unk>"]
    text.save(tmp_path / "text.txt")
    loaded = Text.load(tmp_path / "text.txt")
    np.testing.assert_array_equal(loaded.ids(["abz", "^a"]), ids)


def test_a_lookup_without_unknown_tokens_leaves_them_out():
    layer = layers.StringLookup(
        vocabulary=list("ab"), mask_token="", num_oov_indices=0
    )
    text = Text.from_string_lookup(layer, "character")
    assert without_padding(text.source_ids(["azb"])) == [[1, 2]]
    assert text.uncut_ids(["azb", "zz"]).to_list() == [[1, -1, 2], [-1, -1]]
    assert text.pieces(["azb"]).to_list() == [[b"a", b"b"]]


def tokenizer(words, **options):
    """What `to_json()` of Keras 2 returned, a string."""
    config = {
        "num_words": None,
        "filters": '!"#$%&()*+,-./:;<=>?@[\\]^_`{|}~\t\n',
        "lower": True,
        "split": " ",
        "char_level": False,
        "oov_token": None,
        "document_count": 3,
        "word_counts": "{}",
        "word_docs": "{}",
        "index_docs": "{}",
        "index_word": "{}",
        "word_index": json.dumps({x: i for i, x in enumerate(words, 1)}),
    }
    return json.dumps({"class_name": "Tokenizer", "config": config | options})


def sequences(content, lines):
    """`texts_to_sequences` of Keras 2.15, in plain Python."""
    config = json.loads(content)["config"]
    index = json.loads(config["word_index"])
    unknown, most = index.get(config["oov_token"]), config["num_words"]
    for line in lines:
        line = line.lower() if config["lower"] else line
        if config["char_level"]:
            pieces = list(line)
        else:
            changed = {x: config["split"] for x in config["filters"]}
            line = line.translate(str.maketrans(changed))
            pieces = [x for x in line.split(config["split"]) if x]
        ids = [index.get(x) for x in pieces]
        ids = [
            i if i is not None and not (most and i >= most) else unknown
            for i in ids
        ]
        yield [i for i in ids if i is not None]


WORDS = ["so", "it", "is", "he", "said", "été", "was", "not", "foo's", "foo"]


@pytest.mark.full
@pytest.mark.sample_cases(2)
@pytest.mark.parametrize(
    "content",
    [
        tokenizer(WORDS),
        tokenizer(["OOV", *WORDS], oov_token="OOV"),
        tokenizer(["OOV", *WORDS], oov_token="OOV", num_words=6),
        tokenizer(WORDS, num_words=6),
        tokenizer(WORDS, lower=False, filters=",."),
        tokenizer("abcdefgh isé", char_level=True),
        tokenizer([], word_index=json.dumps({"<pad>": 0, "so": 1, "it": 2})),
        tokenizer([], word_index=json.dumps({"so": 1, "it": 5})),
        tokenizer(["OOV", *WORDS], oov_token="OOV", num_words=1),
    ],
    ids=[
        *("plain", "oov", "oov and most", "most", "cased", "characters"),
        *("named padding", "gaps", "oov alone"),
    ],
)
def test_ids_are_those_of_the_old_tokenizer(content, tmp_path):
    text = Text.from_tokenizer(content)
    found = without_padding(text.source_ids(ASKED))
    assert found == list(sequences(content, ASKED))
    text.save(tmp_path / "text.txt")
    loaded = Text.load(tmp_path / "text.txt")
    assert without_padding(loaded.source_ids(ASKED)) == found


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Text.from_text_vectorization(
                layers.TextVectorization(output_mode="count", vocabulary=["a"])
            ),
            "output_mode='count'",
        ),
        (
            lambda: Text.from_text_vectorization(
                layers.TextVectorization(ngrams=2, vocabulary=["a"])
            ),
            "no `ngrams`",
        ),
        (lambda: Text.from_text_vectorization(3), "needs a `keras.layers.Text"),
        (
            lambda: Text.from_text_vectorization(
                layers.TextVectorization(vocabulary=["start"]), start="[start]"
            ),
            "strips `\\[`",
        ),
        (
            lambda: Text.from_text_vectorization(
                layers.TextVectorization(vocabulary=["a"]), wrap_source=True
            ),
            "both are needed",
        ),
        (
            lambda: Text.from_string_lookup(
                layers.StringLookup(vocabulary=["a"]), "character"
            ),
            "mask_token=None",
        ),
        (
            lambda: Text.from_string_lookup(
                layers.StringLookup(
                    vocabulary=["a"], mask_token="", num_oov_indices=2
                ),
                "character",
            ),
            "num_oov_indices=2",
        ),
        (
            lambda: Text.from_string_lookup(
                layers.StringLookup(vocabulary=["a"], mask_token=""), "words"
            ),
            '"whitespace", "character"',
        ),
        (lambda: Text.from_tokenizer("{}"), "is not opened"),
        (lambda: Text.from_tokenizer(b"\x80\x04"), "is not opened"),
    ],
)
def test_what_does_not_fit_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_function_that_is_not_known_is_not_run(tmp_path):
    layer = layers.TextVectorization(standardize=without_vowels)
    layer.adapt(LINES)
    Text.from_text_vectorization(layer).save(tmp_path / "text.txt")
    options = tmp_path / "text.txt.json"
    stored = json.loads(options.read_text())
    function = stored["split"]["config"]["standardize"]
    function.update(module="os", config="system", registered_name="system")
    options.write_text(json.dumps(stored))
    with pytest.raises(ValueError, match="does not know here"):
        Text.load(tmp_path / "text.txt")
