"""
Title: Reading lines of handwritten digits, longer ones than any in training
Date created: 2026/11/23
Description: Attention that goes from left to right, as over speech.

Handwritten digits are glued to lines, and a line is read column by column, as
a recording of speech is heard frame by frame: eight columns or so become one
digit. The digit of each column is known, so the program can measure whether the
attention looked at the digit that was written.

    python examples/reading.py                   # all of them
    python examples/reading.py --rows bahdanau   # only this

It needs keras-attn with its extra `examples`, and keras-attn-serving with its
extra `server`. What all examples share is in `common/`.
"""

import functools
from typing import NamedTuple

import common  # before Keras, as it silences TensorFlow's notes
import keras
import numpy as np
from common import rows
from keras import layers
from sklearn import datasets

import keras_attn

"""
## Data

The digits are those of scikit-learn, 8 x 8 pixels. A fifth of them is in no
line to learn. A digit takes the columns on which there is ink, 3 to 8, and up
to three empty ones follow it.
"""

LEARNED = 1, 6  # digits in a line, from and to
TESTED = 6, 10, 20


class Lines(NamedTuple):
    columns: (
        list  # (columns, 9) each: the pixels, and 1 to tell it from padding
    )
    digits: list  # what is written
    places: list  # for each column the number of its digit in the line


def draw(count: int, shortest: int, longest: int, held_out: bool, seed: int):
    """Glues digits to lines."""
    random = np.random.default_rng(seed)
    images, labels = datasets.load_digits(return_X_y=True)
    pool = np.flatnonzero((np.arange(len(labels)) % 5 == 0) == held_out)
    found = Lines([], [], [])
    for length in random.integers(shortest, longest, count, endpoint=True):
        chosen = random.choice(pool, length)
        parts = []
        for image in images[chosen].reshape(-1, 8, 8) / 16:
            ink = np.flatnonzero(image.any(axis=0))
            gap = np.zeros((random.integers(4), 8))
            parts.append([*image.T[ink[0] : ink[-1] + 1], *gap])
        line = np.concatenate(parts)
        there = np.ones((len(line), 1))
        found.columns.append(np.hstack([line, there]).astype("float32"))
        found.digits.append("".join(map(str, labels[chosen])))
        found.places.append(np.repeat(range(length), list(map(len, parts))))
    return found


"""
## The models

They differ in one line, the attention.
"""

Attention = keras_attn.Attention
ATTENTIONS = {
    "bahdanau": keras_attn.BahdanauAttention,
    "location-sensitive": lambda units: Attention(
        keras_attn.LocationSensitiveScore(units)
    ),
    "monotonic": lambda units: Attention(
        keras_attn.AdditiveScore(units),
        keras_attn.MonotonicAlignment(noise=1.0, hard_inference=True),
    ),
    "local-m": lambda units: Attention(
        keras_attn.AdditiveScore(units),
        keras_attn.LocalMonotonicAlignment(window=20),
    ),
    "local-p": lambda units: Attention(
        keras_attn.AdditiveScore(units),
        keras_attn.LocalPredictiveAlignment(window=10),
    ),
}


def build(text, units: int, attention):
    line = keras.Input((None, 9), name="line")
    target = keras.Input((None,), dtype="int32", name="target")
    memory = layers.Masking()(line)
    for _ in range(2):
        gru = keras_attn.GRUCell(units // 2)
        memory = layers.Bidirectional(layers.RNN(gru, return_sequences=True))(
            memory
        )
    embedded = layers.Embedding(text.size, 16, mask_zero=True)(target)
    hidden = keras_attn.AttentionDecoder(
        keras_attn.GRUCell(units), attention(units)
    )(embedded, memory)
    return keras.Model([line, target], layers.Dense(text.size)(hidden))


def train(lines, attention, options):
    keras.utils.set_random_seed(options.seed)
    text = keras_attn.Text("0123456789", split="characters")
    model = build(text, options.units, attention)
    data = keras_attn.pairs(
        lines.columns, lines.digits, None, text, seed=options.seed
    )
    rate = keras.optimizers.schedules.CosineDecay(
        1e-4, options.epochs * len(data), warmup_target=3e-3, warmup_steps=200
    )
    adam = keras.optimizers.Adam(rate, global_clipnorm=1.0)
    model.compile(adam, loss=keras_attn.SequenceCrossentropy())
    model.fit(data, epochs=options.epochs, verbose=2, shuffle=False)
    search = keras_attn.GreedySearch(2 * max(TESTED))
    return keras_attn.Translator(model, None, text, search)


def padded(columns):
    return keras.utils.pad_sequences(columns, dtype="float32", padding="post")


"""
## The table

For lines of each length: how many are read right; how often the attention was
on the digit that is written; how often it was further right than before.
"""


def measure(name: str, options) -> dict:
    lines = draw(options.lines, *LEARNED, False, options.seed)
    translator = train(lines, ATTENTIONS[name], options)
    translator.save(options.output / f"reading-{name}")
    found = {}
    for length in TESTED:
        test = draw(options.tests, length, length, True, options.seed)
        results = translator(padded(test.columns))
        pairs = zip(results.text, test.digits, strict=True)
        found[f"{length} digits"] = percent([x == y for x, y in pairs])
        pairs = zip(results.alignments, test.places, strict=True)
        on_digit, moved_on = zip(*(looks(*x) for x in pairs), strict=True)
        found[f"on the digit, {length}"] = percent(np.concatenate(on_digit))
        found[f"moved on, {length}"] = percent(np.concatenate(moved_on))
    return found


def looks(alignment, places):
    """Tells of each digit whether the attention was on it, and moved on."""
    count = places[-1] + 1
    column = np.argmax(alignment[:count], axis=-1)
    found = places[np.minimum(column, len(places) - 1)]
    wanted = np.arange(count)
    here = np.resize(found, count) == wanted
    here[len(found) :] = False  # digits that were not written
    return here, np.diff(column) > 0


def percent(shares) -> str:
    return f"{100 * np.mean(shares):.0f} %"


"""
## All steps in turn
"""


def main(arguments: list[str] | None = None):
    options = common.command_line.parse(
        arguments,
        "Learns to read lines of handwritten digits, and reads longer ones.",
        output="build/reading",
        attentions=ATTENTIONS,
        epochs=(6, "passes over the lines"),
        lines=(10_000, "lines to train on"),
        tests=(300, "lines of each length to test on"),
        units=(96, "width of the model"),
    )
    names = "epochs", "lines", "units", "seed"
    condition = {name: getattr(options, name) for name in names}
    table = rows.Rows(options.output / "reading.jsonl", condition)
    for name in options.rows:
        table.add(
            {"attention": name}, functools.partial(measure, name, options)
        )
    print(f"\n{table.table()}\n\nKept in {table.file}.\n")

    name = options.rows[0]
    translator = keras_attn.Translator.load(options.output / f"reading-{name}")
    folder = options.output / "models/reading"
    translator.export(folder, lengths=True)
    lines = draw(5, 2, 8, True, options.seed)
    lengths = list(map(len, lines.columns))
    answers = common.serving.ask(
        folder, {"line": padded(lines.columns), "lengths": lengths}
    )["text"]
    for answer, digits in zip(answers, lines.digits, strict=True):
        note = "" if answer == digits else f" (wanted: {digits})"
        print(f"  {answer}{note}")
    line = draw(1, 6, 6, True, options.seed).columns[0]
    figure = keras_attn.plot_attention(
        translator(line[None])[0],
        picture=1 - line[:, :8].T,
        grid=(1, len(line)),
    )
    figure.savefig(options.output / "attention.png")
    print(f"What it looked at is drawn in {options.output}/attention.png.")


if __name__ == "__main__":
    main()
