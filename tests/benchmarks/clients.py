"""Many clients at once, with and without batching, beside direct calls.

    python tests/benchmarks/clients.py            # six minutes
    python tests/benchmarks/clients.py --smoke    # one

Exports a net of W2's sizes with random weights, so that every text is decoded
to the maximum length, with beam search. Calls the SavedModel directly with 1
and with 64 texts. Then 1, 8, 64 and 256 clients ask a server for one text a
call: without batching, with `serving/deploy/batching.pbtxt`, and with that
file without its wait. At last 63 clients ask for short texts while one asks
for texts ten times as long. The server has a process of its own; all share
the cores of this machine. Prints tables.
"""

import argparse
import concurrent.futures
import dataclasses
import multiprocessing
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from load import measure
from served import Served

DEPLOYED = Path(__file__).parents[2] / "serving" / "deploy" / "batching.pbtxt"
SHORT, LONG = 10, 100  # tokens of a translation
HEAD = "| | clients | texts/s | p50, ms | p99, ms | refused |"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--workload", default="W2")
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument(
        "--clients", type=int, nargs="+", default=[1, 8, 64, 256]
    )
    parser.add_argument("--smoke", action="store_true")
    args = parser.parse_args()
    if args.smoke:
        args.seconds, args.clients = 1.0, [1, 8]
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        base, long_base = Path(folder, "models"), Path(folder, "long")
        with spawn.Pool(1) as pool:  # its memory and threads end with it
            text = pool.apply(export, (args.workload, base))
            pool.apply(export, (args.workload, long_base, LONG))
        print(
            "| texts a call | texts/s | p50, ms | p99, ms |\n|---|---|---|---|"
        )
        for count in 1, 64:
            with spawn.Pool(1) as pool:
                given = str(base / "1"), [text] * count, args.seconds
                times = pool.apply(call, given)
            print_row([count], count * len(times) / sum(times), times)
        print(f"\n{HEAD}\n|---|---|---|---|---|---|")
        for name, flags in servers(folder).items():
            with Served(base, "bench", *flags) as server:
                for clients in args.clients:
                    ask(name, server.address, text, clients, args.seconds)
        print(f"\n{HEAD}\n|---|---|---|---|---|---|")
        for name, flags in servers(folder).items():
            with Served(long_base, "bench", *flags) as server:
                mix(name, server.address, text, max(args.clients[:3]), args)


def export(name, folder, target_length=None):
    """Exports the net, and returns a text for it. Needs its own process."""
    import workloads
    from peers import ours

    workload = workloads.WORKLOADS[name]
    if target_length:
        workload = dataclasses.replace(workload, target_length=target_length)
    return ours.export(workload, folder, signatures=["options"])[0]


def call(version, texts, seconds):
    """Returns the seconds of calls of the SavedModel, without a server."""
    import tensorflow as tf
    import tensorflow_text  # noqa: F401  registers the tokenizers' operations

    function = tf.saved_model.load(version).signatures["serving_default"]
    texts = tf.constant(texts)
    function(text=texts)
    times, end = [], time.perf_counter() + seconds
    while (start := time.perf_counter()) < end:
        function(text=texts)["text"].numpy()
        times.append(time.perf_counter() - start)
    return times


def servers(folder):
    """Returns the flags of each server by its name."""
    eager = Path(folder, "eager.pbtxt")
    deployed = DEPLOYED.read_text()
    wait = "batch_timeout_micros { value: 2000 }"
    assert wait in deployed
    eager.write_text(deployed.replace(wait, ""))
    flag = "--batching_parameters_file="
    return {
        "alone": [],
        "deploy/batching.pbtxt": ["--enable_batching", f"{flag}{DEPLOYED}"],
        "the same, no wait": ["--enable_batching", f"{flag}{eager}"],
    }


def ask(name, address, text, clients, seconds, max_length=None):
    times, refused = measure(
        address, "bench", text, clients, seconds, max_length
    )
    counts = ", ".join(f"{n} {code}" for code, n in refused.items())
    print_row([name, clients], len(times) / seconds, times, [counts or 0])


def mix(name, address, text, clients, args):
    """Asks for short texts, then for short ones while another is long."""
    ask(name, address, text, clients - 1, args.seconds, SHORT)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        # Longer, so that there is a long text at any time.
        given = address, "bench", text, 1, args.seconds + 4, LONG
        long = pool.submit(measure, *given)
        time.sleep(2)
        ask(f"{name}, beside", address, text, clients - 1, args.seconds, SHORT)
        times, _ = long.result()
    print_row([f"{name}, long", 1], len(times) / given[4], times, [0])


def print_row(cells, rate, times, last=()):
    p50, p99 = 1e3 * np.percentile(times or [np.nan], [50, 99])
    values = [*cells, f"{rate:.0f}", f"{p50:.1f}", f"{p99:.1f}", *last]
    print("| " + " | ".join(map(str, values)) + " |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
