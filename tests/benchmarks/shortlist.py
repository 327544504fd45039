"""A shortlist beside the whole vocabulary: what it saves of a search.

    python tests/benchmarks/shortlist.py            a minute or two
    python tests/benchmarks/shortlist.py --smoke    seconds
    python tests/benchmarks/shortlist.py --translator build/translate/translator

CPU time of one thread of a beam search with 5 beams, median over rounds in
which both take turns.

By default a translator of LSTMs with 8,000 target tokens and random weights.
The lists have 20 tokens for each source token and 100 for all, as those of
`Shortlist.from_alignments`, drawn at random, so more of them differ than in
real lists. All texts are searched to the maximum length.

With `--translator`, the one that `examples/translate.py` trained and saved,
and the sentences that it held out, each in a batch of its own and 32 in one.
It also prints BLEU with and without the shortlist.
"""

import argparse
import sys
import time
from pathlib import Path
from statistics import median

from worker import limit_threads

limit_threads(1)

import numpy as np  # noqa: E402
from lstm_translator import graph  # noqa: E402
from lstm_translator import model  # noqa: E402

import keras_attn  # noqa: E402

BEST, ALWAYS, SOURCE, LONGEST = 20, 100, 15, 20


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument(
        "--translator",
        type=Path,
        metavar="DIR",
        help="a translator that examples/translate.py saved",
    )
    args = parser.parse_args()
    if args.translator:
        return on_sentences(args.translator, args.rounds)
    size, units = (150, 16) if args.smoke else (8000, 512)
    rounds = 1 if args.smoke else args.rounds
    translators = both(size, units)
    print("| texts | whole vocabulary | shortlist | ratio |")
    print("|---|---|---|---|")
    for texts in (1, 2) if args.smoke else (1, 32):
        random = np.random.default_rng(1)
        # As in text, the n-th token occurs in proportion to 1 / n.
        shares = 1 / np.arange(1, size - 3)
        ids = random.choice(
            np.arange(4, size, dtype="int32"),
            (texts, SOURCE),
            p=shares / shares.sum(),
        )
        compare([graph(x) for x in translators], [ids] * rounds)
    return 0


def on_sentences(folder, rounds):
    """Times and scores a trained translator."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
    from common import bleu
    from common import sentences

    trained = keras_attn.Translator.load(folder)
    without = keras_attn.Translator(
        trained.model,
        trained.source_text,
        trained.target_text,
        trained.search,
        replace_unknown=trained.replace_unknown,
    )
    translators = without, trained
    test = sentences.split_by_hash(sentences.read()).test
    print("| texts | whole vocabulary | shortlist | ratio |")
    print("|---|---|---|---|")
    for texts, batches in (1, 5 * rounds), (32, rounds):
        batches = [
            trained.source_text.ids(test.sources[n * texts : (n + 1) * texts])
            for n in range(batches)
        ]
        compare([graph(x) for x in translators], batches)
    for name, translator in zip(("without", "with"), translators, strict=True):
        found = translator(test.sources).text
        score, signature = bleu.bleu(found, test.targets)
        print(f"BLEU {name}: {score:.2f}   {signature}")
    return 0


def compare(calls, batches):
    """Prints a row: CPU times of two calls, and their ratio."""
    times = [[], []]
    for n, ids in enumerate([batches[0], *batches]):
        for call, found in zip(calls, times, strict=True):
            start = time.process_time()
            call(ids).tokens.numpy()
            if n:  # the first one traces
                found.append(time.process_time() - start)
    one, other = map(median, times)
    ratio = median(y / x for x, y in zip(*times, strict=True))
    print(
        f"| {len(batches[0])} | {1e3 * one:.0f} ms | {1e3 * other:.0f} ms | "
        f"{ratio:.2f} |",
        flush=True,
    )


def both(size, units):
    """A translator without and one with a shortlist."""
    words = [f"w{i}" for i in range(size - 4)]
    text = keras_attn.Text(words, split="whitespace")
    random = np.random.default_rng(0)
    table = random.integers(4, size, (size, BEST))
    short = keras_attn.Shortlist(table, np.arange(4, 4 + ALWAYS))
    search = keras_attn.BeamSearch(5, max_length=LONGEST, min_length=LONGEST)
    made = model(size, units)
    return [
        keras_attn.Translator(made, text, text, search, shortlist=x)
        for x in (None, short)
    ]


if __name__ == "__main__":
    sys.exit(main())
