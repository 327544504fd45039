"""Ways of splitting of a user's own, from outside the package.

Each is tried as a source's and as a target's: read, decoded, streamed, saved,
loaded, and exported through TensorFlow Serving's own loader.
"""

import json
import pathlib
import pickle
import shutil
import subprocess
import sys

import keras
import numpy as np
import pytest
import splitters
import tensorflow as tf
import tensorflow_text
from keras import layers
from splitters import LINES
from splitters import NAMES

import keras_attn
from keras_attn import Splitter
from keras_attn import Text
from keras_attn import Translator
from keras_attn.text import END
from keras_attn.text import SPECIAL_TOKENS
from keras_attn.text import UNKNOWN
from keras_attn.text import Characters
from keras_attn.text import Whitespace
from keras_attn.text.trial import Trial


@pytest.fixture(scope="session")
def texts(tmp_path_factory):
    return {
        name: splitters.make(name, tmp_path_factory.mktemp(name))
        for name in NAMES
    }


def translator(source_text, target_text, seed=3, **options):
    """A small model whose texts vary."""
    source = keras.Input((None,), dtype="int32", name="source")
    target = keras.Input((None,), dtype="int32", name="target")
    hidden = keras_attn.AttentionDecoder(
        layers.GRUCell(6), keras_attn.BahdanauAttention(6)
    )(
        layers.Embedding(target_text.size, 5, mask_zero=True)(target),
        layers.Embedding(source_text.size, 5, mask_zero=True)(source),
    )
    model = keras.Model(
        [source, target], layers.Dense(target_text.size)(hidden)
    )
    random = np.random.default_rng(seed)
    model.set_weights(
        [random.normal(scale=1.2, size=x.shape) for x in model.get_weights()]
    )
    options.setdefault("search", keras_attn.GreedySearch(max_length=9))
    return Translator(model, source_text, target_text, **options)


@pytest.fixture(scope="session")
def translators(texts):
    """Translators with each splitter in the source and in the target text."""
    return {name: translator(texts[name], texts[name]) for name in NAMES}


def test_pieces_of_one_s_own_are_counted_looked_up_and_joined(texts):
    text = texts["marks"]
    assert text.tokens[4:8] == ["be", "!", ",", "question"]
    ids = text.ids(["hello,world!", "to be"])
    assert text.strings(ids).numpy().tolist() == [b"hello, world!", b"to be"]
    assert isinstance(text.split, splitters.Marks)
    assert text.split is text.splitter


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


def test_sentencepiece_says_what_its_own_processor_says(texts):
    import sentencepiece

    text = texts["sentencepiece"]
    own = sentencepiece.SentencePieceProcessor(model_file=text.split.model)
    for line in LINES:
        ids = [UNKNOWN if x == 0 else x + 1 for x in own.encode(line)]
        assert text.ids([line]).numpy()[0].tolist() == [*ids, END]
        pieces = own.encode(line, out_type=str)
        found = text.pieces([line]).to_list()[0]
        assert [x.decode() for x in found] == pieces


def test_ids_that_stand_for_nothing_are_unknown():
    class Odd(splitters.Bytes):
        def ids(self, strings):
            ids = super().ids(strings)
            return tf.where(ids == 4 + ord("~"), 1, ids)

    text = Text(split=Odd())
    assert text.ids(["a~"]).numpy().tolist() == [[4 + 0x61, UNKNOWN, END]]


@pytest.mark.parametrize("name", NAMES)
def test_pairs_take_any_text(texts, name):
    data = keras_attn.pairs(LINES, LINES, texts[name], texts[name], buckets=1)
    (source, target_in), target_out = next(iter(data))
    assert source.shape == target_out.shape == target_in.shape


@pytest.mark.parametrize("name", NAMES)
def test_a_stream_says_what_a_call_does(translators, name):
    result = translators[name](LINES)
    assert len(set(result.text)) > 1
    for line, row in zip(LINES, result, strict=True):
        tokens = list(translators[name].stream(line))
        assert [x.token for x in tokens] == row.tokens
        assert "".join(x.text for x in tokens) == row.text


def test_a_stream_of_bytes_waits_for_whole_characters():
    text = Text(split=splitters.Bytes())
    growing = keras_attn.text.Growing(text, by_tokens=False)
    told = []
    for byte in "aé日".encode() + b"\xe6":
        told.append(growing.add(4 + byte, f"<0x{byte:02X}>", last=False))
    assert told == ["a", "", "é", "", "", "日", ""]
    assert growing.end() == "\ufffd"


def test_a_stream_of_text_that_changes_what_came_is_refused():
    class Closed(Splitter):
        """Joins words, with a full stop at the very end."""

        def split(self, strings):
            strings = tf.strings.regex_replace(strings, "[.]$", "")
            return tf.strings.split(strings)

        def join(self, pieces):
            return tf.strings.reduce_join(pieces, axis=-1, separator=" ") + "."

    growing = keras_attn.text.Growing(Text(["a", "b"], Closed()), False)
    growing.add(4, "a", last=False)
    with pytest.raises(ValueError, match="may not change.*'a.'.*'a b.'"):
        growing.add(5, "b", last=False)


@pytest.mark.parametrize("name", NAMES)
def test_a_text_is_saved_and_loaded_elsewhere(texts, name, tmp_path):
    text = texts[name]
    text.save(tmp_path / "a" / "text.txt")
    shutil.move(tmp_path / "a", tmp_path / "b")
    loaded = Text.load(tmp_path / "b" / "text.txt", splitters.CUSTOM)
    assert type(loaded.split) is type(text.split)
    assert loaded.tokens == text.tokens and loaded.counts == text.counts
    np.testing.assert_array_equal(loaded.ids(LINES), text.ids(LINES))
    for argument in text.split.assets:
        path = loaded.split.get_config()[argument]
        assert pathlib.Path(path).parent == tmp_path / "b"
    loaded.save(tmp_path / "b" / "text.txt")  # in its own place
    loaded.save(tmp_path / "c" / "text.txt")
    shutil.rmtree(tmp_path / "b")
    loaded = Text.load(tmp_path / "c" / "text.txt", splitters.CUSTOM)
    np.testing.assert_array_equal(loaded.ids(LINES), text.ids(LINES))


def test_what_has_a_short_name_is_stored_as_ever(tmp_path):
    for split, part in (("characters", Characters), ("whitespace", Whitespace)):
        for given in (split, part()):
            text = Text("ab", given)
            assert text.split == split
            text.save(tmp_path / "text.txt")
            options = json.loads((tmp_path / "text.txt.json").read_text())
            assert options == {
                "split": split,
                "lowercase": False,
                "max_length": 1000,
                "too_long": "truncate",
                "normalization": "NFC",
            }
            assert Text.load(tmp_path / "text.txt").split == split


def test_a_class_that_keras_does_not_know_is_asked_for(texts, tmp_path):
    texts["bytes"].save(tmp_path / "text.txt")
    with pytest.raises(ValueError, match=r"custom_objects=\{'Bytes': Bytes\}"):
        Text.load(tmp_path / "text.txt")


def test_files_of_a_part_that_are_missing_are_named(texts, tmp_path):
    texts["listed"].save(tmp_path / "text.txt")
    (tmp_path / "text.txt.split.file").unlink()
    with pytest.raises(FileNotFoundError, match=r"text\.txt\.split\.file"):
        Text.load(tmp_path / "text.txt")


def test_a_vocabulary_that_is_not_the_part_s_is_refused(texts, tmp_path):
    texts["listed"].save(tmp_path / "text.txt")
    with open(tmp_path / "text.txt.split.file", "a") as file:
        file.write("another\n")
    with pytest.raises(ValueError, match="10 tokens in the file and 11 in the"):
        Text.load(tmp_path / "text.txt")


@pytest.fixture(scope="module")
def answers(translators, tmp_path_factory):
    """Answers of TensorFlow Serving's loader, where none of ours is."""
    base, requests, names = tmp_path_factory.mktemp("exports"), [], []
    inputs = {"text": np.array([x.encode() for x in LINES], object)}
    for name, made in translators.items():
        made.export(base / "first" / name, signatures=["score"])
    shutil.move(base / "first", base / "moved")  # so all is within
    for name in translators:
        path = str(base / "moved" / name / "1")
        target = {"target": inputs["text"]}
        for signature, given in (
            ("serving_default", inputs),
            ("align", inputs),
            ("score", inputs | target),
        ):
            requests.append((path, signature, given, "c"))
            names.append((name, signature))
    (base / "asked").write_bytes(pickle.dumps(requests))
    program = pathlib.Path(__file__).with_name("c_loader.py")
    subprocess.run(
        [sys.executable, program, base / "asked", base / "answered"],
        check=True,
    )
    found = pickle.loads((base / "answered").read_bytes())
    return dict(zip(names, found, strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_an_export_answers_as_the_translator_does(translators, answers, name):
    result = translators[name](LINES)
    answer = answers[name, "serving_default"]
    assert [x.decode("utf-8", "replace") for x in answer["text"]] == result.text
    np.testing.assert_allclose(answer["score"], result.scores, atol=1e-5)
    aligned = answers[name, "align"]
    for i, row in enumerate(result):
        tokens = aligned["source_tokens"][i, : aligned["source_length"][i]]
        assert [x.decode() for x in tokens] == row.source_tokens
    scores = translators[name].score(LINES, LINES).scores
    np.testing.assert_allclose(answers[name, "score"]["score"], scores, 1e-4)


@pytest.mark.parametrize(
    "name",
    [
        NAMES[0],
        *(pytest.param(name, marks=pytest.mark.full) for name in NAMES[1:]),
    ],
)
def test_a_translator_is_saved_and_loaded(translators, name, tmp_path):
    made = translators[name]
    made.save(tmp_path / "saved")
    shutil.move(tmp_path / "saved", tmp_path / "moved")
    loaded = Translator.load(tmp_path / "moved", splitters.CUSTOM)
    assert loaded(LINES).text == made(LINES).text
    path = loaded.export(tmp_path / "export")
    assert (path / "saved_model.pb").exists()


def test_files_of_parts_that_are_gone_leave_the_directory(
    translators, tmp_path
):
    translators["listed"].save(tmp_path)
    assert (tmp_path / "source.txt.split.file").exists()
    translators["marks"].save(tmp_path)
    assert not list(tmp_path.glob("*.split.*"))
    assert Translator.load(tmp_path)(LINES).text


def test_a_prefix_begins_a_text_of_any_part(translators):
    for name, prefix in (("bytes", "日"), ("listed", "to be")):
        result = translators[name](["hello"], prefixes=[prefix])
        assert result.text[0].startswith(prefix)
    with pytest.raises(ValueError, match="tokens that the target text knows"):
        translators["listed"](["hello"], prefixes=["nowhere"])


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


class Broken(Splitter):
    """Splits at white space, until a test breaks it."""

    def split(self, strings):
        return tf.strings.split(strings)

    def join(self, pieces):
        return tf.strings.reduce_join(pieces, axis=-1, separator=" ")


class NoJoin(Splitter):
    def split(self, strings):
        return tf.strings.split(strings)


class NoSplit(Splitter):
    separator = " "


class Dense(Broken):
    def split(self, strings):
        return tf.strings.split(strings).to_tensor()


class Empty(Broken):
    separator = " "

    def split(self, strings):
        return tf.strings.split(strings, " ")


class Lossy(Broken):
    def join(self, pieces):
        return tf.strings.reduce_join(pieces, axis=-1)


class OneString(Broken):
    def join(self, pieces):
        return tf.strings.reduce_join(super().join(pieces))


class InPython(Broken):
    def split(self, strings):
        strings = tf.numpy_function(lambda x: x, [strings], tf.string)
        return tf.strings.split(tf.ensure_shape(strings, [None]))


class Eager(Broken):
    def split(self, strings):
        return tf.ragged.constant([x.split() for x in strings.numpy()])


class Neighbours(Broken):
    def split(self, strings):
        return tf.strings.split(
            strings + tf.strings.as_string(tf.size(strings))
        )


class Untracked(Broken):
    tables = []  # of the class, not of the part

    def __init__(self):
        super().__init__()
        initializer = tf.lookup.KeyValueTensorInitializer(["a"], ["b"])
        Untracked.tables.append(tf.lookup.StaticHashTable(initializer, ""))

    def split(self, strings):
        known = Untracked.tables[-1].lookup(strings)
        return tf.strings.split(tf.where(known == "b", strings, strings))


class RawBytes(Splitter):
    separator = ""

    def split(self, strings):
        return tf.strings.bytes_split(strings)


class NoConfig(Broken):
    def __init__(self, marks):
        super().__init__()


class NoSuchAsset(Broken):
    assets = ("file",)


class GoneAsset(Broken):
    assets = ("file",)

    def __init__(self, file="/nowhere/file"):
        super().__init__()
        self.file = file

    def get_config(self):
        return {"file": self.file}


class NoTokens(Splitter):
    ids = splitters.Bytes.ids
    strings = splitters.Bytes.strings


class NoStrings(Splitter):
    tokens = ["a"]
    ids = splitters.Bytes.ids


class FromZero(splitters.Bytes):
    def ids(self, strings):
        return super().ids(strings) % 8


class Backwards(splitters.Bytes):
    def strings(self, ids):
        return super().strings(ids[:, ::-1])


class Twice(splitters.Bytes):
    def __init__(self):
        super().__init__()
        self.tokens = [*self.tokens, self.tokens[0]]


class FewPieces(splitters.Bytes):
    def split(self, strings):
        return tf.strings.unicode_split(strings, "UTF-8")


class NoBatch(splitters.Bytes):
    def ids(self, strings):
        with tf.control_dependencies(
            [tf.debugging.assert_positive(tf.size(strings))]
        ):
            return super().ids(tf.identity(strings))


@pytest.mark.parametrize(
    "part, message",
    [
        (NoJoin, r"writes `join\(\)`, or sets `separator`. Received: NoJoin"),
        (NoSplit, r"writes `split\(\)`. Received: NoSplit"),
        (Dense, r"`Dense.split` must return a ragged tensor of strings"),
        (Empty, "`Empty.split` may return no empty piece. .* ''"),
        (Lossy, "`Lossy.join` must be the inverse of `split`.*'tobeornotto"),
        (OneString, r"`OneString.join` must return strings `\(batch,\)`"),
        (InPython, "`InPython.split` must run without Python.*PyFunc"),
        (Eager, "`Eager.split` must run in a graph"),
        (Neighbours, "must split a string the same way in any batch"),
        (Untracked, "tables, variables and tokenizers .* must be attributes"),
        (RawBytes, "must return pieces of valid UTF-8"),
        (NoSuchAsset, "`NoSuchAsset.assets` must name arguments that `get_co"),
        (GoneAsset, "must return the path of a file.*: file='/nowhere"),
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_a_part_that_breaks_a_rule_is_refused(part, message):
    with pytest.raises(ValueError, match=message):
        Text(["to", "be"], split=part())
    with pytest.raises(ValueError, match=message):
        Text.from_lines(["to be"], split=part())


@pytest.mark.parametrize(
    "part, message",
    [
        (NoTokens, "needs `tokens` too. Received: NoTokens without `tokens`"),
        (NoStrings, r"with `tokens` writes `strings\(\)`. Received: NoStrings"),
        (FromZero, "must return ids from 4 to 259.* adds 0, 1 and 2: padd"),
        (Backwards, "`Backwards.strings` must be the inverse of `ids`"),
        (Twice, r"must be distinct.*\['<0x00>'\]"),
        (FewPieces, "must return one piece for each id"),
        (NoBatch, "an empty batch too"),
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_a_part_with_bad_ids_of_its_own_is_refused(part, message):
    with pytest.raises(ValueError, match=message):
        Text(split=part())


def test_a_part_that_could_not_be_made_again_is_refused():
    with pytest.raises(ValueError, match="must return the arguments of the"):
        Text(["to"], split=NoConfig("."))


def test_a_part_that_would_be_another_when_loaded_is_not_saved(tmp_path):
    class Forgetful(splitters.Marks):
        def get_config(self):
            return {}

    text = Text(["a"], Forgetful("or"))
    with pytest.raises(ValueError, match="splits diff.*`Forgetful.get_c"):
        text.save(tmp_path / "text.txt")
    assert not list(tmp_path.iterdir())


def test_data_that_does_not_come_back_is_named():
    class Hyphens(splitters.Marks):
        def join(self, pieces):
            strings = super().join(pieces)
            return tf.strings.regex_replace(strings, "-", "")

    assert Text(["a"], Hyphens()).size == 5
    with pytest.raises(ValueError, match="inverse.*'well-known'"):
        Text.from_lines(["a b", "so well-known"], Hyphens())


def test_a_vocabulary_goes_with_pieces_and_not_with_own_ids():
    with pytest.raises(ValueError, match="256 tokens of its own"):
        Text(["a"], split=splitters.Bytes())
    with pytest.raises(ValueError, match=r"Call `Text\(split=...\)`, without"):
        Text.from_lines(["a"], split=splitters.Bytes())
    with pytest.raises(ValueError, match="`vocabulary` must be a list"):
        Text(split="characters")
    with pytest.raises(ValueError, match=r"an instance, `split=Bytes\(...\)`"):
        Text(split=splitters.Bytes)


def test_tokens_that_depend_on_their_neighbours_may_be_said_to():
    class Halves(Splitter):
        """Splits a word in two; its second piece begins with ##."""

        def split(self, strings):
            strings = tf.strings.regex_replace(
                strings, r"(\w)(\w+)", r"\1 ##\2"
            )
            return tensorflow_text.WhitespaceTokenizer().tokenize(strings)

        def join(self, pieces):
            strings = tf.strings.reduce_join(pieces, axis=-1, separator=" ")
            return tf.strings.regex_replace(strings, " ##", "")

    with pytest.raises(ValueError, match="set `splits_alone = False` in"):
        Text(["t", "##oo"], Halves())
    Halves.splits_alone = False
    text = Text.from_lines(["too bee"], Halves())
    assert set(text.tokens[4:]) == {"t", "##oo", "b", "##ee"}
    assert text.strings(text.ids(["bee too"])).numpy() == [b"bee too"]


@pytest.mark.parametrize("part", [Characters, Whitespace])
def test_the_built_in_parts_keep_the_rules_too(part):
    trial = Trial(part(), Text([], part())._normalise)
    trial.run()
    trial.read(LINES)
    assert SPECIAL_TOKENS[UNKNOWN] == "<unk>"
