"""Peak memory and time of `MarginalDecoder`, forward and backward.

    python tests/benchmarks/marginal.py           # a few minutes
    python tests/benchmarks/marginal.py --smoke   # half a minute

Each case runs in a process of its own. The emissions, `(batch, target,
source, vocabulary)` numbers, are never whole in memory: the peak stays below
`--most` MB at the paper's size, else the program fails.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from statistics import median

import report
from additive import resident
from worker import limit_threads

KINDS = {
    "order 0": {"order": 0},
    "order 0, monotonic": {"order": 0, "monotonic": True},
    "order 1": {"order": 1},
    "order 1, monotonic": {"order": 1, "monotonic": True},
}
MODES = ["graph", "XLA"]
SIZES = [(64, 25, 25, 100), (64, 50, 50, 100)]  # batch, target, source, V
UNITS = 256  # of the cell, and of the memory


def main():
    args = arguments()
    if args.case:
        print(json.dumps(measure(*json.loads(args.case))))
        return 0
    sizes = [(2, 3, 4, 5)] if args.smoke else SIZES
    kinds = list(KINDS)[-1:] if args.smoke else list(KINDS)
    rows = [["", *map(str, sizes)], ["---"] * (len(sizes) + 1)]
    highest = 0
    for mode in MODES:
        for kind in kinds:
            cells = []
            for size in sizes:
                found = run(kind, mode, size)
                megabytes = found["memory"] / 1e6
                cells.append(f"{1e3 * found['cpu']:.0f} / {megabytes:.0f}")
                if size == SIZES[0] and mode == "graph":
                    highest = max(highest, megabytes)
            rows.append([f"{kind}, {mode}", *cells])
    print("CPU ms a call, one thread / peak MB\n\n" + report.lay(rows))
    return int(highest > args.most)


def run(*case):
    """One case in a process of its own."""
    done = subprocess.run(
        [sys.executable, __file__, "--case", json.dumps(case)],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"{case} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def measure(kind, mode, size):
    """`{"cpu": seconds a call, "memory": bytes}`."""
    limit_threads(1)
    import numpy as np
    import tensorflow as tf
    from keras import layers

    import keras_attn

    batch, target, source, vocabulary = size
    random = np.random.default_rng(0)
    x, memory = (
        tf.constant(random.normal(size=(batch, length, UNITS)), "float32")
        for length in (target, source)
    )
    ids = tf.constant(random.integers(1, vocabulary, (batch, target)))
    decoder = keras_attn.MarginalDecoder(
        layers.GRUCell(UNITS), vocabulary, **KINDS[kind]
    )
    decoder.build(x.shape, memory.shape, ids.shape)
    loss = keras_attn.SequenceCrossentropy()

    @tf.function(jit_compile=mode == "XLA")
    def both(x, memory, ids):
        weights = [w.value for w in decoder.trainable_weights]
        with tf.GradientTape() as tape:
            tape.watch([x, memory])
            found = loss(ids, decoder(x, memory, ids))
        return tape.gradient(found, [x, memory, *weights])

    both.get_concrete_function(x, memory, ids)  # traced, not yet run
    before = resident()
    times = []
    for _ in range(4):
        begin = time.process_time()
        both(x, memory, ids)[0].numpy()
        times.append(time.process_time() - begin)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"cpu": median(times[1:]), "memory": peak - before}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    add = parser.add_argument
    add("--most", type=float, default=300, help="megabytes, in the graph")
    add("--smoke", action="store_true", help="one small size, one kind")
    add("--case", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
