"""
Title: Reading dates in many languages: the tutorial of a minute
Date created: 2026/11/23
Description: "lauantai 21. marraskuuta 2026" becomes "2026-11-21".

The shortest whole program: data, model, training, export, server, picture. It
learns to read dates as they are written in eighteen languages. Day, month and
year come in any order, so the picture shows well what attention does: it jumps
to the year, to the month, to the day. A regular expression ensures that only
dates are written, here and on the server.

    python examples/dates.py

It needs keras-attn with its extra `examples`, and keras-attn-serving with its
extra `server`. What all examples share is in `common/`.
"""

import datetime
import random

import babel.dates
import common  # before Keras, as it silences TensorFlow's notes
import keras
from keras import layers

import keras_attn

"""
## Data

Babel writes dates by the rules of Unicode's CLDR. A day that is held out is in
no language among those to learn from.
"""

LOCALES = (
    "en_GB en_US de fr es it pt nl sv fi pl cs hu tr ru el ja zh_Hans".split()
)
FORMATS = "full", "long", "medium"


def draw(days: int, seed: int):
    """Returns lines and ISO dates: those to learn, and 1,000 held out."""
    chosen = random.Random(seed)
    first = datetime.date(1950, 1, 1).toordinal()
    last = datetime.date(2049, 12, 31).toordinal()
    drawn = chosen.sample(range(first, last + 1), days + 1000)
    pairs = []
    for ordinal in drawn:
        day = datetime.date.fromordinal(ordinal)
        line = babel.dates.format_date(
            day, chosen.choice(FORMATS), locale=chosen.choice(LOCALES)
        )
        pairs.append((line, day.isoformat()))
    return pairs[1000:], pairs[:1000]


"""
## Model and training

The search writes only what matches `DATE`: a year from 1000 to 2999, and a day
that this year has.
"""

_30 = "(0[1-9]|[12][0-9]|30)"
_LEAP = "[12][0-9](0[48]|[2468][048]|[13579][26])|(12|16|20|24|28)00"
DATE = (
    f"[12][0-9]{{3}}-((0[13578]|1[02])-({_30}|31)|(0[469]|11)-{_30}"
    f"|02-(0[1-9]|1[0-9]|2[0-8]))|({_LEAP})-02-29"
)


def build(source_text, target_text, units: int):
    source = keras.Input((None,), dtype="int32", name="source")
    target = keras.Input((None,), dtype="int32", name="target")
    embedded = layers.Embedding(source_text.size, 32, mask_zero=True)(source)
    gru = layers.GRU(units // 2, return_sequences=True, return_state=True)
    memory, *last = layers.Bidirectional(gru)(embedded)
    embedded = layers.Embedding(target_text.size, 16, mask_zero=True)(target)
    hidden = keras_attn.AttentionDecoder(
        keras_attn.GRUCell(units), keras_attn.BahdanauAttention(units)
    )(embedded, memory, initial_state=layers.Concatenate()(last))
    logits = layers.Dense(target_text.size)(hidden)
    return keras.Model([source, target], logits)


def train(pairs, options):
    keras.utils.set_random_seed(options.seed)
    lines, dates = zip(*pairs, strict=True)
    texts = (
        keras_attn.Text.from_lines(lines, split="characters"),
        keras_attn.Text("0123456789-", split="characters"),
    )
    model = build(*texts, options.units)
    data = keras_attn.pairs(
        list(lines), list(dates), *texts, batch_size=64, seed=options.seed
    )
    rate = keras.optimizers.schedules.CosineDecay(
        4e-3, options.epochs * len(data)
    )
    adam = keras.optimizers.Adam(rate, global_clipnorm=1.0)
    model.compile(adam, loss=keras_attn.SequenceCrossentropy())
    model.fit(data, epochs=options.epochs, verbose=2, shuffle=False)
    dates_alone = keras_attn.Matches(DATE)
    search = keras_attn.BeamSearch(3, max_length=11, rules=[dates_alone])
    return keras_attn.Translator(model, *texts, search)


"""
## All steps in turn
"""


def main(arguments: list[str] | None = None):
    options = common.command_line.parse(
        arguments,
        "Learns to read dates in many languages, serves it and draws it.",
        output="build/dates",
        epochs=(4, "passes over the dates"),
        days=(20_000, "dates to train on"),
        units=(96, "width of the model"),
    )
    learned, held_out = draw(options.days, options.seed)
    translator = train(learned, options)
    lines, dates = map(list, zip(*held_out, strict=True))
    found = translator(lines).text
    right = sum(x == y for x, y in zip(found, dates, strict=True))
    print(f"\nOf {len(lines)} dates held out, {right} are read right.")

    folder = options.output / "models/dates"
    print(f"Exported to {translator.export(folder)}. The server says:")
    answers = common.serving.ask(folder, lines[:6])["text"]
    for line, answer, date in zip(lines, answers, dates, strict=False):
        note = "" if answer == date else f" (wanted: {date})"
        print(f"  {line:35} {answer}{note}")
    shown = "lauantai 21. marraskuuta 2026"
    figure = keras_attn.plot_attention(translator([shown])[0])
    figure.savefig(options.output / "attention.png")
    print(f"What it attended to is drawn in {options.output}/attention.png.")


if __name__ == "__main__":
    main()
