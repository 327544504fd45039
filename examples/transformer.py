"""
Title: A Transformer of Keras's own layers
Date created: 2026/11/21
Description: Letters to phonemes without recurrence, decoded and served alike.

`pronounce.py` reads and writes with recurrent layers. This program does the
same task, on the same words, with a Transformer (Vaswani et al., 2017) of
`keras.layers.MultiHeadAttention`: an ordinary functional model again. The
`Translator` finds the causal attentions in it, keeps their keys and values
from step to step and computes those of the source once; beam search, scores,
export, server and heat map are as they are for any other model.

    python examples/transformer.py         # trains, exports, serves, draws

It needs keras-attn with its extra `examples`, and keras-attn-serving with its
extra `server`.
"""

import argparse
import math
import os
import sys
import time
from pathlib import Path

# Before TensorFlow starts: its notes on this machine's hardware are no errors.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras  # noqa: E402
import pronounce  # noqa: E402
from keras import layers  # noqa: E402
from pronounce import Progress  # noqa: E402
from pronounce import Split  # noqa: E402
from pronounce import first  # noqa: E402
from pronounce import positive  # noqa: E402

import keras_attn  # noqa: E402

"""
## The model

Layer normalisation comes first in each sublayer, which trains without ado
(Xiong et al., 2020). Three things make it one that can be decoded a token at
a time: self-attention over the target says `use_causal_mask=True`; positions
come from a layer that is told where it is, by `start_index`; and everything
else treats each position alone. Nothing else is special, and nothing is
written twice.
"""

DROPOUT = 0.1


def attend(x, memory=None, *, units: int, heads: int, causal: bool = False):
    """A sublayer: to itself, or to what the encoder says."""
    query = value = layers.LayerNormalization()(x)
    if memory is not None:
        # Each sublayer its own tensor: Keras's layer takes the mask off its
        # value, and a second one that read the same would see the padding.
        value = layers.LayerNormalization()(memory)
    attention = layers.MultiHeadAttention(
        heads, units // heads, dropout=DROPOUT
    )
    found = attention(query, value, use_causal_mask=causal)
    return layers.Add()([x, layers.Dropout(DROPOUT)(found)])


def think(x, *, units: int):
    """The other sublayer: two dense layers, for each position."""
    hidden = layers.LayerNormalization()(x)
    hidden = layers.Dense(4 * units, activation="relu")(hidden)
    hidden = layers.Dense(units)(hidden)
    return layers.Add()([x, layers.Dropout(DROPOUT)(hidden)])


def embed(ids, size: int, units: int):
    x = layers.Embedding(size, units, mask_zero=True)(ids)
    x = layers.Rescaling(math.sqrt(units))(x)
    x = keras_attn.SinePositionEncoding()(x)
    return layers.Dropout(DROPOUT)(x)


def build_model(letters, phonemes, units: int, depth: int, heads: int = 4):
    source = keras.Input((None,), dtype="int32", name="source")
    target = keras.Input((None,), dtype="int32", name="target")

    x = embed(source, letters.size, units)
    for _ in range(depth):
        x = attend(x, units=units, heads=heads)
        x = think(x, units=units)
    memory = x

    x = embed(target, phonemes.size, units)
    for _ in range(depth):
        x = attend(x, units=units, heads=heads, causal=True)
        x = attend(x, memory, units=units, heads=heads)
        x = think(x, units=units)
    x = layers.LayerNormalization()(x)
    return keras.Model([source, target], layers.Dense(phonemes.size)(x))


"""
## Training

As in `pronounce.py`, but for a longer warm-up and a smoothed loss, which
Transformers want.
"""


def train(split: Split, options):
    keras.utils.set_random_seed(options.seed)
    words = [w for w, several in split.train.items() for _ in several]
    spoken = [one for several in split.train.values() for one in several]
    letters = keras_attn.Text.from_lines(
        words, split="characters", lowercase=True
    )
    phonemes = keras_attn.Text.from_lines(spoken, split="whitespace")
    model = build_model(letters, phonemes, options.units, options.depth)
    data = keras_attn.pairs(
        words, spoken, letters, phonemes, batch_size=128, seed=options.seed
    )
    steps = options.epochs * len(data)
    rate = keras.optimizers.schedules.CosineDecay(
        0.0, steps, warmup_target=2e-3, warmup_steps=min(1000, steps // 4)
    )
    model.compile(
        keras.optimizers.Adam(rate, beta_2=0.98, global_clipnorm=1.0),
        loss=keras_attn.SequenceCrossentropy(label_smoothing=0.1),
    )
    keras_attn.check(model, data)  # mistakes show now, not after training
    print(
        f"Training on {len(split.train):,} words, "
        f"{model.count_params():,} parameters, {options.epochs} epochs."
    )
    greedy = keras_attn.Translator(
        model, letters, phonemes, keras_attn.GreedySearch(pronounce.LONGEST)
    )
    model.fit(
        data,
        epochs=options.epochs,
        shuffle=False,  # as `pairs` does that
        callbacks=[Progress(greedy, first(split.validation, 500))],
        verbose=0,
    )
    search = keras_attn.BeamSearch(
        5, num_hypotheses=3, max_length=pronounce.LONGEST
    )
    return keras_attn.Translator(model, letters, phonemes, search)


"""
## All of it
"""


def main(arguments: list[str] | None = None):
    options = parse(arguments)
    sys.stdout.reconfigure(line_buffering=True)  # progress, through pipes too
    split = pronounce.split_by_hash(pronounce.read_dictionary())
    if options.words:
        split = Split(*(first(part, options.words) for part in split))
    started = time.monotonic()
    translator = train(split, options)
    seconds = time.monotonic() - started
    rates = pronounce.score(translator, split.test)
    print(
        f"\nTrained in {seconds:.0f} s. On {len(split.test):,} words held out:"
        f"\n  word error rate {rates.sequence:.2%}, "
        f"phoneme error rate {rates.token:.2%}"
    )
    pronounce.show(translator, split.test)

    folder = options.output / "models" / "pronounce"
    print(f"\nExported to {translator.export(folder)}. The server says:")
    with pronounce.running_server(folder) as address:
        pronounce.query(address, pronounce.SHOWN)
    picture = options.output / "attention.png"
    pronounce.plot(translator, pronounce.SHOWN[-1], picture)


def parse(arguments):
    parser = argparse.ArgumentParser(
        description="Learns to pronounce English words with a Transformer of "
        "Keras layers, exports it, serves it and draws what it attends to.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--epochs", type=positive, default=8, help="passes over the words")
    add("--units", type=positive, default=128, help="width of the model")
    add("--depth", type=positive, default=2, help="layers on either side")
    add("--words", type=positive, help="use only so many, for a quick trial")
    add("--seed", type=int, default=1, help="of weights and batches")
    add(
        "--output",
        type=Path,
        default=Path("build/transformer"),
        help="folder of the export and the picture",
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
