"""Many requests while versions come and go and the server is killed.

    python tests/benchmarks/endurance.py --requests 100000

Serves the toy model of the tests. Ten times a new version takes over; then
the server is killed three times and started again, while clients try again.
Meanwhile others burst in, stay silent and leave their requests unfinished.
Every answer is compared with what it must be. Prints a table: requests,
answers that were wrong or lost, versions that answered, and the server's
memory before and after the swaps. It fails if one was wrong or lost, or if
500 MB were added.
"""

import argparse
import concurrent.futures
import itertools
import pathlib
import random
import shutil
import sys
import tempfile
import threading
import time

import attacks
import keras_attn_serving

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from served import Served  # noqa: E402
from support.serving import toy_model  # noqa: E402

SWAPS, KILLS, CLIENTS = 10, 3, 8
MOST = 500  # MB more after the swaps than before
# How many attackers come, before each swap.
ATTACKS = (
    (attacks.burst, 500),
    (attacks.silent_connections, 100),
    (attacks.unfinished_bodies, 20),
    (attacks.large_ids, 20),
)
FLAGS = ("--enable_batching", "--file_system_poll_wait_seconds=0.5")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--smoke", action="store_true")
    args = parser.parse_args()
    requests = 2_000 if args.smoke else args.requests
    with tempfile.TemporaryDirectory() as folder:
        base = pathlib.Path(folder, "toy")
        made = toy_model.export(base, 1)
        shutil.copytree(made, pathlib.Path(folder, "made"))
        with Served(base, "toy", *FLAGS) as server:
            report(Load(server, pathlib.Path(folder, "made"), requests))


class Load:
    """Asks, compares, swaps and kills."""

    def __init__(self, server, made, requests):
        self.server, self._made, self.requests = server, made, requests
        self.wrong, self.lost, self.versions = 0, 0, set()
        self._count = itertools.count()
        self.done = 0
        self._lock = threading.Lock()

    def run(self):
        """Returns the memory before and after the swaps, and the seconds."""
        started = time.perf_counter()
        with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
            asking = [pool.submit(self._ask, seed) for seed in range(CLIENTS)]
            half = self.requests // 2
            self._wait_until(half // 10)
            before = self.server.memory()
            for swap in range(SWAPS):
                self._wait_until(half * (swap + 2) // (SWAPS + 3))
                run, count = ATTACKS[swap % len(ATTACKS)]
                statuses, documented = run(self.server.target("toy"), count)
                assert set(statuses) <= documented, (run.__name__, statuses)
                self._swap(swap + 2)
            self._wait_until(half)
            after = self.server.memory()
            for kill in range(KILLS):
                self._wait_until(half + half * (kill + 1) // (KILLS + 1))
                self.server.kill()
                self.server.start()
            for each in asking:
                each.result()
        return before, after, time.perf_counter() - started

    def _swap(self, version):
        base = self.server.base
        shutil.copytree(self._made, base / ".writing")
        (base / ".writing").rename(base / str(version))
        with keras_attn_serving.Client(
            self.server.address, model="toy"
        ) as client:
            while client.predict(["cat"]).version != version:
                time.sleep(0.05)
        self.versions.add(version)
        shutil.rmtree(base / str(version - 1))

    def _wait_until(self, count):
        while self.done < count:
            time.sleep(0.01)

    def _ask(self, seed):
        random_ = random.Random(seed)
        words = list(toy_model.WORDS) + ["nothing"]
        with keras_attn_serving.Client(
            self.server.address, model="toy", timeout=120, retries=20
        ) as client:
            while next(self._count) < self.requests:
                rows = [
                    random_.choices(words, k=random_.randint(1, 5))
                    for _ in range(random_.randint(1, 4))
                ]
                self._ask_once(client, rows)

    def _ask_once(self, client, rows):
        wanted = [
            " ".join(toy_model.WORDS.get(x, toy_model.UNKNOWN) for x in row)
            for row in rows
        ]
        try:
            result = client.predict([" ".join(row) for row in rows])
        except keras_attn_serving.ServingError:
            lost, wrong = 1, 0
        else:
            right = result["text"] == wanted and list(result["score"]) == [
                -0.5 * len(row) for row in rows
            ]
            lost, wrong = 0, 0 if right else 1
            self.versions.add(result.version)
        with self._lock:
            self.lost += lost
            self.wrong += wrong
            self.done += 1


def report(load):
    before, after, seconds = load.run()
    print(
        f"| requests | wrong | lost | swaps | kills | versions that answered "
        f"| MB before | MB after | requests/s |\n{'|---' * 9}|\n"
        f"| {load.done} | {load.wrong} | {load.lost} | {SWAPS} | {KILLS} "
        f"| {len(load.versions)} | {before:.0f} | {after:.0f} "
        f"| {load.done / seconds:.0f} |"
    )
    assert not load.wrong and not load.lost
    assert after - before < MOST


if __name__ == "__main__":
    main()
