"""Where the time of a decoding goes, and how it grows.

    python tests/benchmarks/decoding.py                  ten minutes
    python tests/benchmarks/decoding.py --plot FILE      and draws the growth
    python tests/benchmarks/decoding.py --smoke          half a minute

CPU time of one thread, median over rounds in which all that is compared takes
turns. The split of a call comes from four programs, each with more in it than
the one before: the encoder; all steps up to the output layer; with the output
layer; the whole search. Beside them stands the time of the bare matrix
products that are left in the steps, same shapes and weights as large: nothing
that takes these products in every step can be faster, whatever it leaves out.
"""

import argparse
import sys
import time
from dataclasses import replace
from statistics import median

from worker import limit_threads

limit_threads(1)

import keras  # noqa: E402
import tensorflow as tf  # noqa: E402
import workloads  # noqa: E402
from peers import ours  # noqa: E402

import keras_attn  # noqa: E402

SAMPLE = 0.25  # seconds; short calls are repeated until they fill it
LENGTHS = [5, 10, 20, 40, 80]
WIDTHS = [1, 2, 3, 5, 8, 12]
ROWS = 32  # sources in the growth


def main():
    args = arguments()
    for name in args.workloads:
        workload = workloads.WORKLOADS[name]
        for jit_compile in (False, True):
            split(workload, jit_compile, args.rounds)
    smallest = workloads.WORKLOADS[args.workloads[-1]]
    growth(smallest, args)
    return 0


def split(workload, jit_compile, rounds):
    """Prints how the time of each case splits."""
    model = ours.build(workload, workloads.weights(workload))
    print(f"\n## {workload.name}{', XLA' if jit_compile else ''}\n")
    print(
        "| case | ms a call | encoder | steps | output layer | search | "
        "bare products | of all steps |"
    )
    print("|---" * 8 + "|")
    for kind, batch in workload.cases():
        if kind == "train":
            continue
        width = workload.width if kind == "beam" else 1
        programs = [
            encoder(model, workload, batch),
            steps(model, workload, batch, width, False, jit_compile),
            steps(model, workload, batch, width, True, jit_compile),
            search(model, workload, batch, width, jit_compile),
            products(workload, batch * width),
        ]
        calls = [tf.function(x, jit_compile=jit_compile) for x in programs]
        *parts, bare = timed(calls, rounds)
        shares = [
            after - before
            for before, after in zip([0, *parts], parts, strict=False)
        ]
        looped = parts[-1] - parts[0]
        cells = [
            f"{kind} {batch}",
            f"{parts[-1]:.2f}",
            *(f"{share:.2f}" for share in shares),
            f"{bare:.2f}",
            f"{bare / looped:.0%}",
        ]
        print("|", " | ".join(cells), "|", flush=True)


def encoder(model, workload, batch):
    cut = keras_attn.Incremental(model)
    source = tf.constant(workloads.batch(workload, batch)[0])
    return lambda: keras.tree.flatten(cut.encode(source))


def steps(model, workload, batch, width, logits, jit_compile):
    """All steps of a decoding that always goes on with the same token."""
    if not logits:  # the decoder's output is the last layer's input
        model = keras.Model(model.inputs, model.layers[-1].input)
    cut = keras_attn.Incremental(model)
    source = tf.constant(workloads.batch(workload, batch)[0])
    token = tf.fill([batch, width], workloads.START)
    size = model.output_shape[-1]

    def run():
        steps, encoded = cut.hoist(cut.encode(source), jit_compile)
        state = steps.start(encoded, width, workload.target_length)

        def step(t, _, state):
            outputs, _, state = steps.step(token, state, encoded)
            return t + 1, outputs, state

        return tf.while_loop(
            lambda *_: True,
            step,
            (0, tf.zeros([batch, width, size]), state),
            maximum_iterations=workload.target_length,
        )[1]

    return run


def search(model, workload, batch, width, jit_compile=False):
    length = workload.target_length
    found = keras_attn.GreedySearch(max_length=length)
    if width > 1:
        found = keras_attn.BeamSearch(
            width, num_hypotheses=width, max_length=length
        )
    texts = ours.text(workload.source_size), ours.text(workload.target_size)
    translator = keras_attn.Translator(
        model, *texts, found, jit_compile=jit_compile
    )
    source = tf.constant(workloads.batch(workload, batch)[0])
    return lambda: translator.decode_ids(source)


def products(workload, rows):
    """The matrix products of all steps, each on what came of the last.

    Those of the context are taken before the steps, and of a small
    vocabulary those of the embeddings too.
    """
    w = workload
    arrays = workloads.weights(w)
    cell, recurrent, query, vector, output = (
        tf.constant(arrays[name])
        for name in (
            "cell/kernel",
            "cell/recurrent",
            "query_kernel",
            "vector_kernel",
            "output_kernel",
        )
    )
    vector = vector[: w.units]
    looked_up = w.target_size <= 256
    if looked_up:
        cell = cell[w.embedding :]

    def step(t, state, _):
        fed = state
        if not looked_up:
            fed = tf.concat([state[:, : w.embedding], state], 1)
        gates = fed @ cell + state @ recurrent
        hidden = gates[:, : w.units]
        asked = hidden @ query
        state = hidden @ vector
        # Each product is used, but for that nothing else is computed.
        return t + 1, state, (asked, state @ output)

    def run():
        zeros = [tf.zeros([rows, n]) for n in (w.attention, w.target_size)]
        return tf.while_loop(
            lambda *_: True,
            step,
            (0, tf.ones([rows, w.units]), tuple(zeros)),
            maximum_iterations=w.target_length,
        )[2]

    return run


def growth(workload, args):
    """Prints how a search grows with its length and its width."""
    lengths = [3, 6] if args.smoke else LENGTHS
    widths = [1, 2] if args.smoke else WIDTHS
    rows = 2 if args.smoke else ROWS
    arrays = workloads.weights(workload)
    model = ours.build(workload, arrays)
    by_length = timed(
        [
            tf.function(
                search(model, replace(workload, target_length=n), rows, width)
            )
            for width in (1, workload.width)
            for n in lengths
        ],
        args.rounds,
    )
    greedy, beam = by_length[: len(lengths)], by_length[len(lengths) :]
    by_width = timed(
        [tf.function(search(model, workload, rows, n)) for n in widths],
        args.rounds,
    )
    print(f"\n## Growth, {workload.name}, {rows} sources, ms a call\n")
    table("target length", lengths)
    table("greedy", [f"{x:.1f}" for x in greedy])
    table(f"beam {workload.width}", [f"{x:.1f}" for x in beam])
    print()
    table("width", widths)
    table("beam", [f"{x:.1f}" for x in by_width])
    table("of one beam", [f"{x / by_width[0]:.2f}" for x in by_width])
    if args.plot:
        draw(args.plot, lengths, greedy, beam, widths, by_width, workload)


def table(name, cells):
    print("|", " | ".join([name, *map(str, cells)]), "|", flush=True)
    if name in ("target length", "width"):
        print("|---" * (len(cells) + 1) + "|")


def draw(path, lengths, greedy, beam, widths, by_width, workload):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.2))
    left.plot(lengths, beam, "o-", label=f"beam {workload.width}")
    left.plot(lengths, greedy, "o-", label="greedy")
    left.set(xlabel="target length", ylabel="CPU ms a call", ylim=0, xlim=0)
    left.legend(frameon=False)
    right.plot(widths, by_width, "o-", label="measured")
    right.plot(
        widths,
        [n * by_width[0] for n in widths],
        ":",
        color="gray",
        label="as many times one beam",
    )
    right.set(xlabel="beams", ylim=0, xlim=0)
    right.legend(frameon=False)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path)


def timed(calls, rounds):
    """Median ms of each call."""
    repetitions = []
    for call in calls:
        call()
        start = time.process_time()
        call()
        once = time.process_time() - start
        repetitions.append(max(1, round(SAMPLE / max(once, 1e-4))))
    times = [[] for _ in calls]
    for _ in range(rounds):
        for call, repeated, samples in zip(
            calls, repetitions, times, strict=True
        ):
            start = time.process_time()
            for _ in range(repeated):
                call()
            samples.append((time.process_time() - start) / repeated)
    return [1e3 * median(samples) for samples in times]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--workloads", nargs="+", default=["W1", "W2"])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--plot", help="where to draw the growth")
    parser.add_argument("--smoke", action="store_true", help="smallest net")
    args = parser.parse_args()
    if args.smoke:
        args.workloads, args.rounds = ["smoke"], 1
    return args


if __name__ == "__main__":
    sys.exit(main())
