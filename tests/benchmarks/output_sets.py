"""Outputs of a set, `Among`, beside any output: time and memory by its size.

    python tests/benchmarks/output_sets.py            some minutes
    python tests/benchmarks/output_sets.py --smoke    seconds

A translator of LSTMs with 8,000 target tokens and random weights searches with
5 beams, all for 9 steps; the sets have texts of 8 tokens, drawn at random. CPU
time of one thread, median over rounds in which the searches take turns. Also
the memory of the table, and the seconds that a translator takes to make it.
"""

import argparse
import sys
import time
from statistics import median

from worker import limit_threads

limit_threads(1)

import numpy as np  # noqa: E402
from lstm_translator import graph  # noqa: E402
from lstm_translator import model  # noqa: E402

import keras_attn  # noqa: E402
from keras_attn import Among  # noqa: E402

SOURCE, LONGEST = 15, 9
ROWS = 1, 32


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--smoke", action="store_true")
    args = parser.parse_args()
    size, units = (150, 16) if args.smoke else (8000, 512)
    counts = (10, 100) if args.smoke else (10, 10_000, 1_000_000)
    words = [f"w{i}" for i in range(size - 4)]
    text = keras_attn.Text(words, split="whitespace")
    made = model(size, units)
    search = keras_attn.BeamSearch(5, max_length=LONGEST, min_length=LONGEST)
    plain = keras_attn.Translator(made, text, text, search)
    translators, notes = [plain], ["any output | 0"]
    for count in counts:
        rule = Among(drawn(words, count))
        start = time.perf_counter()
        bound = rule.bound(text, LONGEST)
        took = time.perf_counter() - start
        search = keras_attn.BeamSearch(5, max_length=LONGEST, rules=[bound])
        translators.append(keras_attn.Translator(made, text, text, search))
        table = sum(4 * int(np.prod(x.shape)) for x in bound.variables)
        notes.append(
            f"{count:,} texts, made in {took:.1f} s | {table / 1e6:.1f}"
        )
    calls = [graph(x) for x in translators]
    columns = [
        steps(calls, size, n, 1 if args.smoke else args.rounds) for n in ROWS
    ]
    print("| set | MB | ms a step, 1 row | 32 rows |")
    print("|---|---|---|---|")
    for i, note in enumerate(notes):
        times = (f"{1e3 * x[i]:.2f} ({x[i] / x[0]:.2f})" for x in columns)
        print(f"| {note} | {' | '.join(times)} |")
    return 0


def drawn(words, count):
    """Returns texts of so many words that an end makes the longest output."""
    random = np.random.default_rng(count)
    chosen = random.choice(words, (count, LONGEST - 1)).tolist()
    return [" ".join(x) for x in chosen]


def steps(calls, size, rows, rounds):
    """Returns the median time of a step of each search."""
    random = np.random.default_rng(1)
    times = [[] for _ in calls]
    for n in range(rounds + 1):
        ids = random.integers(4, size, (rows, SOURCE), "int32")
        for call, found in zip(calls, times, strict=True):
            start = time.process_time()
            lengths = call(ids).lengths.numpy()
            assert (lengths == LONGEST).all()
            if n:  # the first one traces
                took = time.process_time() - start
                found.append(took / LONGEST)
    return [median(x) for x in times]


if __name__ == "__main__":
    sys.exit(main())
