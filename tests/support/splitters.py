"""Texts with each kind of splitter, some as a user writes them.

The program that loads their exports, `c_loader.py`, does not import this.
"""

import json
import pathlib

import keras
import numpy as np
import tensorflow as tf
import tensorflow_text
import tokenizers
from keras import layers

import keras_attn


@keras.saving.register_keras_serializable("tests")
class Marks(keras_attn.Splitter):
    """Splits into words and marks; joins a mark to the word before it."""

    def __init__(self, marks=".,!?"):
        super().__init__()
        self.marks = marks

    def split(self, strings):
        return tensorflow_text.regex_split(
            strings, rf"\s|[{self.marks}]", rf"[{self.marks}]"
        )

    def join(self, pieces):
        strings = tf.strings.reduce_join(pieces, axis=-1, separator=" ")
        return tf.strings.regex_replace(strings, rf" ([{self.marks}])", r"\1")

    def get_config(self):
        return {"marks": self.marks}


class Bytes(keras_attn.Splitter):
    """Splits into UTF-8's bytes, none unknown. Not registered with Keras."""

    def __init__(self):
        super().__init__()
        self.tokens = [f"<0x{i:02X}>" for i in range(256)]

    def ids(self, strings):
        pieces = tf.strings.bytes_split(strings)
        values = tf.io.decode_raw(pieces.flat_values, tf.uint8)
        values = tf.reshape(values, [-1])
        return pieces.with_flat_values(4 + tf.cast(values, tf.int32))

    def strings(self, ids):
        known = [bytes([i]) for i in range(256)]
        written = tf.constant([b"", b"", b"", b"<unk>", *known])
        return tf.strings.reduce_join(
            ids.with_flat_values(tf.gather(written, ids.flat_values)), axis=-1
        )


@keras.saving.register_keras_serializable("tests")
class Listed(keras_attn.Splitter):
    """Splits into words and looks them up in a table that reads a file."""

    assets = ("file",)

    def __init__(self, file):
        super().__init__()
        self.file = str(file)
        self.tokens = pathlib.Path(file).read_text("utf-8").split("\n")[:-1]
        word, line = (
            tf.lookup.TextFileIndex.WHOLE_LINE,
            tf.lookup.TextFileIndex.LINE_NUMBER,
        )
        initializer = tf.lookup.TextFileInitializer
        self._to_line = tf.lookup.StaticHashTable(
            initializer(self.file, tf.string, word, tf.int64, line), -1
        )
        self._to_word = tf.lookup.StaticHashTable(
            initializer(self.file, tf.int64, line, tf.string, word), "<unk>"
        )

    def split(self, strings):
        return tf.strings.split(strings)

    def join(self, pieces):
        return tf.strings.reduce_join(pieces, axis=-1, separator=" ")

    def ids(self, strings):
        words = self.split(strings)
        # The table has -1 for a word that the file lacks; 3 is unknown.
        return words.with_flat_values(
            4 + self._to_line.lookup(words.flat_values)
        )

    def strings(self, ids):
        lines = tf.cast(ids.flat_values, tf.int64) - 4
        return self.join(ids.with_flat_values(self._to_word.lookup(lines)))

    def get_config(self):
        return {"file": self.file}


LINES = [
    "hello, world!",
    "",
    "to be or not to be, that is the question.",
    "été 日本語 🙂",
    "be  question?!",
]
_SIGNS = (
    "abc be to ",
    " \t\n\u00a0\u2028\u3000\x1c\x85",
    "'s'll.,!?-<>[]#@_▁Ġ￭",
    "0129٣½",
    "éßİǰñﬁ日本語ไทย",
    "🙂👩\u200d👩\ufeff\uffff\x00e\u0301",
)


def fuzz(count, seed=0):
    """Returns random lines of signs of all kinds, one empty and one long."""
    random = np.random.default_rng(seed)

    def line(length):
        kinds = random.integers(len(_SIGNS), size=length)
        return "".join(random.choice([*_SIGNS[x]]) for x in kinds)

    lines = [line(random.integers(1, 25)) for _ in range(count - 2)]
    return [*lines, "", "to be " * 400]


WORDS = "to be or not that is the question hello world".split()


def make(name, folder) -> keras_attn.Text:
    """A `Text` with one of them."""
    folder = pathlib.Path(folder)
    if name == "marks":
        return keras_attn.Text.from_lines(LINES, Marks())
    if name == "bytes":
        return keras_attn.Text(split=Bytes())
    if name == "listed":
        file = folder / "words.txt"
        file.write_text("".join(f"{x}\n" for x in WORDS), "utf-8")
        return keras_attn.Text(split=Listed(file))
    if name == "wordpiece":
        pieces = [*WORDS, *"abcdefgh,.!?", "##s", "##ing"]
        return keras_attn.Text(split=keras_attn.WordPiece(pieces))
    if name == "every byte":
        return keras_attn.Text(split=keras_attn.Bytes())
    lines = [*LINES, " ".join(WORDS)] * 20
    if name == "byte pairs":
        return keras_attn.Text(
            split=keras_attn.BytePair(*byte_pairs(lines, 300))
        )
    if name == "unigram":
        return keras_attn.Text.train(lines, size=310)
    return keras_attn.Text.train(
        lines, size=61, kind="bpe", byte_fallback=False
    )


def byte_pairs(lines, size, special=()):
    """Returns a vocabulary and merges as the library `tokenizers` finds."""
    tokenizer = byte_pair_tokenizer()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=list(special),
        initial_alphabet=sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(lines, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    return model["vocab"], [
        x if isinstance(x, str) else " ".join(x) for x in model["merges"]
    ]


def byte_pair_tokenizer(vocabulary=None, merges=()):
    """Returns the tokenizer of GPT-2, by the library `tokenizers`."""
    tokenizer = tokenizers.Tokenizer(
        tokenizers.models.BPE(
            vocab=vocabulary or {},
            merges=[tuple(x.split(" ")) for x in merges],
        )
    )
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(
        add_prefix_space=False, use_regex=True
    )
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    return tokenizer


def translator(source_text, target_text, seed=3, **options):
    """Returns a small translator whose texts vary."""
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
    return keras_attn.Translator(model, source_text, target_text, **options)


CUSTOM = {"Bytes": Bytes}
NAMES = [
    "marks",
    "bytes",
    "listed",
    "sentencepiece",
    "wordpiece",
    "unigram",
    "byte pairs",
    "every byte",
]
