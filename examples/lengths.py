"""
Title: What attention is for: long sources
Date created: 2026/11/23
Description: Scores by length, and gradients by distance, without and with it.

Without attention a source is read into one vector of fixed size, however long
it is. Bahdanau et al. (2015, figure 2) showed what that costs: the longer a
sentence, the worse its translation, and attention mends that. This program
draws the same figure for two tasks: sentences from English to French, and words
to phonemes.

It also draws why: how much the loss of an output token depends on each of the
encoder's states. Without attention the gradient has to pass through all states
in between.

    python examples/lengths.py                 # sentences: an hour
    python examples/lengths.py --task words    # words: a quarter of an hour

It needs keras-attn with its extra `examples`. What all examples share is in
`common/`.
"""

import itertools
import math
import time
from collections import namedtuple

import common  # before Keras, as it silences TensorFlow's notes
import keras
import numpy as np
import tensorflow as tf
from common import bleu
from common import cmudict
from common import sentences
from keras import layers
from keras import ops
from matplotlib import figure

import keras_attn

"""
## The tasks
"""


def read_sentences(options):
    split = sentences.split_by_hash(sentences.read().first(options.lines))
    texts = [keras_attn.Text.train(x, options.size) for x in split.train]
    return split.train, split.test, texts


def read_words(options):
    split = cmudict.read_or_split(None).first(options.lines)
    train, test = (sentences.Pairs(*cmudict.as_lines(x)) for x in split[::2])
    texts = [
        keras_attn.Text.from_lines(train.sources, "characters", lowercase=True),
        keras_attn.Text.from_lines(train.targets, "whitespace"),
    ]
    return train, test, texts


"""
## The model

One GRU reads the source and one writes the target, with attention or without:
nothing else differs. The encoder reads in one direction, so that "how far away"
has one meaning.

To know how the loss depends on a state of the encoder, something is added to
the state that is zero, the probe. The gradient of the loss with respect to the
probe is that of the state, with all that the state does to later ones.
"""


class Probed(layers.Layer):
    def __init__(self, cell, **kwargs):
        super().__init__(**kwargs)
        self.cell, self.state_size = cell, cell.state_size

    def build(self, shape):
        self.cell.build((*shape[:-1], shape[-1] - self.state_size))

    def call(self, inputs, states, training=False):
        inputs, probe = ops.split(
            inputs, [inputs.shape[-1] - self.state_size], axis=-1
        )
        output, _ = self.cell(inputs, states, training=training)
        return output + probe, [output + probe]


def build_model(texts, units: int, attends: bool, probed: bool = False):
    inputs = [keras.Input((None,), dtype="int32") for _ in texts]
    source, target = (
        layers.Dropout(0.2)(
            layers.Embedding(
                text.size,
                units // 2,
                keras.initializers.RandomNormal(stddev=0.1),
                mask_zero=True,
            )(ids)
        )
        for ids, text in zip(inputs, texts, strict=True)
    )
    cell = keras_attn.GRUCell(units)
    if probed:
        inputs.append(keras.Input((None, units)))
        source = layers.Concatenate()([source, inputs[-1]])
        cell = Probed(cell)
    encoder = layers.RNN(cell, return_sequences=True, return_state=True)
    memory, last = encoder(source)
    attention = keras_attn.BahdanauAttention(units // 2) if attends else None
    decoder = keras_attn.AttentionDecoder(keras_attn.GRUCell(units), attention)
    where = [memory] if attends else []
    decoded = decoder(target, *where, initial_state=last)
    logits = layers.Dense(texts[1].size)(layers.Dropout(0.2)(decoded))
    return keras.Model(inputs, logits)


def train(pairs, texts, options, attends: bool):
    keras.utils.set_random_seed(options.seed)
    model = build_model(texts, options.units, attends)
    data = keras_attn.pairs(*pairs, *texts, batch_size=64, seed=options.seed)
    steps = options.epochs * len(data)
    rate = keras.optimizers.schedules.CosineDecay(
        0.0, steps, warmup_target=1.5e-3, warmup_steps=min(400, steps // 4)
    )
    model.compile(
        keras.optimizers.Adam(rate, global_clipnorm=5.0),
        loss=keras_attn.SequenceCrossentropy(),
    )
    model.fit(data, epochs=options.epochs, shuffle=False, verbose=2)
    return model


"""
## Scores by length

Sentences are scored by BLEU, words by the share of phonemes that are right.
"""


def by_length(model, texts, task, test):
    """Returns the score of the sources of each of `task.bins` of lengths."""
    search = keras_attn.BeamSearch(5, length_penalty=1.0, max_length=100)
    found = keras_attn.Translator(model, *texts, search)(test.sources).text
    lengths = [len(task.split(source)) for source in test.sources]
    scores = []
    for first, last in itertools.pairwise(task.bins):
        here = [i for i, n in enumerate(lengths) if first <= n < last]
        pairs = [[some[i] for i in here] for some in (found, test.targets)]
        scores.append(task.score(*pairs) if here else math.nan)
    return scores


def phonemes_right(found, targets):
    rates = keras_attn.metrics.error_rates(
        [x.split() for x in found], [[x.split()] for x in targets]
    )
    return 100 * (1 - float(rates.token))


"""
## Gradients by distance

The distance of a state is the number of states between it and the end of the
source, where the decoder starts.
"""


def by_distance(model, texts, task, test, units: int, attends: bool):
    """Returns the norm of the loss's gradient at each distance, a mean."""
    probed = build_model(texts, units, attends, probed=True)
    probed.set_weights(model.get_weights())
    loss = keras_attn.SequenceCrossentropy()
    norms = []
    for source, target in zip(*test, strict=True):
        ids = texts[0].ids([source])
        if ids.shape[1] < task.distances:
            continue
        read = texts[1].ids([target], start=True)
        probe = tf.zeros((1, ids.shape[1], units))
        with tf.GradientTape() as tape:
            tape.watch(probe)
            logits = probed([ids, read[:, :-1], probe], training=False)
            value = loss(read[:, 1:], logits)
        gradient = tape.gradient(value, probe)[0]
        norms.append(np.linalg.norm(gradient, axis=-1)[::-1])
        if len(norms) == 100:
            break
    return np.mean([x[: task.distances] for x in norms], axis=0)


"""
## The figure
"""


def draw(results, task, path):
    picture = figure.Figure((9, 3.6), layout="constrained")
    left, right = picture.subplots(1, 2)
    middles = [(a + b - 1) / 2 for a, b in itertools.pairwise(task.bins)]
    for name, (scores, norms) in results.items():
        left.plot(middles, scores, "o-", label=name)
        right.semilogy(norms, label=name)
    left.set(xlabel=f"{task.unit} of the source", ylabel=task.scored_by)
    left.set_ylim(bottom=0)
    right.set(
        xlabel="distance from the end of the source",
        ylabel="gradient of the loss, norm",
    )
    left.legend()
    picture.savefig(path, dpi=150)


Task = namedtuple("Task", "read split score bins distances unit scored_by")
TASKS = {
    "sentences": Task(
        read_sentences,
        split=str.split,
        score=lambda *pairs: bleu.bleu(*pairs)[0],
        bins=(1, 6, 11, 16, 21, 26, 41),
        distances=30,
        unit="words",
        scored_by="BLEU",
    ),
    "words": Task(
        read_words,
        split=list,
        score=phonemes_right,
        bins=(1, 4, 6, 8, 10, 12, 14, 20),
        distances=12,
        unit="letters",
        scored_by="phonemes right, %",
    ),
}


def main(arguments: list[str] | None = None):
    options = common.command_line.parse(
        arguments,
        "Draws how well long sources are read without and with attention.",
        output="build/results",
        add_options=lambda parser: parser.add_argument(
            "--task", choices=TASKS, default="sentences", help="what to learn"
        ),
        epochs=(8, "passes over the data"),
        units=(256, "width of the model"),
        size=(8000, "tokens of each language, for sentences"),
        lines=(None, "use only so many, for a quick trial"),
    )
    task = TASKS[options.task]
    learned, test, texts = task.read(options)
    results = {}
    for name, attends in {
        "without attention": False,
        "with attention": True,
    }.items():
        started = time.monotonic()
        model = train(learned, texts, options, attends)
        print(f"Trained {name} in {time.monotonic() - started:.0f} s.")
        results[name] = (
            by_length(model, texts, task, test),
            by_distance(model, texts, task, test, options.units, attends),
        )
    print(f"\n{table(results, task)}")
    options.output.mkdir(parents=True, exist_ok=True)
    path = options.output / f"lengths-{options.task}.png"
    draw(results, task, path)
    print(f"\nDrawn in {path}.")


def table(results, task) -> str:
    bins = [f"{a} to {b - 1}" for a, b in itertools.pairwise(task.bins)]
    lines = [
        [f"{task.scored_by}, by {task.unit}", *bins],
        ["---"] * (len(bins) + 1),
    ]
    for name, (scores, _) in results.items():
        lines.append([name, *(f"{x:.1f}" for x in scores)])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


if __name__ == "__main__":
    main()
