"""Exports that XLA compiles for a few sizes, beside exports without XLA.

    python tests/benchmarks/xla.py           # ten minutes
    python tests/benchmarks/xla.py --smoke   # a minute

Two exports of the tour's net with random weights, each in a development server
of its own that became available a moment ago. Both get the same requests in
random order, and take turns. Prints for each number of rows the median and the
slowest time of both, and how long each server took to start, what it takes of
memory, and how large its SavedModel is.

Then clients ask each server in turn for words of random length, one at a time,
while the server joins requests. At last a server gets a new version that XLA
compiles: the times of a client's requests before and while the server loads and
warms it up.
"""

import argparse
import collections
import pathlib
import tempfile
import time
from statistics import median

import load
import numpy as np
import tour
from keras_attn_serving import Client
from served import Served

import keras_attn

LETTERS = list("abcdefghijklmnopqrstuvwxyz")
WAYS = "plain", "XLA"
FLAGS = {"plain": [], "XLA": ["--xla_cpu_compilation_enabled"]}
PARAMETERS = (
    pathlib.Path(__file__).parents[2] / "serving" / "deploy" / "batching.pbtxt"
)
BATCHING = "--batching_parameters_file"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--rows", default="1,2,4,8,32,128")
    parser.add_argument("--longest", type=int, default=64)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=40)
    parser.add_argument("--smoke", action="store_true")
    args = parser.parse_args()
    sizes = {"plain": False, "XLA": True}
    if args.smoke:
        args.requests, args.rows, args.longest = 4, "1,3", 9
        args.clients, args.seconds = 2, 1
        sizes["XLA"] = keras_attn.XLASizes(rows=2, source=9)
    rows = [int(x) for x in args.rows.split(",")]
    made = tour.translator(max_length=args.longest)
    with tempfile.TemporaryDirectory() as folder:
        bases = {x: pathlib.Path(folder, x) for x in WAYS}
        for way, base in bases.items():
            made.export(base, jit_compile=sizes[way])
        compare(bases, some_requests(args.requests, rows, args.longest))
        under_load(bases, args.clients, args.seconds)
        add_version(made, bases["XLA"], sizes["XLA"], args.seconds / 4)


def some_requests(count, rows, longest):
    """Returns lists of words, with each number of rows equally often."""
    random = np.random.default_rng(0)
    numbers = random.permutation(np.resize(rows, count))
    return [
        [
            "".join(random.choice(LETTERS, random.integers(1, longest)))
            for _ in range(number)
        ]
        for number in numbers
    ]


def under_load(bases, clients, seconds):
    """Prints how many texts a second each server answers."""
    lengths = [*range(1, 21)] * 10
    random = np.random.default_rng(1)
    words = ["".join(random.choice(LETTERS, size)) for size in lengths]
    print(
        "\n| | texts/s | p50, ms | p99, ms | refused |\n|---|---|---|---|---|"
    )
    for way, base in [*bases.items(), *reversed(bases.items())]:
        flags = [*FLAGS[way], "--enable_batching", f"{BATCHING}={PARAMETERS}"]
        with Served(base, tour.NAME, *flags) as server:
            times, refused = load.measure(
                server.address, tour.NAME, words, clients, seconds
            )
        p50, p99 = 1e3 * np.percentile(times, [50, 99])
        print(
            f"| {way} | {len(times) / seconds:.1f} | {p50:.1f} | {p99:.1f} "
            f"| {dict(refused) or 0} |",
            flush=True,
        )


def add_version(made, base, sizes, seconds):
    """Prints the times of requests while a new version is warmed up."""
    flags = [*FLAGS["XLA"], "--file_system_poll_wait_seconds=1"]
    with (
        Served(base, tour.NAME, *flags) as server,
        Client(server.address, model=tour.NAME) as client,
    ):
        client.predict(["attention"])  # also connects, and asks for metadata
        print("\n| | p50, ms | p99, ms | slowest |\n|---|---|---|---|")
        print_times("one version", times_of(client, seconds))
        path = made.export(base, jit_compile=sizes)
        times, version = [], int(path.name)
        begin = time.perf_counter()
        while not times or not is_available(client, version):
            times += times_of(client, 0.2)
        spent = time.perf_counter() - begin
        print_times(f"a new one loads, {spent:.0f} s", times)


def times_of(client, seconds):
    """Returns the seconds of each call in some seconds, at least one."""
    begin, times = time.perf_counter(), []
    while not times or time.perf_counter() - begin < seconds:
        start = time.perf_counter()
        client.predict(["attention"])
        times.append(time.perf_counter() - start)
    return times


def is_available(client, version):
    states = {x.version: x.state for x in client.status()}
    return states.get(version) == "AVAILABLE"


def print_times(name, times):
    p50, p99 = 1e3 * np.percentile(times, [50, 99])
    print(f"| {name} | {p50:.1f} | {p99:.1f} | {1e3 * max(times):.0f} |")


def compare(bases, requests):
    servers, clients, starts = {}, {}, {}
    try:
        for way, base in bases.items():
            begin = time.perf_counter()
            servers[way] = Served(base, tour.NAME, *FLAGS[way])
            servers[way].start()
            starts[way] = time.perf_counter() - begin
            clients[way] = Client(servers[way].address, model=tour.NAME)
        found = {way: collections.defaultdict(list) for way in bases}
        for i, words in enumerate(requests):
            for way in WAYS if i % 2 else WAYS[::-1]:
                begin = time.perf_counter()
                clients[way].predict(words)
                spent = 1e3 * (time.perf_counter() - begin)
                found[way][len(words)].append(spent)
        report(found)
        print(
            "\n| | start, s | memory, MB | SavedModel, MB |\n|---|---|---|---|"
        )
        for way, server in servers.items():
            size = sum(x.stat().st_size for x in bases[way].rglob("*.*"))
            print(
                f"| {way} | {starts[way]:.1f} | {server.memory():.0f} "
                f"| {size / 1e6:.1f} |"
            )
    finally:
        for client in clients.values():
            client.close()
        for server in servers.values():
            server.kill()


def report(found):
    print(
        "| rows | plain, ms | XLA | XLA / plain | slowest plain | slowest XLA |"
    )
    print("|---|---|---|---|---|---|")
    for rows in sorted(found["plain"]):
        plain, xla = (found[way][rows] for way in WAYS)
        ratio = median(x / p for p, x in zip(plain, xla, strict=True))
        print(
            f"| {rows} | {median(plain):.1f} | {median(xla):.1f} "
            f"| {ratio:.2f} | {max(plain):.0f} | {max(xla):.0f} |"
        )


if __name__ == "__main__":
    main()
