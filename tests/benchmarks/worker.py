"""One library in one process, kept alive: answers JSON lines with timings.

    python worker.py PEER WORKLOAD THREADS

Each line read is a request, each line written its answer:

    {"do": "describe"}                          parameters, loss, tokens, ...
    {"do": "prepare", "kind": .., "batch": ..}  first call, its seconds
    {"do": "sample", "kind": .., "batch": ..}   cpu and wall seconds per call

A peer is a module of `peers` with a class `Peer(workload, threads, variant)`;
its `kinds` are those of `train`, `greedy` and `beam` that it has, methods that
take a batch size and return a function of no arguments that does the work:
it returns the loss, or arrays, the first of them tokens and, for a beam
search, the second scores.
"""

import importlib
import json
import os
import sys
import time

import workloads

SAMPLE = 0.25  # seconds; short calls are repeated until they fill it
CHECKED = 4  # rows that are compared between peers


def limit_threads(threads):
    """To be called before any numerical library is imported."""
    for name in ("OMP", "MKL", "OPENBLAS", "NUMEXPR"):
        os.environ[f"{name}_NUM_THREADS"] = str(threads)
    os.environ["TF_NUM_INTRAOP_THREADS"] = str(threads)
    os.environ["TF_NUM_INTEROP_THREADS"] = str(threads)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
    os.environ["KERAS_BACKEND"] = "tensorflow"


def machine_busy():
    """CPU seconds the whole machine has spent, or None where unknown."""
    try:
        with open("/proc/stat") as file:
            user, nice, system = map(int, file.readline().split()[1:4])
    except OSError:
        return None
    return (user + nice + system) / os.sysconf("SC_CLK_TCK")


class Worker:
    def __init__(self, peer, workload, threads):
        name, _, variant = peer.partition(":")
        module = importlib.import_module(f"peers.{name}")
        self.workload = workloads.WORKLOADS[workload]
        self.peer = module.Peer(self.workload, threads, variant)
        self.calls = {}  # (kind, batch) -> (function, repetitions)

    def describe(self):
        """Returns results to compare: every peer must run the same net."""
        answer = {"versions": self.peer.versions}
        answer["parameters"] = self.peer.parameters()
        answer["differs"] = getattr(self.peer, "differs", None)
        for kind in ("greedy", "beam", "train"):  # training changes weights
            if kind in self.peer.kinds:
                function = getattr(self.peer, kind)(CHECKED)
                if kind == "train":  # the second loss shows the gradients
                    answer[kind] = [function(), function()]
                else:
                    answer[kind] = [x.tolist() for x in function()[:2]]
        return answer

    def prepare(self, kind, batch):
        if kind not in self.peer.kinds:
            return {"skipped": True}
        function = getattr(self.peer, kind)(batch)
        start = time.perf_counter()
        function()
        first = time.perf_counter() - start
        function()
        start = time.perf_counter()
        function()
        once = time.perf_counter() - start
        self.calls[kind, batch] = function, max(1, round(SAMPLE / once))
        return {"first": first}

    def sample(self, kind, batch):
        function, repetitions = self.calls[kind, batch]
        busy, cpu, wall = machine_busy(), time.process_time(), time.time()
        for _ in range(repetitions):
            function()
        wall, cpu = time.time() - wall, time.process_time() - cpu
        answer = {"cpu": cpu / repetitions, "wall": wall / repetitions}
        if busy is not None:
            answer["others"] = max(0.0, machine_busy() - busy - cpu) / wall
        return answer


def main():
    peer, workload, threads = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints must not disturb the protocol
    worker = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if worker is None:
                limit_threads(int(threads))
                worker = Worker(peer, workload, int(threads))
            answer = getattr(worker, request.pop("do"))(**request)
        except ModuleNotFoundError as error:
            answer = {"missing": error.name}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
