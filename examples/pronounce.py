"""
Title: Pronouncing English words with attention
Date created: 2026/11/21
Description: Letters to phonemes on CMUdict: train, export, serve, query, plot.

How is "neighborhood" said? This program learns it from a dictionary: its model
reads the letters of a word and writes phonemes, one at a time. At each step it
attends to the letters that matter for the next sound. The trained model, with
its beam search, then becomes one SavedModel that takes strings and gives
strings. A server hosts it, and a client asks it.

    python examples/pronounce.py demo     # all of it, in a few minutes
    python examples/pronounce.py train    # or a step at a time
    python examples/pronounce.py export
    python examples/pronounce.py serve    # leave it running
    python examples/pronounce.py query neighborhood pneumonia
    python examples/pronounce.py plot neighborhood

`prepare` and `train --prepared` train on another machine, without TensorFlow.
It needs keras-attn with its extra `examples`, and keras-attn-serving with its
extra `server`. What all examples share is in `common/`.
"""

import math
import sys
import time
from collections import namedtuple

import common  # before Keras, as it silences TensorFlow's notes
import keras
from keras import layers

import keras_attn

"""
## Data

The CMU Pronouncing Dictionary gives 125,000 words of letters and apostrophes,
one in fifteen with more than one pronunciation. A line of it looks like this:

    tomato(2) T AH0 M AA1 T OW2

The digits mark the stress of vowels. We drop them, as the papers on this task
do. A hash of the word decides whether it is held out: five words in a hundred
are for the test, and one is for watching progress. The papers use another
split, of an older edition. If you have its files, `--split DIR` reads them.
"""


def read_data(folder, number):
    return common.cmudict.read_or_split(folder).first(number)


"""
## The model

An ordinary functional Keras model. The encoder reads the letters in both
directions. `AttentionDecoder` runs an LSTM cell over the phonemes so far and
attends to the encoder's outputs, its memory: before the cell's step ("pre") or
after it ("post"), as the paper of the attention has it. A `Dense` layer says
how likely each phoneme is next. Decoding needs no second model.
"""

Preset = namedtuple("Preset", "units embedding dropout batch_size epochs depth")
PRESETS = {
    "small": Preset(128, 32, 0.1, 64, 3, 1),
    "demo": Preset(256, 64, 0.1, 96, 4, 1),
    "large": Preset(384, 96, 0.3, 64, 15, 1),
    "paper": Preset(512, 512, 0.2, 256, 50, 3),  # Toshniwal & Livescu, 2016
}
Luong = keras_attn.LuongAttention
ATTENTIONS = {
    "bahdanau": ("pre", lambda units: keras_attn.BahdanauAttention(units)),
    "luong-dot": ("post", lambda _: Luong("dot")),
    "luong-general": ("post", lambda _: Luong("general")),
    "luong-concat": ("post", lambda units: Luong("concat", units=units)),
    "scaled-dot": ("post", lambda _: keras_attn.ScaledDotAttention()),
}


def build_model(letters, phonemes, preset: Preset, attention: str):
    units, size, dropout = preset.units, preset.embedding, preset.dropout
    source = keras.Input((None,), dtype="int32", name="source")
    target = keras.Input((None,), dtype="int32", name="target")

    memory = layers.Embedding(letters.size, size, mask_zero=True)(source)
    start = []  # the decoder's first states, from the last ones of the encoder
    for _ in range(preset.depth):
        encoder = layers.Bidirectional(
            layers.LSTM(units // 2, return_sequences=True, return_state=True)
        )
        memory, *states = encoder(layers.Dropout(dropout)(memory))
        start += [
            layers.Dense(units, activation="tanh")(layers.Concatenate()(both))
            for both in (states[0::2], states[1::2])  # hidden, carry
        ]

    order, make_attention = ATTENTIONS[attention]
    embedded = layers.Embedding(phonemes.size, size, mask_zero=True)(target)
    above = range(preset.depth - 1)  # cells that read from another one
    cells = [layers.LSTMCell(units, dropout=dropout) for _ in above]
    decoder = keras_attn.AttentionDecoder(
        [layers.LSTMCell(units), *cells], make_attention(units), order=order
    )
    decoded = decoder(
        layers.Dropout(dropout)(embedded),
        layers.Dropout(dropout)(memory),
        initial_state=start,
    )
    logits = layers.Dense(phonemes.size)(layers.Dropout(dropout)(decoded))
    return keras.Model([source, target], logits)


"""
## Training

`Text` turns words into ids and ids into words, `pairs` makes batches of words
of about the same length, and the loss leaves out the padding. The learning
rate climbs for 200 steps before it falls along a cosine: without that, an
unlucky start can cost an epoch.
"""


def make_texts(words, spoken):
    return (
        keras_attn.Text.from_lines(words, split="characters", lowercase=True),
        keras_attn.Text.from_lines(spoken, split="whitespace"),
    )


def make_model(letters, phonemes, preset: Preset, attention: str, batches: int):
    model = build_model(letters, phonemes, preset, attention)
    steps = preset.epochs * batches
    rate = keras.optimizers.schedules.CosineDecay(
        0.0, steps, warmup_target=2e-3, warmup_steps=min(200, steps // 4)
    )
    model.compile(
        keras.optimizers.Adam(rate, global_clipnorm=5.0),
        loss=keras_attn.SequenceCrossentropy(),
    )
    return model


def fit(split, preset: Preset, attention: str, beams: int, seed: int):
    keras.utils.set_random_seed(seed)
    words, spoken = common.cmudict.as_lines(split.train)
    letters, phonemes = make_texts(words, spoken)
    batches = math.ceil(len(words) / preset.batch_size)
    model = make_model(letters, phonemes, preset, attention, batches)
    lines = words, spoken, letters, phonemes
    data = keras_attn.pairs(*lines, batch_size=preset.batch_size, seed=seed)
    keras_attn.check(model, data)  # mistakes show now, not after training
    note = f" with {attention} attention"
    model.fit(
        data,
        epochs=preset.epochs,
        shuffle=False,  # as `pairs` does that
        callbacks=common.report.watch(model, split, letters, phonemes, note),
        verbose=1 if sys.stdout.isatty() else 2,
    )
    return make_translator(model, letters, phonemes, beams)


def make_translator(models, letters, phonemes, beams: int):
    search = keras_attn.BeamSearch(
        beams, num_hypotheses=min(beams, 3), max_length=common.cmudict.LONGEST
    )
    return keras_attn.Translator(models, letters, phonemes, search)


"""
## Evaluation

A word is right if the model gives any of its pronunciations. If it gives none,
the nearest one says how many phonemes are wrong.

For comparison: on this dictionary, with other words held out, CMUSphinx has a
word error rate of 33.9 % by its n-gram model and about 31 % by its large LSTM.
On the published split the n-gram has 24.4 %, and Yao and Zweig (2015) have
23.6 % with a phoneme error rate of 5.5 %. Do not compare across splits. If
the preset `demo` misses the rates in `common/report.py`, the exit status is 1.
"""


def train(output, prepared=None, **options):
    if prepared:
        return train_prepared(output, prepared, **options)
    return train_here(output, **options)


def train_here(output, preset, attention, beams, seed, split, words, **changes):
    started = time.monotonic()
    data = read_data(split, words)
    sizes = changed(preset, changes)
    translator = fit(data, sizes, attention, beams, seed)
    rates = finish(output, translator, data.test, split, beams, started)
    changes = changes.values()
    return common.report.judge(rates, preset, attention, split, words, *changes)


def changed(preset, changes) -> Preset:
    changes = {name: value for name, value in changes.items() if value}
    return PRESETS[preset]._replace(**changes)


def finish(output, translator, test, split, beams, started=None):
    origin = f"split in {split}" if split else "our own split"
    note = f" ({origin}), beam {beams}"
    rates = common.report.evaluate(translator, test, started, note)
    translator.save(output / "translator")
    print(f"\nSaved in {output / 'translator'}.")
    return rates


"""
## Training elsewhere

Texts and `pairs` need TensorFlow, the layers do not. `prepare` writes batches
of ids as arrays, two megabytes. `train --prepared` learns from these on any
backend of Keras, such as JAX on a machine with a GPU, with the options that
`prepare` was given. `score` then goes on here: it makes a translator of the
model, or of several models, an ensemble, and tests and saves it.
"""


def prepare(output, **options):
    data = read_data(options["split"], options["words"])
    parts = [common.cmudict.as_lines(part) for part in data[:2]]
    texts = make_texts(*parts[0])
    size = PRESETS[options["preset"]].batch_size
    common.prepared.write(output / "prepared", texts, parts, size, options)


def train_prepared(
    output, prepared, preset, attention, seed, epochs, units, **_
):
    keras.utils.set_random_seed(seed)
    data = common.prepared.read(prepared, seed)
    sizes = changed(preset, {"epochs": epochs, "units": units})
    model = make_model(*data.vocabularies, sizes, attention, len(data.train))
    common.prepared.fit(model, data, sizes.epochs, output)


def score(output, prepared, models, beams, split, words, **_):
    texts = common.prepared.read(prepared).texts()
    models = common.prepared.load_models(models, output)
    translator = make_translator(models, *texts, beams)
    finish(output, translator, read_data(split, words).test, split, beams)


"""
## Export, server, client

An export is a folder of numbered versions, each a SavedModel with the
vocabularies and the beam search inside. TensorFlow Serving takes it as it is.
For development, `python -m keras_attn_serving` is a server with the same
protocol and the same flags. The client needs no TensorFlow.
"""

EXPORT = "models/pronounce"  # a folder of models, as servers like it


def export(output):
    translator = common.command_line.load(output / "translator")
    print(f"Exported to {translator.export(output / EXPORT)}.")


def serve(output, port):
    common.serving.serve(output / EXPORT, port)


def query(word, server, output=None):
    from keras_attn_serving import Client

    with common.serving.plain_errors(), Client(server, "pronounce") as client:
        answer = client.predict(list(word), signature="nbest")
    common.report.print_alternatives(word, answer)


"""
## The picture, and all steps in turn

Every result knows what the model attended to, so the picture shows the very
decoding that was returned. `demo` takes all steps, one after the other.
"""


def plot(output, word, picture=None):
    picture = picture or output / "attention.png"
    picture.parent.mkdir(parents=True, exist_ok=True)
    result = common.command_line.load(output / "translator")([word])[0]
    keras_attn.plot_attention(result).savefig(picture)
    print(f"{word}: {result.text}. Its attention is drawn in {picture}.")


def demo(output, **options) -> int:
    started = time.monotonic()
    status = train_here(output, **options)
    export(output)
    print("\nAsking the server:")
    with common.serving.running_server(output / EXPORT) as address:
        query(common.cmudict.SHOWN, address)
    plot(output, common.cmudict.SHOWN[-1])
    print(f"All done in {time.monotonic() - started:.0f} s.")
    common.going_on.print_next("serve", "query YOUR WORDS")
    return status


def main(arguments: list[str] | None = None) -> int:
    commands = train, demo, prepare, score, export, serve, query, plot
    return common.command_line.run(commands, PRESETS, ATTENTIONS, arguments)


if __name__ == "__main__":
    sys.exit(main())
