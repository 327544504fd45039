"""
Title: Every attention on the same task
Date created: 2026/11/23
Description: CMUdict with none, and with each attention: a table of error rates.

Which attention should you use? Here each learns the same task, from letters to
phonemes, with the same encoder, data, updates and seed. The result is a table
of error rates, parameters and times.

    python examples/attentions.py                        # half an hour
    python examples/attentions.py --full                 # hours
    python examples/attentions.py --split DIR            # on the papers' split
    python examples/attentions.py --rows none bahdanau   # only these

Each row is saved in a file as soon as it is done. After an interruption, start
the program again and it resumes.

It needs keras-attn with its extra `examples`. What all examples share is in
`common/`.
"""

import functools
import time
from collections import namedtuple
from pathlib import Path

import common  # before Keras, as it silences TensorFlow's notes
import keras
from common import cmudict
from common import rows
from keras import layers

import keras_attn

"""
## The decoders

Each takes the embedded target, the memory, the target's ids and the encoder's
last state, and returns the logits. Three kinds of decoders cover them all.

An `AttentionDecoder` attends before its cell's step ("pre"), as Bahdanau et al.
do, or after it ("post"), as Luong et al. do. With no attention it is the plain
encoder-decoder.
"""

Attention = keras_attn.Attention
Luong = keras_attn.LuongAttention
Additive = keras_attn.AdditiveScore


def soft(order, attention):
    def decode(inputs, memory, ids, state, sizes, size):
        one = attention(sizes.units) if attention else None
        decoder = keras_attn.AttentionDecoder(
            keras_attn.GRUCell(sizes.units), one, order=order, bridge="dense"
        )
        where = [memory] if one else []
        decoded = decoder(inputs, *where, initial_state=state)
        return [layers.Dense(size)(layers.Dropout(sizes.dropout)(decoded))]

    return decode


"""
REINFORCE draws a position, so the model returns two more tensors, by which
`ReinforceModel` estimates the gradient.
"""


def reinforced(inputs, memory, ids, state, sizes, size):
    attention = Attention(
        Additive(sizes.units), keras_attn.ReinforceAlignment()
    )
    decoded, *drawn = keras_attn.AttentionDecoder(
        keras_attn.GRUCell(sizes.units), attention, bridge="dense"
    )(inputs, memory, initial_state=state, return_samples=True)
    logits = layers.Dense(size)(layers.Dropout(sizes.dropout)(decoded))
    return [logits, *drawn]


"""
`MarginalDecoder` sums over all ways to choose one position at each step, so it
gives the tokens' probabilities itself.
"""


def summed(order, monotonic):
    def decode(inputs, memory, ids, state, sizes, size):
        decoder = keras_attn.MarginalDecoder(
            keras_attn.GRUCell(sizes.units),
            size,
            order=order,
            monotonic=monotonic,
            units=sizes.units,
            bridge="dense",
        )
        return [decoder(inputs, memory, ids, initial_state=state)]

    return decode


LONGEST_WORD = 40  # letters, for the score that looks at positions alone
DECODERS = {
    "none": soft("pre", None),
    "luong-location": soft(
        "post", lambda _: Luong("location", max_source=LONGEST_WORD)
    ),
    "luong-dot": soft("post", lambda _: Luong("dot")),
    "luong-general": soft("post", lambda _: Luong("general")),
    "luong-concat": soft("post", lambda units: Luong("concat", units=units)),
    "local-m": soft(
        "post", lambda _: Luong("general", alignment="local-m", window=3)
    ),
    "local-p": soft(
        "post", lambda _: Luong("general", alignment="local-p", window=3)
    ),
    "scaled-dot": soft("post", lambda _: keras_attn.ScaledDotAttention()),
    "cosine": soft("post", lambda _: Attention(keras_attn.CosineScore())),
    "bahdanau": soft("pre", keras_attn.BahdanauAttention),
    "location-sensitive": soft(
        "pre",
        lambda units: Attention(keras_attn.LocationSensitiveScore(units)),
    ),
    "monotonic": soft(
        "pre",
        lambda units: Attention(
            Additive(units),
            keras_attn.MonotonicAlignment(noise=1.0, hard_inference=True),
        ),
    ),
    "hard, straight-through": soft(
        "pre",
        lambda units: Attention(Additive(units), keras_attn.HardAlignment()),
    ),
    "hard, REINFORCE": reinforced,
    "hard, summed, order 0": summed(0, False),
    "hard, summed, order 0, monotonic": summed(0, True),
    "hard, summed, order 1": summed(1, False),
    "hard, summed, order 1, monotonic": summed(1, True),
}


"""
## The model around them
"""

Sizes = namedtuple("Sizes", "units embedding dropout batch_size epochs")
LIGHT = Sizes(128, 32, 0.1, 64, 3)
FULL = Sizes(256, 64, 0.1, 64, 5)


def build_model(letters, phonemes, sizes: Sizes, decode):
    source = keras.Input((None,), dtype="int32", name="source")
    target = keras.Input((None,), dtype="int32", name="target")
    embed = functools.partial(layers.Embedding, mask_zero=True)
    drop = functools.partial(layers.Dropout, sizes.dropout)

    embedded = drop()(embed(letters.size, sizes.embedding)(source))
    encoder = layers.Bidirectional(
        layers.GRU(sizes.units // 2, return_sequences=True, return_state=True)
    )
    memory, *state = encoder(embedded)
    inputs = drop()(embed(phonemes.size, sizes.embedding)(target))
    outputs = decode(
        inputs, drop()(memory), target, state, sizes, phonemes.size
    )
    if len(outputs) > 1:
        return keras_attn.ReinforceModel([source, target], outputs)
    return keras.Model([source, target], outputs[0])


def train(split, sizes: Sizes, decode, seed: int):
    keras.utils.set_random_seed(seed)
    lines = cmudict.as_lines(split.train)
    texts = (
        keras_attn.Text.from_lines(lines[0], "characters", lowercase=True),
        keras_attn.Text.from_lines(lines[1], "whitespace"),
    )
    model = build_model(*texts, sizes, decode)
    data = keras_attn.pairs(
        *lines, *texts, batch_size=sizes.batch_size, seed=seed
    )
    steps = sizes.epochs * len(data)
    rate = keras.optimizers.schedules.CosineDecay(
        0.0, steps, warmup_target=2e-3, warmup_steps=min(200, steps // 4)
    )
    model.compile(
        keras.optimizers.Adam(rate, global_clipnorm=5.0),
        loss=keras_attn.SequenceCrossentropy(),
    )
    model.fit(data, epochs=sizes.epochs, shuffle=False, verbose=2)
    decoded = keras.Model(model.inputs, model.outputs[0])
    search = keras_attn.GreedySearch(cmudict.LONGEST)
    return keras_attn.Translator(decoded, *texts, search=search)


"""
## A row of the table

Decoding is greedy. A word is right if it comes out as any of its
pronunciations, and the phoneme error rate counts the edits to the nearest.
"""


def measure(split, sizes: Sizes, name: str, seed: int) -> dict:
    started = time.monotonic()
    translator = train(split, sizes, DECODERS[name], seed)
    trained = time.monotonic()
    rates = common.report.error_rates(translator, split.test)
    return {
        "parameters": translator.model.count_params(),
        "word error rate": round(100 * float(rates.sequence), 2),
        "phoneme error rate": round(100 * float(rates.token), 2),
        "seconds of training": round(trained - started),
    }


def main(arguments: list[str] | None = None):
    options = common.command_line.parse(
        arguments,
        "Compares all attentions on the same task.",
        output="build/results",
        add_options=add_options,
        attentions=DECODERS,
        words=(None, "use only so many, for a quick trial"),
        seeds=(1, "number of rows of each, with one seed after another"),
    )
    sizes = FULL if options.full else LIGHT
    split = cmudict.read_or_split(options.split).first(options.words)
    condition = sizes._asdict() | {
        "words": options.words or "all",
        "split": "published" if options.split else "our own",
    }
    table = rows.Rows(options.output / "attentions.jsonl", condition)
    for seed in range(options.seed, options.seed + options.seeds):
        for name in options.rows:
            run = functools.partial(measure, split, sizes, name, seed)
            table.add({"attention": name, "seed": seed}, run)
    print(f"\n{table.table()}\n\nKept in {table.file}.")


def add_options(parser):
    add = parser.add_argument
    add("--full", action="store_true", help="train wider models for longer")
    add("--split", type=Path, metavar="DIR", help="folder of the papers' split")


if __name__ == "__main__":
    main()
