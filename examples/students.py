"""
Title: Means, ensembles and students
Date created: 2026/11/28
Description: What averaging, several models and distillation bring: a table.

One model can be better than its training left it. The mean of its last epochs
costs nothing (Vaswani et al., 2017). An ensemble of several models is better
than each, and as many times slower. A small student of that ensemble learns
what it writes, in place of what people wrote (Kim and Rush, 2016). This program
trains them all, with the models of `pronounce.py` or `translate.py`:

    python examples/students.py --task words        # three hours
    python examples/students.py --task sentences    # three hours

All models and results are saved. After an interruption, start the program again
with the same options and it resumes. Other options have models of their own.

It needs keras-attn with its extra `examples`. What all examples share is in
`common/`.
"""

import functools
import hashlib
import json
import time
from pathlib import Path
from typing import NamedTuple

import common  # before Keras, as it silences TensorFlow's notes
import keras
import pronounce
import translate
from common import bleu
from common import rows
from common import sentences

import keras_attn

"""
## Two tasks

Each has lines to train on, texts, models of two sizes, and a score on what is
held out. For words these are the presets `large` and `demo` of `pronounce.py`,
for sentences the model of `translate.py` and one of half its width. Both are
trained for the same number of epochs.
"""


class Size(NamedTuple):
    units: int
    epochs: int
    batch_size: int


class Words:
    """Letters to phonemes, on the CMU Pronouncing Dictionary."""

    def __init__(self, options):
        split = pronounce.read_data(options.split, options.number)
        self.train = common.cmudict.as_lines(split.train)
        self.sources = list(split.train)
        self._test = split.test
        self.texts = pronounce.make_texts(*self.train)
        sizes = sizes_of(options)
        self.teacher = pronounce.changed("large", sizes)
        self.student = pronounce.changed(
            "demo", {"epochs": self.teacher.epochs} | sizes
        )

    def model(self, size, batches: int):
        return pronounce.make_model(*self.texts, size, "bahdanau", batches)

    def search(self, beams: int):
        return keras_attn.BeamSearch(beams, max_length=common.cmudict.LONGEST)

    def score(self, translator) -> dict:
        rates = common.report.error_rates(translator, self._test)
        return {
            "words wrong, %": round(100 * rates.sequence, 2),
            "phonemes wrong, %": round(100 * rates.token, 2),
        }


class Sentences:
    """English to French, on the sentences of LibreOffice's help."""

    def __init__(self, options):
        pairs = sentences.read().first(options.number)
        split = sentences.split_by_hash(pairs)
        self.train, self._test = split.train, split.test
        self.sources = split.train.sources
        self.texts = [keras_attn.Text.train(x, 8000) for x in split.train]
        self.teacher, self.student = (
            Size(units, 8, translate.BATCH_SIZE)._replace(**sizes_of(options))
            for units in (256, 128)
        )

    def model(self, size, batches: int):
        return translate.make_model(*self.texts, size, batches)

    def search(self, beams: int):
        return keras_attn.BeamSearch(beams, length_penalty=1.0, max_length=100)

    def score(self, translator) -> dict:
        found = translator(self._test.sources).text
        return {
            "BLEU": round(bleu.bleu(found, self._test.targets)[0], 2),
            "chrF": round(
                keras_attn.metrics.chrf(found, self._test.targets), 2
            ),
        }


TASKS = {"words": Words, "sentences": Sentences}


def sizes_of(options) -> dict:
    given = {"units": options.units, "epochs": options.epochs}
    return {name: value for name, value in given.items() if value}


"""
## A training

The last five epochs stay as files, for their mean. `ResumeTraining` goes on
with a training that was stopped.
"""

LAST = 5


def fit(task, size, lines, seed: int, folder):
    if not (folder / "model.keras").exists():
        keras.utils.set_random_seed(seed)
        data = keras_attn.pairs(
            *lines, *task.texts, batch_size=size.batch_size, seed=seed
        )
        model = task.model(size, len(data))
        keras_attn.check(model, data)  # mistakes show now, not after training
        print(f"\nTraining {folder}, {model.count_params():,} parameters.")
        model.fit(
            data,
            epochs=size.epochs,
            shuffle=False,  # as `pairs` does that
            verbose=2,
            callbacks=[
                keras_attn.LastCheckpoints(folder / "last", keep=LAST),
                keras_attn.ResumeTraining(folder / "backup", data),
            ],
        )
        model.save(folder / "model.keras")
    return keras.saving.load_model(folder / "model.keras", compile=False)


def mean_of(folder):
    return keras_attn.average(sorted((folder / "last").glob("*.keras")))


def translator_of(task, models, beams: int):
    return keras_attn.Translator(models, *task.texts, task.search(beams))


"""
## The table

Every row is measured with one beam, which is greedy search, and with five.
"""


def measure(task, make) -> dict:
    models, found = make(), {}
    several = models if isinstance(models, list) else [models]
    found["parameters"] = sum(model.count_params() for model in several)
    for beams in 1, 5:
        translator = translator_of(task, models, beams)
        translator(task.sources[:1])  # makes the graph
        started = time.monotonic()
        scores = task.score(translator) | {
            "seconds": round(time.monotonic() - started, 1)
        }
        found |= {f"{name}, beam {beams}": x for name, x in scores.items()}
    return found


def main(arguments: list[str] | None = None):
    options = common.command_line.parse(
        arguments,
        "Compares a model with the mean of its last epochs, an ensemble, and a "
        "small model that learns from people or from the ensemble.",
        output="build/students",
        add_options=add_options,
        teachers=(3, "models of the ensemble"),
        number=(None, "use only so many words or sentences, for a trial"),
        units=(None, "width of all models, for a trial"),
        epochs=(None, "passes over the data, for a trial"),
    )
    task = TASKS[options.task](options)
    condition = {k: str(v) for k, v in vars(options).items() if k != "output"}
    digest = hashlib.sha256(json.dumps(condition, sort_keys=True).encode())
    folder = options.output / f"{options.task}-{digest.hexdigest()[:8]}"
    table = rows.Rows(options.output / "students.jsonl", condition)

    def add(model: str, make):
        table.add({"model": model}, functools.partial(measure, task, make))

    seeds = range(options.seed, options.seed + options.teachers)
    teachers = [folder / f"teacher-{seed}" for seed in seeds]
    large = functools.partial(fit, task, task.teacher, task.train)
    for seed, teacher in zip(seeds, teachers, strict=True):
        add(f"large, seed {seed}", functools.partial(large, seed, teacher))
        mean = functools.partial(mean_of, teacher)
        add(f"large, seed {seed}, mean of its last {LAST} epochs", mean)
    ensemble = [large(*one) for one in zip(seeds, teachers, strict=True)]
    add(f"ensemble of {len(ensemble)}", lambda: ensemble)

    teacher = translator_of(task, ensemble, beams=5)
    written = keras_attn.distill(
        teacher, task.sources, folder / "written.jsonl"
    )
    for name, lines in ("people", task.train), ("ensemble", written.best()):
        learner = folder / f"student-of-{name}"
        small = functools.partial(fit, task, task.student, lines)
        add(
            f"small, by what the {name} wrote",
            functools.partial(small, options.seed, learner),
        )
        mean = functools.partial(mean_of, learner)
        add(
            f"small, by what the {name} wrote, mean of its last {LAST} epochs",
            mean,
        )
    print(f"\n{table.table()}\n\nKept in {table.file}.")


def add_options(parser):
    parser.add_argument(
        "--task", choices=TASKS, default="words", help="what is learned"
    )
    parser.add_argument(
        "--split",
        type=Path,
        metavar="DIR",
        help="folder of the published split of words, as for `pronounce.py`",
    )


if __name__ == "__main__":
    main()
