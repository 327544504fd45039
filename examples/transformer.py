"""
Title: A Transformer of Keras's own layers
Date created: 2026/11/21
Description: Letters to phonemes without recurrence, decoded and served alike.

`pronounce.py` reads and writes with recurrent layers. This program does the
same task with a Transformer (Vaswani et al., 2017) of Keras's own layers, again
an ordinary functional model. The `Translator` finds its causal attentions,
keeps their keys and values from step to step, and computes those of the source
once. Search, export, server and heat map work as for any other model.

    python examples/transformer.py         # trains, exports, serves, draws

It needs keras-attn with its extra `examples`, and keras-attn-serving with its
extra `server`. What all examples share is in `common/`.
"""

import math
import time

import common  # before Keras, as it silences TensorFlow's notes
import keras
from keras import layers

import keras_attn

"""
## The model

Each sublayer normalizes its input first, which makes training easier (Xiong
et al., 2020). Three things let the model be decoded a token at a time. The
self-attention of the target has `use_causal_mask=True`. The layer that adds
positions takes `start_index`, so it can be told where it is. All other layers
treat each position alone.
"""

DROPOUT = 0.1


def attend(x, memory=None, *, units: int, heads: int, causal: bool = False):
    """Attends to `x` itself, or to what the encoder wrote."""
    query = value = layers.LayerNormalization()(x)
    if memory is not None:
        # Keras's layer takes the mask off its value. A second layer with the
        # same value would see the padding, so each has a value of its own.
        value = layers.LayerNormalization()(memory)
    attention = layers.MultiHeadAttention(
        heads, units // heads, dropout=DROPOUT
    )
    found = attention(query, value, use_causal_mask=causal)
    return layers.Add()([x, layers.Dropout(DROPOUT)(found)])


def think(x, *, units: int):
    """Applies two dense layers to each position."""
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
## Data and training

As in `pronounce.py`, but with a longer warm-up and a smoothed loss, which
Transformers need.
"""


def fit(split, options):
    epochs, seed = options.epochs, options.seed
    keras.utils.set_random_seed(seed)
    words, spoken = common.cmudict.as_lines(split.train)
    letters = keras_attn.Text.from_lines(
        words, split="characters", lowercase=True
    )
    phonemes = keras_attn.Text.from_lines(spoken, split="whitespace")
    model = build_model(letters, phonemes, options.units, options.depth)
    data = keras_attn.pairs(
        words, spoken, letters, phonemes, batch_size=128, seed=seed
    )
    steps = epochs * len(data)
    rate = keras.optimizers.schedules.CosineDecay(
        0.0, steps, warmup_target=2e-3, warmup_steps=min(1000, steps // 4)
    )
    model.compile(
        keras.optimizers.Adam(rate, beta_2=0.98, global_clipnorm=1.0),
        loss=keras_attn.SequenceCrossentropy(label_smoothing=0.1),
    )
    keras_attn.check(model, data)  # mistakes show now, not after training
    watch = common.report.watch(model, split, letters, phonemes)
    model.fit(  # `pairs` shuffles
        data, epochs=epochs, shuffle=False, callbacks=watch, verbose=2
    )
    search = keras_attn.BeamSearch(
        5, num_hypotheses=3, max_length=common.cmudict.LONGEST
    )
    return keras_attn.Translator(model, letters, phonemes, search)


"""
## Export, server, client and picture
"""


def main(arguments: list[str] | None = None):
    options = common.command_line.parse(
        arguments,
        "Learns to pronounce English words with a Transformer of Keras "
        "layers, exports it, serves it and draws what it attends to.",
        output="build/transformer",
        epochs=(8, "passes over the words"),
        units=(128, "width of the model"),
        depth=(2, "layers on either side"),
        words=(None, "use only so many, for a quick trial"),
    )
    words = common.cmudict.read()
    split = common.cmudict.split_by_hash(words).first(options.words)
    started = time.monotonic()
    translator = fit(split, options)
    common.report.evaluate(translator, split.test, started)

    folder, shown = options.output / "models/pronounce", common.cmudict.SHOWN
    print(f"\nExported to {translator.export(folder)}. The server says:")
    answer = common.serving.ask(folder, list(shown), signature="nbest")
    common.report.print_alternatives(shown, answer)
    picture = options.output / "attention.png"
    result = translator([shown[-1]])[0]
    keras_attn.plot_attention(result).savefig(picture)
    print(f"{shown[-1]}: {result.text}. Its attention is drawn in {picture}.")


if __name__ == "__main__":
    main()
