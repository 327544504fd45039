"""A shortlist beside the whole vocabulary: what it saves of a search.

    python tests/benchmarks/shortlist.py            a minute or two
    python tests/benchmarks/shortlist.py --smoke    seconds

Beam search over a translator of LSTMs with 8,000 target tokens and random
weights: CPU time of one thread, median over rounds in which both take turns.
The lists have 20 tokens for each source token and 100 for all, as those of
`Shortlist.from_alignments`, drawn at random, so more of them differ than in
real lists. All texts are searched to the maximum length.
"""

import argparse
import sys
import time
from statistics import median

from worker import limit_threads

limit_threads(1)

import keras  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from keras import layers  # noqa: E402

import keras_attn  # noqa: E402

BEST, ALWAYS, SOURCE, LONGEST = 20, 100, 15, 20


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--smoke", action="store_true")
    args = parser.parse_args()
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
        calls = [
            tf.function(x.decode_ids, autograph=False) for x in translators
        ]
        times = [[], []]
        for n in range(rounds + 1):  # the first one traces
            for call, found in zip(calls, times, strict=True):
                start = time.process_time()
                call(tf.constant(ids)).tokens.numpy()
                if n:
                    found.append(time.process_time() - start)
        one, other = map(median, times)
        ratio = median(y / x for x, y in zip(*times, strict=True))
        print(
            f"| {texts} | {1e3 * one:.0f} ms | {1e3 * other:.0f} ms | "
            f"{ratio:.2f} |",
            flush=True,
        )
    return 0


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


def model(size, units):
    source = keras.Input((None,), dtype="int32")
    target = keras.Input((None,), dtype="int32")
    memory, h, c = layers.LSTM(units, return_sequences=True, return_state=True)(
        layers.Embedding(size, units, mask_zero=True)(source)
    )
    hidden = keras_attn.AttentionDecoder(
        layers.LSTMCell(units), keras_attn.BahdanauAttention(units)
    )(
        layers.Embedding(size, units, mask_zero=True)(target),
        memory,
        initial_state=[h, c],
    )
    return keras.Model([source, target], layers.Dense(size)(hidden))


if __name__ == "__main__":
    sys.exit(main())
