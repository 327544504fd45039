"""Measures a server under load: many clients at once, one text a call.

    python tests/benchmarks/load.py localhost:8500 --model toy

Each client has a connection of its own and asks again as soon as it is
answered. Clients are threads, in as many processes as this machine has cores,
and need no TensorFlow. Prints a table: texts a second, the median of the time
of a call in milliseconds, the time that 99 % stay within, and the refusals by
code. A load is never sent but to the address given.
"""

import argparse
import collections
import concurrent.futures
import multiprocessing
import os
import random
import time

import numpy as np
from keras_attn_serving import Client
from keras_attn_serving import ServingError

SEPARATE = [("grpc.use_local_subchannel_pool", 1)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("address")
    parser.add_argument("--model", default="toy")
    parser.add_argument("--text", default="hello world")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--seconds", type=float, default=10.0)
    args = parser.parse_args()
    with Client(args.address, model=args.model) as client:
        client.wait_until_ready()
        client.predict([args.text])
    print("| clients | texts/s | p50, ms | p99, ms | refused |")
    print("|---|---|---|---|---|")
    for clients in args.clients:
        times, refused = measure(
            args.address, args.model, args.text, clients, args.seconds
        )
        p50, p99 = 1e3 * np.percentile(times or [np.nan], [50, 99])
        codes = [f"{n} {code}" for code, n in sorted(refused.items())]
        print(
            f"| {clients} | {len(times) / args.seconds:.0f} | {p50:.1f} "
            f"| {p99:.1f} | {', '.join(codes) or 0} |",
            flush=True,
        )


def measure(address, model, text, clients, seconds, max_length=None):
    """Returns the seconds of each answered call, and refusals by code.

    `text` is what all clients ask for, or a list from which they draw. With
    `max_length` they ask `options` for texts of at most that length.
    """
    processes = min(clients, os.cpu_count() or 1)
    shares = [len(range(i, clients, processes)) for i in range(processes)]
    spawn = multiprocessing.get_context("spawn")
    with spawn.Manager() as manager:
        barrier = manager.Barrier(processes)
        with concurrent.futures.ProcessPoolExecutor(
            processes, mp_context=spawn
        ) as pool:
            tasks = [
                pool.submit(
                    ask_together,
                    barrier,
                    address,
                    model,
                    text,
                    share,
                    seconds,
                    max_length,
                )
                for share in shares
            ]
            found = [task.result() for task in tasks]
    times = [x for each, _ in found for x in each]
    return times, sum((x for _, x in found), collections.Counter())


def ask_together(barrier, address, model, text, clients, seconds, max_length):
    """Asks with `clients` threads, when all processes are ready."""
    with concurrent.futures.ThreadPoolExecutor(clients) as pool:
        connected = list(
            pool.map(
                lambda _: Client(address, model=model, options=SEPARATE),
                range(clients),
            )
        )
        for client in connected:
            client.wait_until_ready()
        barrier.wait(60)
        end = time.perf_counter() + seconds
        found = list(
            pool.map(
                lambda i: ask(connected[i], text, end, max_length, i),
                range(clients),
            )
        )
    for client in connected:
        client.close()
    times = [x for each, _ in found for x in each]
    return times, sum((x for _, x in found), collections.Counter())


def ask(client, text, end, max_length=None, seed=0):
    """Asks until `end`; calls that come back later do not count."""
    times, refused = [], collections.Counter()
    texts = [text] if isinstance(text, str) else text
    draw = random.Random(seed)
    while (start := time.perf_counter()) < end:
        one = draw.choice(texts)
        try:
            if max_length is None:
                client.predict([one])
            else:
                client.translate([one], options={"max_length": max_length})
        except ServingError as error:
            refused[error.code.name] += 1
            time.sleep(0.01)  # a refusal comes at once
        else:
            if (now := time.perf_counter()) < end:
                times.append(now - start)
    return times, refused


if __name__ == "__main__":
    main()
