"""Splitters as a user writes them, outside of the package.

The program that loads their exports, `c_loader.py`, does not import this.
"""

import pathlib

import keras
import numpy as np
import tensorflow as tf
import tensorflow_text
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
    return keras_attn.Text.train(
        [*LINES, " ".join(WORDS)] * 20,
        size=61,
        kind="bpe",
        byte_fallback=False,
    )


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
NAMES = ["marks", "bytes", "listed", "sentencepiece", "wordpiece"]
