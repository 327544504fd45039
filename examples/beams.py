"""
Title: How many beams, and which length penalty?
Date created: 2026/11/23
Description: BLEU of one translator by beams and length penalty: a table.

Britz et al. (2017, table 7) translate with one model and beams of many widths:
a few beams are better than greedy search, more are not, and a length penalty is
needed. This program measures the same for the translator of `translate.py`:

    python examples/translate.py     # first: it trains and saves one
    python examples/beams.py

Each row is saved in a file as soon as it is done. After an interruption, start
the program again and it resumes.

It needs keras-attn with its extra `examples`. What all examples share is in
`common/`.
"""

import functools
import itertools
import time
from pathlib import Path

import common  # before Keras, as it silences TensorFlow's notes
from common import bleu
from common import rows
from common import sentences

import keras_attn

"""
## The searches

Greedy search has no length penalty, as it has nothing to compare. A beam search
divides the log-probability of a translation by `((5 + length) / 6) ** penalty`
(Wu et al., 2016). With the penalty 0 short translations win.
"""

BEAMS = 1, 3, 5, 10
PENALTIES = 0.0, 0.5, 1.0, 1.5
LONGEST = 100


def searches():
    """Yields what tells each search from the others, and the search."""
    yield (
        {"beams": "greedy", "length penalty": "-"},
        keras_attn.GreedySearch(max_length=LONGEST),
    )
    for beams, penalty in itertools.product(BEAMS, PENALTIES):
        search = keras_attn.BeamSearch(
            beams, length_penalty=penalty, max_length=LONGEST
        )
        yield {"beams": beams, "length penalty": penalty}, search


"""
## A row of the table

Beside BLEU, the ratio of lengths: how many words the translations have for one
word of the references.
"""


def measure(translator, search, test) -> dict:
    searching = translator.replace(search=search, shortlist=None)
    searching(test.sources[:1])  # makes the graph
    started = time.monotonic()
    found = searching(test.sources).text
    seconds = time.monotonic() - started
    score, _ = bleu.bleu(found, test.targets)
    lengths = [sum(len(x.split()) for x in y) for y in (found, test.targets)]
    return {
        "BLEU": round(score, 2),
        "ratio of lengths": round(lengths[0] / lengths[1], 3),
        "seconds": round(seconds, 1),
    }


def main(arguments: list[str] | None = None):
    options = common.command_line.parse(
        arguments,
        "Translates with beams of several widths, and compares their BLEU.",
        output="build/results",
        add_options=add_options,
        sentences=(None, "translate only so many, for a quick trial"),
    )
    translator = common.command_line.load(options.translator)
    pairs = sentences.read(options.files)
    test = sentences.split_by_hash(pairs).test.first(options.sentences)
    condition = {"translator": str(options.translator), "of": len(test.sources)}
    table = rows.Rows(options.output / "beams.jsonl", condition)
    for key, search in searches():
        table.add(key, functools.partial(measure, translator, search, test))
    print(f"\n{table.table()}\n\nKept in {table.file}.")


def add_options(parser):
    parser.add_argument(
        "--translator",
        type=Path,
        default=Path("build/translate/translator"),
        metavar="DIR",
        help="folder of the translator that `translate.py` saved",
    )
    sentences.add_files(parser)


if __name__ == "__main__":
    main()
