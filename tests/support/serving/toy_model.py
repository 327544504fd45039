"""A small model with the parts of a real export, in plain TensorFlow.

It looks words up in a table read from an asset, splits text with a tokenizer
of tensorflow-text and counts down in a loop; its signatures bear the names and
shapes of a `keras_attn` export. To hold TensorFlow Serving itself to the
protocol tests, write it to a directory, serve that under the name `toy`, and
say where:

    python tests/support/serving/toy_model.py models/toy
    tensorflow_model_server --model_name=toy --model_base_path=$PWD/models/toy \
        --port=8500 --rest_api_port=8501
    KERAS_ATTN_SERVING_ADDRESS=localhost:8500 \
        KERAS_ATTN_SERVING_REST_ADDRESS=localhost:8501 pytest tests/serving
"""

import pathlib
import sys
import tempfile

import tensorflow as tf
import tensorflow_text as tf_text

NAME = "toy"
VERSION = 3
WORDS = {"hello": "bonjour", "world": "monde", "cat": "chat"}
UNKNOWN = "?"
BEST = 3  # entries of `nbest`
LENGTH = 6  # tokens of `align`
# The dtypes of `echo`, each an input and an output of its own.
DTYPES = (
    tf.float16,
    tf.bfloat16,
    tf.float32,
    tf.float64,
    tf.int8,
    tf.int16,
    tf.int32,
    tf.int64,
    tf.uint8,
    tf.uint16,
    tf.uint32,
    tf.uint64,
    tf.bool,
    tf.complex64,
    tf.complex128,
    tf.string,
)

# Those that JSON does not have; each is a signature that converts to it.
CASTS = (tf.float16, tf.bfloat16, tf.complex64)


class Toy(tf.Module):
    """Translates word by word; a text's score is minus half its words."""

    def __init__(self, vocabulary: str):
        super().__init__()
        self.weight = tf.Variable(-0.5)
        self.vocabulary = tf.saved_model.Asset(vocabulary)
        self.table = tf.lookup.StaticHashTable(
            tf.lookup.TextFileInitializer(
                self.vocabulary,
                tf.string,
                0,
                tf.string,
                1,
                delimiter="\t",
            ),
            default_value=UNKNOWN,
        )
        self.tokenizer = tf_text.WhitespaceTokenizer()

    def tokens(self, text):
        text = tf.ensure_shape(text, [None])  # a scalar would crash tf-text
        source = self.tokenizer.tokenize(text)
        return source, tf.ragged.map_flat_values(self.table.lookup, source)

    def score(self, tokens):
        return self.weight * tf.cast(tokens.row_lengths(), tf.float32)

    def default(self, text):
        _, tokens = self.tokens(text)
        return {
            "text": tf.strings.reduce_join(tokens, axis=1, separator=" "),
            "score": self.score(tokens),
        }

    def nbest(self, text):
        best = self.default(text)
        rank = tf.range(BEST, dtype=tf.float32)
        missing = rank > 0  # only one translation is known
        return {
            "texts": tf.where(missing, "", best["text"][:, None]),
            "scores": tf.where(
                missing, -float("inf"), best["score"][:, None] - rank
            ),
        }

    def align(self, text):
        source, tokens = self.tokens(text)
        dense = source.to_tensor()
        lengths = tf.cast(source.row_lengths(), tf.int32)
        eye = tf.eye(LENGTH, tf.shape(dense)[1], [tf.shape(dense)[0]])
        real = tf.sequence_mask(lengths, LENGTH, tf.float32)[:, :, None]
        return {
            "text": tf.strings.reduce_join(tokens, axis=1, separator=" "),
            "score": self.score(tokens),
            "source_tokens": dense,
            "source_length": lengths,
            "tokens": tokens.to_tensor(shape=[None, LENGTH]),
            "length": tf.minimum(lengths, LENGTH),
            "alignments": eye * real,
        }

    def add(self, ids, lengths):
        """Takes two inputs, one of a fixed width."""
        return {"sum": tf.reduce_sum(ids, axis=1) + lengths}

    def number(self, text):
        """Parses numbers; fails on other texts."""
        return {"number": tf.strings.to_number(text)}

    def slow(self, steps):
        """Counts to the first number, which may take minutes."""
        last = steps[0]
        count = tf.while_loop(
            lambda count: count < last,
            lambda count: [count + 1],
            [tf.constant(0, tf.int64)],
            parallel_iterations=1,
        )
        return {"count": tf.fill(tf.shape(steps), count[0])}

    def compiled(self, x):
        """Needs XLA, which TensorFlow Serving switches off."""
        return {"y": tf.function(lambda x: x + 1, jit_compile=True)(x)}

    def raw(self, text):
        """Returns texts twice: REST sends the second as bytes, in base64."""
        return {"text": tf.identity(text), "text_bytes": tf.identity(text)}

    def cast_to(self, dtype):
        return lambda x: {"y": tf.cast(x, dtype)}

    def echo(self, **tensors):
        """Returns what it is given."""
        return {name: tf.identity(value) for name, value in tensors.items()}

    def signatures(self):
        text = tf.TensorSpec([None], tf.string, "text")
        ids = tf.TensorSpec([None, 2], tf.int32, "ids")
        lengths = tf.TensorSpec([None], tf.int32, "lengths")
        steps = tf.TensorSpec([None], tf.int64, "steps")
        x = tf.TensorSpec([None], tf.float32, "x")
        anything = {
            each.name: tf.TensorSpec(None, each, each.name) for each in DTYPES
        }
        return {
            "serving_default": _signature(self.default, text),
            "nbest": _signature(self.nbest, text),
            "align": _signature(self.align, text),
            "add": _signature(self.add, ids, lengths),
            "number": _signature(self.number, text),
            "slow": _signature(self.slow, steps),
            "compiled": _signature(self.compiled, x),
            "raw": _signature(self.raw, text),
            "echo": _signature(self.echo, **anything),
        } | {each.name: _signature(self.cast_to(each), x) for each in CASTS}


def _signature(function, *specs, **named):
    return tf.function(function).get_concrete_function(*specs, **named)


def export(base_path: pathlib.Path, version: int = VERSION) -> pathlib.Path:
    """Writes the model; returns the directory of its version."""
    path = pathlib.Path(base_path) / str(version)
    with tempfile.TemporaryDirectory() as folder:
        vocabulary = pathlib.Path(folder) / "vocabulary.tsv"
        vocabulary.write_text(
            "".join(f"{word}\t{other}\n" for word, other in WORDS.items())
        )
        toy = Toy(str(vocabulary))
        tf.saved_model.save(toy, str(path), signatures=toy.signatures())
    return path


if __name__ == "__main__":
    print(export(pathlib.Path(sys.argv[1])))
