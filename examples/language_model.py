"""
Title: A language model that attends to its own past
Date created: 2026/11/23
Description: What came the last time that I was in a place like this?

A language model of Python code, the source of the standard library. Names come
back: a function uses the names of its parameters, and a class those of its
attributes. A recurrent net has to carry them all in its state. Attention looks
for earlier places that were like this one, and at what came then. The same net
without attention is trained for comparison.

    python examples/language_model.py

It needs keras-attn with its extra `examples`. What all examples share is in
`common/`.
"""

import collections
import functools
import platform
import random
import sysconfig
import tokenize
from pathlib import Path

import common  # before Keras, as it silences TensorFlow's notes
import keras
import numpy as np
from common import rows
from keras import layers

import keras_attn

WINDOW = 80  # tokens that the model sees

"""
## Data

Python's own tokenizer splits the files. Strings and numbers are one token
each. A tenth of the files is held out.
"""


def tokens_of(file: Path) -> list[str]:
    with file.open("rb") as opened:
        found = list(tokenize.tokenize(opened.readline))
    names = {tokenize.STRING: "STRING", tokenize.NUMBER: "NUMBER"}
    names |= {tokenize.NEWLINE: "⏎"}
    written = [names.get(x.type, x.string) for x in found if x.type in KEPT]
    return [x for x in written if x.isprintable() and x.strip()]


KEPT = {tokenize.NAME, tokenize.OP, tokenize.NEWLINE}
KEPT |= {tokenize.STRING, tokenize.NUMBER}


def read(files: int, seed: int):
    """Returns windows of tokens: those to learn, and those held out."""
    library = Path(sysconfig.get_path("stdlib"))
    found = [*library.glob("*.py"), *library.glob("[a-su-z]*/*.py")]
    chosen = random.Random(seed).sample(sorted(found), min(files, len(found)))
    parts = [], []
    for number, file in enumerate(chosen):
        if "site-packages" in file.parts:
            continue
        tokens = tokens_of(file)
        parts[number % 10 == 0].extend(
            " ".join(tokens[i : i + WINDOW])
            for i in range(0, len(tokens) - WINDOW + 1, WINDOW)
        )
    return parts


"""
## The models

The key of a place is the state before its token was read, and its value is the
state after it. So the query, the present state, finds places where the model
was in a similar state, and learns what was read there.
"""


def build(text, units: int, attends: bool):
    read = keras.Input((None,), dtype="int32", name="read")
    # Keras's own start, near 0, lets a GRU learn slowly here.
    start = keras.initializers.RandomNormal(stddev=1.0)
    embedded = layers.Embedding(text.size, units, start)(read)
    state = layers.GRU(units, return_sequences=True)(embedded)
    outputs, weights = state, None
    if attends:
        before = layers.ZeroPadding1D((1, 0))(state)[:, :-1]
        context, weights = keras_attn.ScaledDotAttention(name="past")(
            layers.Dense(units)(state),
            state,
            layers.Dense(units)(before),
            use_causal_mask=True,
            return_attention_scores=True,
        )
        outputs = layers.Concatenate()([state, context])
    outputs = layers.Dense(units, activation="tanh")(outputs)
    outputs = layers.Dropout(0.2)(outputs)
    model = keras.Model(read, layers.Dense(text.size)(outputs))
    return model, keras.Model(read, weights) if attends else None


def train(windows, text, attends, options):
    keras.utils.set_random_seed(options.seed)
    model, look = build(text, options.units, attends)
    ids = text.ids(windows, start=True, end=False).numpy()
    steps = options.epochs * len(ids) // 32
    rate = keras.optimizers.schedules.CosineDecay(3e-3, steps)
    adam = keras.optimizers.Adam(rate, global_clipnorm=1.0)
    model.compile(adam, loss=keras_attn.SequenceCrossentropy())
    model.fit(
        ids[:, :-1], ids[:, 1:], epochs=options.epochs, batch_size=32, verbose=2
    )
    return model, look


"""
## The table

Perplexity on the files held out, of all tokens, and apart of names that stand
earlier in the window and of all others.
"""


def measure(attends: bool, learned, held_out, text, options) -> dict:
    model, look = train(learned, text, attends, options)
    ids = text.ids(held_out, start=True, end=False).numpy()
    loss = np.concatenate(
        [
            keras.losses.sparse_categorical_crossentropy(
                ids[i : i + 32, 1:],
                model(ids[i : i + 32, :-1], training=False),
                from_logits=True,
            )
            for i in range(0, len(ids), 32)
        ]
    )
    names = [i for i, x in enumerate(text.tokens) if x.isidentifier()]
    again = np.isin(ids[:, 1:], names)
    for position in range(ids.shape[1] - 1):
        seen = ids[:, : position + 1] == ids[:, position + 1, None]
        again[:, position] &= seen.any(axis=1)
    known = ids[:, 1:] != text.special.unknown
    if look:
        picture(look, text, options)
    return {
        "all tokens": perplexity(loss[known]),
        "names seen before": perplexity(loss[known & again]),
        "all others": perplexity(loss[known & ~again]),
    }


def perplexity(losses) -> float:
    return round(float(np.exp(np.mean(losses))), 1)


"""
## The picture

What the model attends to before it writes each token of a window: the one on
the left is to come next, and the one below came after the place found.
"""

SHOWN = (
    "def copy ( source , target ) : ⏎ with open ( source , STRING ) as "
    "file : ⏎ data = file . read ( ) ⏎ with open ( target , STRING ) as"
)


def picture(look, text, options):
    ids = text.ids([SHOWN], start=True, end=False).numpy()
    weights = keras.ops.convert_to_numpy(look(ids[:, :-1]))[0]
    tokens = SHOWN.split()
    figure = keras_attn.plot_attention(
        alignment=weights[:, 1:],
        source_tokens=tokens[:-1],
        tokens=tokens,
        title="What came then",
    )
    figure.savefig(options.output / "past.png")
    print(f"What it attends to is drawn in {options.output}/past.png.")


"""
## All steps in turn
"""


def main(arguments: list[str] | None = None):
    options = common.command_line.parse(
        arguments,
        "Learns to continue Python code, with and without attention.",
        output="build/language_model",
        epochs=(4, "passes over the code"),
        files=(400, "files to read at most"),
        tokens=(3000, "size of the vocabulary"),
        units=(128, "width of the model"),
    )
    learned, held_out = read(options.files, options.seed)
    counts = collections.Counter(" ".join(learned).split())
    known = [token for token, _ in counts.most_common(options.tokens)]
    text = keras_attn.Text(known, split="whitespace", max_length=WINDOW)
    print(f"{len(learned)} windows to learn, {len(held_out)} held out")
    names = "epochs", "files", "tokens", "units", "seed"
    condition = {name: getattr(options, name) for name in names}
    condition["python"] = platform.python_version()
    table = rows.Rows(options.output / "language_model.jsonl", condition)
    for attends, kind in (False, "none"), (True, "to its own past"):
        table.add(
            {"attention": kind},
            functools.partial(
                measure, attends, learned, held_out, text, options
            ),
        )
    print(f"\n{table.table()}\n\nKept in {table.file}.")


if __name__ == "__main__":
    main()
