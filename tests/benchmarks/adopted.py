"""Times a Transformer of a tutorial's kind: its own loop, and a translator.

    python tests/benchmarks/adopted.py            some minutes
    python tests/benchmarks/adopted.py --smoke    half a minute

Greedy search writes 20 and 100 tokens for one source of 20, by three ways:

- *tutorial*: the whole model, outside of a graph, once for each token;
- *recomputed*: a `Translator` of the same model, whose layers of its own read
  again what was written so far;
- *cached*: a `Translator` of an equal net of Keras's layers.

Least of the rounds, in which the three take turns; no token ends a text, so
that all write as many.
"""

import argparse
import time
import warnings

import keras
import numpy as np
import tensorflow as tf
from keras import layers
from keras import ops

import keras_attn

SOURCE = 20
LENGTHS = 20, 100
WIDTHS = 32, 128, 256
TEXT = keras_attn.Text([f"w{i}" for i in range(996)], split="whitespace")


class Positions(layers.Layer):
    """Embeds tokens and their positions."""

    def __init__(self, width):
        super().__init__()
        self.tokens = layers.Embedding(TEXT.size, width)
        self.places = layers.Embedding(128, width)

    def call(self, x):
        return self.tokens(x) + self.places(ops.arange(ops.shape(x)[1]))


class Decoder(layers.Layer):
    """A block with a causal mask of its own."""

    def __init__(self, width):
        super().__init__()
        self.own = layers.MultiHeadAttention(4, width // 4)
        self.cross = layers.MultiHeadAttention(4, width // 4)
        self.dense = [layers.Dense(4 * width, "relu"), layers.Dense(width)]
        self.norms = [layers.LayerNormalization() for _ in "123"]

    def call(self, inputs):
        x, memory = inputs
        i = ops.arange(ops.shape(x)[1])
        causal = ops.cast(i[:, None] >= i, "int32")[None]
        x = self.norms[0](x + self.own(x, x, attention_mask=causal))
        x = self.norms[1](x + self.cross(x, memory))
        return self.norms[2](x + self.dense[1](self.dense[0](x)))


def built(width, own):
    source = keras.Input((None,), dtype="int32")
    target = keras.Input((None,), dtype="int32")
    memory = Positions(width)(source)
    attended = layers.MultiHeadAttention(4, width // 4)(memory, memory)
    memory = layers.LayerNormalization()(memory + attended)
    if own:
        x = Positions(width)(target)
        for _ in range(2):
            x = Decoder(width)([x, memory])
    else:
        x = layers.Embedding(TEXT.size, width)(target)
        x = keras_attn.PositionEmbedding(128)(x)
        for _ in range(2):
            y = layers.MultiHeadAttention(4, width // 4)(
                x, x, use_causal_mask=True
            )
            x = layers.LayerNormalization()(x + y)
            y = layers.MultiHeadAttention(4, width // 4)(x, memory)
            x = layers.LayerNormalization()(x + y)
            y = layers.Dense(4 * width, "relu")(x)
            x = layers.LayerNormalization()(x + layers.Dense(width)(y))
    return keras.Model([source, target], layers.Dense(TEXT.size)(x))


def tutorial(model, source, length):
    """Writes as many tokens as tutorials do it."""
    written = [TEXT.special.start[0]]
    for _ in range(length):
        logits = model([source, tf.constant([written])], training=False)
        logits = logits.numpy()[0, -1]
        logits[[0, 1, 2]] = -np.inf
        written.append(int(np.argmax(logits)))
    return written[1:]


def translated(model, source, length):
    search = keras_attn.GreedySearch(max_length=length, min_length=length)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        translator = keras_attn.Translator(model, TEXT, TEXT, search)
    run = tf.function(translator.decode_ids, autograph=False)
    return lambda: run(source).tokens.numpy()[0, 0].tolist()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--smoke", action="store_true", help="smallest net")
    args = parser.parse_args()
    widths, lengths = WIDTHS, LENGTHS
    if args.smoke:
        widths, lengths, args.rounds = WIDTHS[:1], (5,), 1
    print("| width | tokens | tutorial | recomputed | cached | tutorial / "
          "recomputed | recomputed / cached |")  # fmt: skip
    print("|---" * 7 + "|")
    for width in widths:
        for length in lengths:
            row(width, length, args.rounds)


def row(width, length, rounds):
    keras.utils.set_random_seed(0)
    own, known = built(width, True), built(width, False)
    source = tf.constant(np.random.default_rng(0).integers(4, 999, (1, SOURCE)))
    source = tf.cast(source, tf.int32)
    ways = [
        lambda: tutorial(own, source, length),
        translated(own, source, length),
        translated(known, source, length),
    ]
    first, second, _ = (way() for way in ways)
    assert first == second, "the translator writes other tokens"
    times = [[] for _ in ways]
    for _ in range(rounds):
        for way, found in zip(ways, times, strict=True):
            start = time.perf_counter()
            way()
            found.append(1e3 * (time.perf_counter() - start))
    slow, again, cached = map(min, times)
    cells = width, length, f"{slow:.0f} ms", f"{again:.1f}", f"{cached:.1f}"
    print("|", *map("{} |".format, cells), f"{slow / again:.0f} |",
          f"{again / cached:.1f} |", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
