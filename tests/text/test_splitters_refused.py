"""Splitters that break a rule are refused, and the rule is named."""

import pytest
import tensorflow as tf
import tensorflow_text
from support import splitters
from support.splitters import LINES

import keras_attn
from keras_attn import Splitter
from keras_attn import Text
from keras_attn.text.built_in import Characters
from keras_attn.text.built_in import Whitespace
from keras_attn.text.special_tokens import SPECIAL_TOKENS
from keras_attn.text.special_tokens import UNKNOWN
from keras_attn.text.splitter_trial import Trial


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


def test_a_stream_of_text_that_changes_what_came_is_refused():
    class Closed(Splitter):
        """Joins words, with a full stop at the very end."""

        def split(self, strings):
            strings = tf.strings.regex_replace(strings, "[.]$", "")
            return tf.strings.split(strings)

        def join(self, pieces):
            return tf.strings.reduce_join(pieces, axis=-1, separator=" ") + "."

    growing = keras_attn.text.incremental_detokenizer.IncrementalDetokenizer(
        Text(["a", "b"], Closed()), False
    )
    growing.add(4, "a", last=False)
    with pytest.raises(ValueError, match="may not change.*'a.'.*'a b.'"):
        growing.add(5, "b", last=False)


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
    trial = Trial(part(), Text([], part())._normalize)
    trial.run()
    trial.read(LINES)
    assert SPECIAL_TOKENS[UNKNOWN] == "<unk>"
