"""Local attention beside global: what a step costs as sources grow longer.

    python tests/benchmarks/local.py            a minute or two
    python tests/benchmarks/local.py --smoke    seconds

A step of 64 queries with the additive score, keys projected before, in a
`tf.function`: CPU time of one thread, median over rounds in which all
attentions take turns. A local attention chooses its window before it scores,
so its step should not grow with the source but for the alignments that it
returns, a row as long as the source.
"""

import argparse
import sys
import time
from statistics import median

from worker import limit_threads

limit_threads(1)

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

import keras_attn  # noqa: E402

BATCH, DIM, UNITS, WINDOW = 64, 256, 256, 10
ALIGNMENTS = {
    "global": keras_attn.SoftmaxAlignment,
    "local-m": lambda: keras_attn.LocalMonotonicAlignment(WINDOW),
    "local-p": lambda: keras_attn.LocalPredictiveAlignment(WINDOW),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--smoke", action="store_true")
    args = parser.parse_args()
    lengths = [32, 64] if args.smoke else [50, 100, 200, 400, 800, 1600]
    rounds = 1 if args.smoke else args.rounds
    print("| source |", *(f"{name} |" for name in ALIGNMENTS))
    print("|---" * (len(ALIGNMENTS) + 1) + "|")
    for length in lengths:
        calls = {
            name: step_of(make(), length) for name, make in ALIGNMENTS.items()
        }
        times = {name: [] for name in calls}
        for _ in range(rounds):
            for name, call in calls.items():
                start = time.process_time()
                for _ in range(5):
                    call()
                times[name].append((time.process_time() - start) / 5)
        shown = (f"{1e3 * median(x):.2f} ms |" for x in times.values())
        print(f"| {length} |", *shown, flush=True)
    return 0


def step_of(alignment, length):
    """A function that attends once for each of `BATCH` queries."""
    random = np.random.default_rng(0)
    score = keras_attn.AdditiveScore(UNITS)
    attention = keras_attn.Attention(score, alignment)
    query, source = (
        tf.constant(random.normal(size=(BATCH, n, DIM)), tf.float32)
        for n in (1, length)
    )
    attention.build(query.shape, source.shape)
    mask = tf.ones((BATCH, length), tf.bool)
    memory = attention.prepare(source, value_mask=mask)
    history = attention.initial_history(memory)
    step = tf.function(attention.step, autograph=False)

    def call():
        return step(query, memory, history)[0].numpy()

    call()
    return call


if __name__ == "__main__":
    sys.exit(main())
