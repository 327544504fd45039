"""
Title: Numbers longer than any in training
Date created: 2026/11/23
Description: How attentions differ on sources of lengths they have not met.

A number is read aloud digit by digit: "4077" becomes "four zero seven seven".
All models learn numbers of at most ten digits, and are tested on up to thirty.
Without attention the source has to fit into one vector, trained only on short
ones. Attention that looks at content alone finds the same digit in several
places. Attention that knows where it was can continue from there.

    python examples/longer.py                   # all of them, ten minutes
    python examples/longer.py --rows bahdanau   # only this

It needs keras-attn with its extra `examples`. What all examples share is in
`common/`.
"""

import functools
import random

import common  # before Keras, as it silences TensorFlow's notes
import keras
import num2words
from common import rows
from keras import layers
from matplotlib import figure

import keras_attn

"""
## Data

Digits are drawn at random, and so are the lengths.
"""

LEARNED = range(1, 11)  # digits
TESTED = 5, 10, 12, 15, 20, 30
SAID = [num2words.num2words(digit) for digit in range(10)]  # zero, one, ...


def say(number: str) -> str:
    return " ".join(SAID[int(digit)] for digit in number)


def draw(count: int, lengths, seed: int) -> list[str]:
    chosen = random.Random(seed)
    return [
        "".join(chosen.choices("0123456789", k=length))
        for length in chosen.choices(lengths, k=count)
    ]


"""
## The models

They differ in one line, the attention.
"""

Attention = keras_attn.Attention
ATTENTIONS = {
    "none": lambda units: None,
    "bahdanau": keras_attn.BahdanauAttention,
    "local-m": lambda units: Attention(
        keras_attn.AdditiveScore(units),
        keras_attn.LocalMonotonicAlignment(window=2),
    ),
    "local-p": lambda units: Attention(
        keras_attn.AdditiveScore(units),
        keras_attn.LocalPredictiveAlignment(window=2),
    ),
    "location-sensitive": lambda units: Attention(
        keras_attn.LocationSensitiveScore(units)
    ),
    "monotonic": lambda units: Attention(
        keras_attn.AdditiveScore(units),
        keras_attn.MonotonicAlignment(noise=1.0, hard_inference=True),
    ),
}


def build(source_text, target_text, units: int, attention):
    source = keras.Input((None,), dtype="int32", name="source")
    target = keras.Input((None,), dtype="int32", name="target")
    embedded = layers.Embedding(source_text.size, 32, mask_zero=True)(source)
    gru = layers.GRU(units // 2, return_sequences=True, return_state=True)
    memory, *last = layers.Bidirectional(gru)(embedded)
    embedded = layers.Embedding(target_text.size, 16, mask_zero=True)(target)
    decoder = keras_attn.AttentionDecoder(
        keras_attn.GRUCell(units), attention, bridge="dense"
    )
    where = [memory] if attention else []
    hidden = decoder(embedded, *where, initial_state=last)
    logits = layers.Dense(target_text.size)(hidden)
    return keras.Model([source, target], logits)


def train(numbers, attention, options):
    keras.utils.set_random_seed(options.seed)
    texts = (
        keras_attn.Text("0123456789", split="characters"),
        keras_attn.Text(SAID, split="whitespace"),
    )
    model = build(*texts, options.units, attention(options.units))
    data = keras_attn.pairs(
        numbers,
        [say(x) for x in numbers],
        *texts,
        batch_size=64,
        seed=options.seed,
    )
    rate = keras.optimizers.schedules.CosineDecay(
        3e-3, options.epochs * len(data)
    )
    adam = keras.optimizers.Adam(rate, global_clipnorm=1.0)
    model.compile(adam, loss=keras_attn.SequenceCrossentropy())
    model.fit(data, epochs=options.epochs, verbose=2, shuffle=False)
    return keras_attn.Translator(
        model, *texts, keras_attn.GreedySearch(2 * max(TESTED))
    )


"""
## The table

For each number of digits, the share of 300 new numbers that are read right.
"""


def measure(name: str, options) -> dict:
    numbers = draw(options.numbers, LEARNED, options.seed)
    translator = train(numbers, ATTENTIONS[name], options)
    found = {}
    for length in TESTED:
        test = draw(300, [length], options.seed + length)
        test = [x for x in test if x not in {*numbers}]
        said = translator(test).text
        right = sum(x == say(y) for x, y in zip(said, test, strict=True))
        found[f"{length} digits"] = f"{100 * right / len(test):.0f} %"
    return found


def draw_table(shown: list[dict], path):
    picture = figure.Figure((6.5, 3.4), layout="constrained")
    axes = picture.subplots()
    for row in shown:
        share = [int(row[f"{n} digits"].rstrip(" %")) for n in TESTED]
        axes.plot(TESTED, share, "o-", label=row["attention"])
    axes.axvspan(0, max(LEARNED), color="0.93", zorder=0)
    axes.text(max(LEARNED) - 0.2, 3, "learned", ha="right", color="0.4")
    axes.set(xlabel="digits", ylabel="right, %")
    axes.set(xlim=(4, max(TESTED) + 1), ylim=(-4, 104))
    picture.legend(loc="outside right center", frameon=False)
    picture.savefig(path, dpi=150)


def main(arguments: list[str] | None = None):
    options = common.command_line.parse(
        arguments,
        "Learns to read numbers aloud, and reads longer ones.",
        output="build/results",
        attentions=ATTENTIONS,
        epochs=(6, "passes over the numbers"),
        numbers=(20_000, "numbers to train on"),
        units=(96, "width of the model"),
    )
    condition = {
        name: getattr(options, name)
        for name in ("epochs", "numbers", "units", "seed")
    }
    table = rows.Rows(options.output / "longer.jsonl", condition)
    for name in options.rows:
        table.add(
            {"attention": name}, functools.partial(measure, name, options)
        )
    print(f"\n{table.table()}\n\nKept in {table.file}.")
    path = options.output / "longer.png"
    draw_table(table.shown(), path)
    print(f"Drawn in {path}.")


if __name__ == "__main__":
    main()
