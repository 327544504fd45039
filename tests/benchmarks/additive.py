"""Additive attention in blocks beside the plain form and Keras' own layer.

    python tests/benchmarks/additive.py            half an hour
    python tests/benchmarks/additive.py --smoke    half a minute

All compute the same: scores, softmax, the sum of the values, and from a given
gradient those of query, keys and `v`; the sums of what they return are held
against each other. Every case runs in a process of its own with one thread.
Memory is the peak of the resident memory over what was resident before the
first call, so tracing and compiling are in it; time is CPU time, which other
load on the machine disturbs least, without the first calls.

What would need more than --memory gigabytes by the plain form, which takes up
to four times the tensor of all pairs and units, is not run but by blocks.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from statistics import median

import report
from worker import limit_threads

OURS = "keras_attn"
LAYERS = ["keras.layers.AdditiveAttention", "plain form", OURS]
MODES = ["graph", "XLA"]
SIZES = [  # batch, target, source, units
    (64, 1, 50, 512),
    (4, 10, 10, 64),
    (16, 20, 20, 128),
    (64, 25, 25, 256),
    (32, 64, 64, 512),
    (8, 512, 512, 128),
    (8, 512, 512, 512),
]
BY_UNITS = [(8, 256, 256, units) for units in (64, 128, 256, 512)]
BY_PAIRS = [(4, length, length, 256) for length in (128, 256, 512, 1024)]
SAMPLE = 0.5  # seconds, at least three calls
APART = 1e-3  # relative, of sums in float32


def main():
    args = arguments()
    if args.case:
        print(json.dumps(measure(*json.loads(args.case))))
        return 0
    sizes, by_units, by_pairs = SIZES, BY_UNITS, BY_PAIRS
    if args.smoke:
        args.rounds = 1
        sizes, by_units, by_pairs = [(2, 3, 4, 8)], [], []
    timed = gather(sizes, MODES, args.rounds, args)
    print(compare(timed, sizes, MODES), end="\n\n", flush=True)
    for title, sizes in (
        ("Memory by units", by_units),
        ("Memory by target times source", by_pairs),
    ):
        found = gather(sizes, MODES, 1, args, LAYERS[1:])
        if sizes:
            print(growth(title, found, sizes), end="\n\n", flush=True)
    return different(timed)


def gather(sizes, modes, rounds, args, layers=LAYERS):
    """`{(layer, mode, size): [sample, ...]}`, round after round."""
    found = {}
    for number in range(rounds):
        for size in sizes:
            for mode in modes:
                for layer in layers:
                    if layer != OURS and needs(size) > args.memory * 1e9:
                        continue
                    print(
                        f"round {number + 1}: {layer}, {mode}, {size}",
                        file=sys.stderr,
                        flush=True,
                    )
                    samples = found.setdefault((layer, mode, size), [])
                    samples.append(run(layer, mode, size))
    return found


def needs(size):
    """Bytes that the plain form and its gradient take at most."""
    batch, target, source, units = size
    return 4 * 4 * batch * target * source * units


def run(*case):
    """One case in a process of its own, which ours stays small for."""
    done = subprocess.run(
        [sys.executable, __file__, "--case", json.dumps(case)],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"{case} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def measure(layer, mode, size):
    """`{"cpu": seconds a call, "memory": bytes, "sums": [...]}`."""
    limit_threads(1)
    import numpy as np
    import tensorflow as tf

    batch, target, source, units = size
    function = attention(layer, units)
    random = np.random.default_rng(0)
    query, keys, v, gradient = (
        tf.constant(random.normal(size=shape).astype("float32"))
        for shape in (
            (batch, target, units),
            (batch, source, units),
            (units, 1),
            (batch, target, units),
        )
    )

    @tf.function(jit_compile=mode == "XLA")
    def both(query, keys, v, gradient):
        with tf.GradientTape() as tape:
            tape.watch([query, keys, v])
            contexts = function(query, keys, v)
        return contexts, *tape.gradient(contexts, [query, keys, v], gradient)

    def call():
        results = both(query, keys, v, gradient)
        return [float(tf.reduce_sum(tf.abs(x))) for x in results]

    [float(tf.reduce_sum(tf.abs(x))) for x in (query, v)]  # warm, not counted
    before = resident()
    sums = call()
    call()
    times, start = [], time.process_time()
    while len(times) < 3 or time.process_time() - start < SAMPLE:
        begin = time.process_time()
        results = both(query, keys, v, gradient)
        results[-1].numpy()  # waits for it
        times.append(time.process_time() - begin)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"cpu": median(times), "memory": peak - before, "sums": sums}


def attention(layer, units):
    """A function from query, keys and v to contexts."""
    import keras
    import tensorflow as tf

    if layer == LAYERS[0]:
        ours = keras.layers.AdditiveAttention()
        ours.build([(None, None, units), (None, None, units)])

        def function(query, keys, v):
            # Its weight, of shape (units,), is a variable: `v` stands in.
            scale, ours.scale = ours.scale, v[:, 0]
            contexts = ours([query, keys])
            ours.scale = scale
            return contexts

        return function
    from keras_attn.layers.scores.blockwise import additive

    def function(query, keys, v):
        block_size = None if layer == OURS else "all"
        scores = additive(query, keys, v, block_size=block_size)
        return tf.matmul(tf.nn.softmax(scores), keys)

    return function


def resident():
    """Bytes of this process in memory now."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def compare(found, sizes, modes):
    """A table of times and memory: layers down, sizes across."""
    heads = [str(size) for size in sizes]
    rows = [["", *heads], ["---"] * (len(heads) + 1)]
    for mode in modes:
        for layer in LAYERS:
            cells = [cell(found.get((layer, mode, size))) for size in sizes]
            rows.append([f"{layer}, {mode}", *cells])
    return (
        "### Forward and backward: CPU ms a call, one thread / peak MB\n\n"
        "`(batch, target, source, units)`; median of the rounds [least-most]"
        "\n\n" + report.lay(rows)
    )


def growth(title, found, sizes):
    """A table of memory: sizes down, layers across."""
    ways = [(layer, mode) for mode in MODES for layer in LAYERS[1:]]
    heads = [f"{layer}, {mode}" for layer, mode in ways]
    rows = [["peak MB", *heads], ["---"] * (len(heads) + 1)]
    for size in sizes:
        cells = [megabytes(found.get((*way, size))) for way in ways]
        rows.append([str(size), *cells])
    return f"### {title}\n\n{report.lay(rows)}"


def cell(samples):
    if not samples:
        return "not run"
    times = [1e3 * sample["cpu"] for sample in samples]
    middle, low, high = map(
        report.digits, (median(times), min(times), max(times))
    )
    return f"{middle} [{low}-{high}] / {megabytes(samples)}"


def megabytes(samples):
    if not samples:
        return "not run"
    return f"{median(sample['memory'] for sample in samples) / 1e6:.0f}"


def different(found):
    """How many cases returned other sums than ours; each is told."""
    count = 0
    for (layer, mode, size), samples in found.items():
        ours = found[OURS, mode, size][0]["sums"]
        for one, other in zip(samples[0]["sums"], ours, strict=True):
            if abs(one - other) > APART * abs(other):
                print(f"{layer}, {mode}, {size}: {one}, ours {other}")
                count += 1
    return count


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    add = parser.add_argument
    add("--rounds", type=int, default=3, help="of the table of times")
    add("--memory", type=float, default=6, help="gigabytes a case may take")
    add("--smoke", action="store_true", help="one small size, one round")
    add("--case", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
