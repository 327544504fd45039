"""Times a Transformer of a tutorial's kind: its own loop, and a translator.

    python tests/benchmarks/adopted.py             some minutes
    python tests/benchmarks/adopted.py --memory    some minutes
    python tests/benchmarks/adopted.py --smoke     a minute

Greedy search writes 20 and 100 tokens for one source of 20, by four ways:

- *tutorial*: the whole model, outside of a graph, once for each token;
- *recomputed*: a `Translator` of the model with TensorFlow's operations in its
  layers, which therefore read again what was written so far;
- *opened*: a `Translator` of the same model without these;
- *cached*: a `Translator` of an equal net of Keras's layers.

Least of the rounds, in which the four take turns; no token ends a text, so
that all write as many. `--memory` tells by how much the memory of a process
grows, at most, while five beams write 100 tokens.
"""

import argparse
import resource
import subprocess
import sys
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
BEAMS = 5
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


class ClosedPositions(Positions):
    """Cannot be traced by Keras's symbolic tensors."""

    def call(self, x):
        return super().call(tf.identity(x))


class ClosedDecoder(Decoder):
    def call(self, inputs):
        x, memory = inputs
        return super().call([tf.identity(x), memory])


def built(width, own, closed=False):
    """Returns a model; the weights depend on the width alone."""
    keras.utils.set_random_seed(0)
    positions, decoder = Positions, Decoder
    if closed:
        positions, decoder = ClosedPositions, ClosedDecoder
    source = keras.Input((None,), dtype="int32")
    target = keras.Input((None,), dtype="int32")
    memory = Positions(width)(source)
    attended = layers.MultiHeadAttention(4, width // 4)(memory, memory)
    memory = layers.LayerNormalization()(memory + attended)
    if own:
        x = positions(width)(target)
        for _ in range(2):
            x = decoder(width)([x, memory])
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


def tutorial_beams(model, source, length):
    """Writes five texts as a tutorial's beam search does it."""
    sources = tf.repeat(source, BEAMS, axis=0)
    written = np.full((BEAMS, 1), TEXT.special.start[0])
    for _ in range(length):
        logits = model([sources, tf.constant(written)], training=False)
        best = np.argsort(logits.numpy()[:, -1])[:, -BEAMS:]
        next_ids = best[np.arange(BEAMS), np.arange(BEAMS)]
        written = np.concatenate([written, next_ids[:, None]], axis=1)


def translated(model, source, length, search=None):
    search = search or keras_attn.GreedySearch(
        max_length=length, min_length=length
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        translator = keras_attn.Translator(model, TEXT, TEXT, search)
    run = tf.function(translator.decode_ids, autograph=False)
    return lambda: run(source).tokens.numpy()[0, 0].tolist()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--smoke", action="store_true", help="smallest net")
    parser.add_argument("--memory", action="store_true", help="no times")
    parser.add_argument("--grows", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.grows:
        way, width = args.grows
        print(f"{growth(way, int(width)):.0f}")
        return
    if args.memory or args.smoke:
        memory(WIDTHS[:1] if args.smoke else WIDTHS)
    if args.memory:
        return
    widths, lengths = WIDTHS, LENGTHS
    if args.smoke:
        widths, lengths, args.rounds = WIDTHS[:1], (5,), 1
    print("| width | tokens | tutorial | recomputed | opened | cached | "
          "tutorial / recomputed | recomputed / cached | opened / cached |"
          )  # fmt: skip
    print("|---" * 9 + "|")
    for width in widths:
        for length in lengths:
            row(width, length, args.rounds)


def row(width, length, rounds):
    own, known = built(width, True), built(width, False)
    source = tf.constant(np.random.default_rng(0).integers(4, 999, (1, SOURCE)))
    source = tf.cast(source, tf.int32)
    ways = [
        lambda: tutorial(own, source, length),
        translated(built(width, True, closed=True), source, length),
        translated(own, source, length),
        translated(known, source, length),
    ]
    first, second, third, _ = (way() for way in ways)
    assert first == second == third, "the translators write other tokens"
    times = [[] for _ in ways]
    for _ in range(rounds):
        for way, found in zip(ways, times, strict=True):
            start = time.perf_counter()
            way()
            found.append(1e3 * (time.perf_counter() - start))
    slow, again, opened, cached = map(min, times)
    cells = [f"{slow:.0f} ms", *(f"{x:.1f}" for x in (again, opened, cached))]
    print("|", *map("{} |".format, [width, length, *cells]),
          f"{slow / again:.0f} |", f"{again / cached:.1f} |",
          f"{opened / cached:.2f} |", flush=True)  # fmt: skip


def memory(widths):
    """Prints by how much processes grow, one process for each number."""
    print("| width | tutorial | recomputed | opened | cached |")
    print("|---" * 5 + "|")
    for width in widths:
        found = [
            subprocess.run(
                [sys.executable, __file__, "--grows", way, str(width)],
                check=True,
                capture_output=True,
                text=True,
            ).stdout.strip()
            for way in ("tutorial", "recomputed", "opened", "cached")
        ]
        print(f"| {width} |", *map("{} MiB |".format, found), flush=True)


def growth(way, width):
    """Returns by how many MiB this process grows, at most, as it writes."""
    source = tf.ones((1, SOURCE), "int32") * 5
    model = built(width, way != "cached", closed=way == "recomputed")
    length = max(LENGTHS)
    if way == "tutorial":

        def run():
            return tutorial_beams(model, source, length)

        model([source, source], training=False)
    else:
        search = keras_attn.BeamSearch(
            BEAMS, max_length=length, min_length=length
        )
        run = translated(model, source, length, search)
    before = peak()
    run()
    return peak() - before


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
