"""
Title: Naming pictures, with attention over the picture
Date created: 2026/11/23
Description: "Show, attend and tell" at the size of emoji.

A convolutional network turns a picture into a map of 8 x 8 places, and a
decoder attends to the places while it writes the picture's name: "woman
firefighter dark skin tone". The held-out pictures combine people, things and
colours that were learned separately. The export takes PNG files.

    python examples/naming.py                     # soft, hard and no attention
    python examples/naming.py --rows soft         # only this
    python examples/naming.py --font my-font.ttf

The font is Noto Color Emoji, Debian's package `fonts-noto-color-emoji`. It
needs keras-attn with its extra `examples`, and keras-attn-serving with its
extra `server`. What all examples share is in `common/`.
"""

import functools
import io
from pathlib import Path

import common  # before Keras, as it silences TensorFlow's notes
import keras
import tensorflow as tf
from common import emojis
from common import rows
from keras import layers

import keras_attn

SIZE = 64  # pixels of a side

"""
## The models

All of them see the picture as a memory of 64 places. Xu et al. (2015) ask that
each place be attended to about as much as the others (`DoublyStochastic`).
Hard attention looks at one place for each word.
"""


def soft(units):
    return keras_attn.Attention(
        keras_attn.AdditiveScore(units),
        gate=True,
        regularizer=keras_attn.DoublyStochastic(0.01),
    )


def hard(units):
    return keras_attn.Attention(
        keras_attn.AdditiveScore(units), keras_attn.HardAlignment(), gate=True
    )


ATTENTIONS = {"soft": soft, "hard": hard, "none": None}


def build(text, units: int, attention):
    picture = keras.Input((SIZE, SIZE, 3), dtype="uint8", name="picture")
    target = keras.Input((None,), dtype="int32", name="target")
    x = layers.Rescaling(1 / 127.5, offset=-1)(picture)
    for filters in units // 4, units // 2, units:
        for strides in 2, 1:
            x = layers.Conv2D(filters, 3, strides, "same", use_bias=False)(x)
            x = layers.Activation("relu")(layers.BatchNormalization()(x))
    places = layers.Reshape((-1, units))(x)
    whole = layers.GlobalAveragePooling1D()(places)
    embedded = layers.Embedding(text.size, 64, mask_zero=True)(target)
    hidden = keras_attn.AttentionDecoder(
        keras_attn.GRUCell(units),
        attention and attention(units),
        bridge="dense",
    )(embedded, *([places] if attention else []), initial_state=whole)
    hidden = layers.Dropout(0.3)(hidden)
    return keras.Model([picture, target], layers.Dense(text.size)(hidden))


def train(learned, attention, options):
    keras.utils.set_random_seed(options.seed)
    text = keras_attn.Text.from_lines(learned.names, split="whitespace")
    model = build(text, options.units, attention)
    data = keras_attn.pairs(
        learned.pictures,
        learned.names,
        None,
        text,
        batch_size=32,
        seed=options.seed,
    )
    rate = keras.optimizers.schedules.CosineDecay(
        2e-3, options.epochs * len(data)
    )
    adam = keras.optimizers.Adam(rate, global_clipnorm=1.0)
    model.compile(adam, loss=keras_attn.SequenceCrossentropy())
    model.fit(data, epochs=options.epochs, verbose=2, shuffle=False)
    return keras_attn.Translator(
        model, None, text, keras_attn.BeamSearch(5, max_length=15)
    )


"""
## The table

How many names are right, of pictures whose parts were learned in others.
"""


def measure(name: str, split, options) -> dict:
    translator = train(split.learned, ATTENTIONS[name], options)
    translator.save(options.output / f"naming-{name}")
    found = {}
    for kind, test in split.held_out.items():
        names = translator(test.pictures).text
        wrong = keras_attn.metrics.error_rates(
            [x.split() for x in names], [[x.split()] for x in test.names]
        )
        found[f"{kind}: names wrong"] = f"{100 * wrong.sequence:.0f} %"
        found[f"{kind}: words wrong"] = f"{100 * wrong.token:.0f} %"
    return found


"""
## Export and server

The export's input is PNG files of any size.
"""


class Namer(tf.Module):
    def __init__(self, translator):
        super().__init__()
        self.inner = translator.module()

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "png")])
    def serve(self, png):
        found = self.inner.decode(
            tf.map_fn(self._read, png, fn_output_signature=tf.uint8)
        )
        return {"text": found["texts"][:, 0], "score": found["scores"][:, 0]}

    def _read(self, file):
        pixels = tf.io.decode_png(file, channels=3)
        resized = tf.image.resize(
            pixels, (SIZE, SIZE), "lanczos3", antialias=True
        )
        return tf.saturate_cast(tf.round(resized), tf.uint8)


def export(translator, folder: Path):
    namer = Namer(translator)
    tf.saved_model.save(namer, folder / "1", signatures=namer.serve)


def png(pixels) -> bytes:
    file = io.BytesIO()
    emojis.Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


"""
## All steps in turn
"""


def main(arguments: list[str] | None = None):
    options = common.command_line.parse(
        arguments,
        "Learns to name pictures, serves it and draws what it looked at.",
        output="build/naming",
        add_options=add_options,
        attentions=ATTENTIONS,
        epochs=(30, "passes over the pictures"),
        pictures=(4000, "pictures at most"),
        units=(128, "width of the model"),
    )
    font = options.font or emojis.find_font()
    named = emojis.draw(font, SIZE, options.pictures)
    split = emojis.split(named, tones=250, people=20, seed=options.seed)
    counts = {kind: len(test.names) for kind, test in split.held_out.items()}
    print(f"{len(split.learned.names)} pictures to learn; held out: {counts}")
    names = "epochs", "pictures", "units", "seed"
    condition = {name: getattr(options, name) for name in names}
    table = rows.Rows(options.output / "naming.jsonl", condition)
    for name in options.rows:
        table.add(
            {"attention": name},
            functools.partial(measure, name, split, options),
        )
    print(f"\n{table.table()}\n\nKept in {table.file}.\n")

    name = options.rows[0]
    translator = keras_attn.Translator.load(options.output / f"naming-{name}")
    folder = options.output / "models/naming"
    export(translator, folder)
    tones, test = split.held_out.values()
    shown = tones.take(
        range(0, len(tones.names), max(1, len(tones.names) // 5))
    )
    files = {"png": list(map(png, shown.pictures))}
    answers = common.serving.ask(folder, files)["text"]
    for answer, name in zip(answers, shown.names, strict=True):
        note = "" if answer == name else f" (wanted: {name})"
        print(f"  {answer}{note}")
    results = translator(test.pictures)
    if results.alignments is None:
        return
    best = max(
        range(len(results)), key=lambda i: sharpness(results[i], test, i)
    )
    figure = keras_attn.plot_attention(
        results[best], picture=test.pictures[best]
    )
    figure.savefig(options.output / "attention.png")
    print(f"What it looked at is drawn in {options.output}/attention.png.")


def sharpness(result, test, i) -> tuple:
    """Orders results: right ones first, then those of the largest weights."""
    is_right = result.text == test.names[i]
    return is_right, float(result.alignment.max(axis=-1).mean())


def add_options(parser):
    parser.add_argument(
        "--font", type=Path, metavar="FILE", help="font with emoji"
    )


if __name__ == "__main__":
    main()
