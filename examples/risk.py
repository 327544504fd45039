"""
Title: The likeliest translation, or the safest?
Date created: 2026/11/27
Description: BLEU and chrF of beam search beside minimum Bayes risk: a table.

Eikema and Aziz (2020) doubt that the likeliest translation of a model is its
best one. They draw samples and take the one that is most like the others. This
program asks the translator of `translate.py` for both:

    python examples/translate.py     # first: it trains and saves one
    python examples/risk.py

Each row is saved in a file as soon as it is done. After an interruption, start
the program again and it resumes.

It needs keras-attn with its extra `examples`. What all examples share is in
`common/`.
"""

import functools
import time
from pathlib import Path

import common  # before Keras, as it silences TensorFlow's notes
from common import bleu
from common import rows
from common import sentences

import keras_attn

"""
## The ways to choose

The samples are those of the model as it is, at temperature 1. The candidates
are the samples themselves, or the five translations that a beam search finds
likeliest.
"""

SAMPLES = 8, 32, 128
LONGEST = 100


def ways(translator, metric: str):
    """Yields what tells each way from the others, and how to make it."""
    beams = keras_attn.BeamSearch(
        5, num_hypotheses=5, length_penalty=1.0, max_length=LONGEST
    )
    beam = functools.partial(translator.replace, search=beams, shortlist=None)
    yield {"samples": "-", "candidates": "beam 5", "by": "-"}, beam
    for candidates in "samples", "beam 5":
        for count in SAMPLES:
            yield (
                {"samples": count, "candidates": candidates, "by": metric},
                functools.partial(
                    safest, beam, count, metric, candidates == "beam 5"
                ),
            )


def safest(beam, count: int, metric: str, of_beams: bool):
    beam = beam()
    candidates = beam if of_beams else None
    risk = keras_attn.MinimumRisk(beam, count, metric, candidates)
    return functools.partial(risk, seed=1)


"""
## A row of the table
"""


def measure(make, test) -> dict:
    translate = make()
    translate(test.sources[:1])  # makes the graph
    started = time.monotonic()
    found = translate(test.sources).text
    seconds = time.monotonic() - started
    return {
        "BLEU": round(bleu.bleu(found, test.targets)[0], 2),
        "chrF": round(keras_attn.metrics.chrf(found, test.targets), 2),
        "seconds": round(seconds, 1),
    }


def main(arguments: list[str] | None = None):
    options = common.command_line.parse(
        arguments,
        "Translates by beam search and by minimum Bayes risk, and compares "
        "BLEU and chrF.",
        output="build/results",
        add_options=add_options,
        sentences=(None, "translate only so many, for a quick trial"),
    )
    translator = common.command_line.load(options.translator)
    pairs = sentences.read(options.files)
    test = sentences.split_by_hash(pairs).test.first(options.sentences)
    condition = {"translator": str(options.translator), "of": len(test.sources)}
    table = rows.Rows(options.output / "risk.jsonl", condition)
    for key, make in ways(translator, options.metric):
        table.add(key, functools.partial(measure, make, test))
    print(f"\n{table.table()}\n\nKept in {table.file}.")


def add_options(parser):
    parser.add_argument(
        "--translator",
        type=Path,
        default=Path("build/translate/translator"),
        metavar="DIR",
        help="folder of the translator that `translate.py` saved",
    )
    parser.add_argument(
        "--metric",
        choices=("chrf", "bleu"),
        default="chrf",
        help="how alike two translations are",
    )
    sentences.add_files(parser)


if __name__ == "__main__":
    main()
