"""Terms that outputs must have, and a glossary: what they cost.

    python tests/benchmarks/terms.py            some minutes
    python tests/benchmarks/terms.py --smoke    seconds

A translator of LSTMs with 8,000 target tokens and random weights searches with
5 beams for 20 steps, without terms and with some of two tokens in each row.
Then a glossary finds the phrases of one to three words in a text of 20. CPU
time of one thread, median over rounds in which the columns take turns.
"""

import argparse
import sys
import time
from statistics import median

from worker import limit_threads

limit_threads(1)

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from lstm_translator import model  # noqa: E402

import keras_attn  # noqa: E402

WORDS, LONGEST = 20, 20
ROWS = 1, 32


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--smoke", action="store_true")
    args = parser.parse_args()
    size, units = (150, 16) if args.smoke else (8000, 512)
    rounds = 1 if args.smoke else args.rounds
    words = [f"w{i}" for i in range(size - 4)]
    text = keras_attn.Text(words, split="whitespace")
    search = keras_attn.BeamSearch(5, max_length=LONGEST, min_length=LONGEST)
    made = keras_attn.Translator(model(size, units), text, text, search)
    print("| terms of each row | ms a step, 1 row | 32 rows |")
    print("|---|---|---|")
    counts = 0, 1, 3, 8
    columns = [steps(made, words, counts, rows, rounds) for rows in ROWS]
    for count, *times in zip(counts, *columns, strict=True):
        without = (column[0] for column in columns)
        shown = (
            f"{1e3 * x:.2f} ({x / y:.2f})"
            for x, y in zip(times, without, strict=True)
        )
        print(f"| {count} | {' | '.join(shown)} |")
    print()
    print("| entries | made in s | ms a text | 32 texts |")
    print("|---|---|---|---|")
    for count in (10, 100) if args.smoke else (10, 10_000):
        seconds, glossary = of_entries(words, count)
        times = (lookups(glossary, words, rows, rounds) for rows in ROWS)
        shown = (f"{1e3 * x:.2f}" for x in times)
        print(f"| {count:,} | {seconds:.2f} | {' | '.join(shown)} |")
    return 0


def lines(random, words, rows, length=WORDS):
    chosen = random.choice(words, (rows, length)).tolist()
    return [" ".join(x) for x in chosen]


def steps(translator, words, counts, rows, rounds):
    """Returns the median time of a step for each number of terms."""
    random = np.random.default_rng(1)
    times = {count: [] for count in counts}
    for n in range(rounds + 1):
        texts = lines(random, words, rows)
        for count in counts:
            terms = None
            if count:
                terms = [lines(random, words, count, 2) for _ in texts]
            start = time.process_time()
            found = translator(texts, terms=terms)
            took = time.process_time() - start
            assert not any(found.missing)
            if n:  # the first one traces
                times[count].append(took / LONGEST)
    return [median(x) for x in times.values()]


def of_entries(words, count):
    """Returns a glossary, and the seconds in which it was made."""
    random = np.random.default_rng(2)
    entries: dict = {}
    while len(entries) < count:
        length = int(random.integers(1, 4))
        (phrase,) = lines(random, words, 1, length)
        entries[phrase] = f"<{phrase}>"
    start = time.perf_counter()
    made = keras_attn.Glossary(entries)
    _ = made.table
    return time.perf_counter() - start, made


def lookups(glossary, words, rows, rounds):
    """Returns the median time in which terms of texts are found."""
    random = np.random.default_rng(3)
    spec = tf.TensorSpec([None], tf.string)
    find = tf.function(glossary.terms_of, input_signature=[spec])
    times = []
    for n in range(10 * rounds + 1):
        texts = tf.constant(lines(random, words, rows))
        start = time.process_time()
        find(texts)
        if n:
            times.append(time.process_time() - start)
    return median(times)


if __name__ == "__main__":
    sys.exit(main())
