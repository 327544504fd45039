"""Times keras_attn and what a user would pick instead, on the same net.

    python tests/benchmarks/run.py                    everything, half an hour
    python tests/benchmarks/run.py --smoke            half a minute
    python tests/benchmarks/run.py --workloads W1 --kinds greedy --rounds 3

One process per library is kept alive; the cases go round among them, and the
round is repeated. Two measures, in processes of their own: CPU time with
every library held to one thread, which other load on the machine disturbs
least, and wall time with all cores. The first calls (tracing, compiling) are
not in either. Every library gets the same weights and data, and before
anything is timed its loss, tokens and scores are held against ours.

TF Addons needs Python packages of 2023 and PyTorch ones of its own. Name a
Python that has them in KERAS_ATTN_BENCH_TFA and KERAS_ATTN_BENCH_TORCH (or
in the options); peers without one are skipped, and the report says so:

    tensorflow-cpu==2.15.1 tensorflow-addons==0.23.0 "numpy<2"
    torch, then joeynmt==2.3.0 --no-deps and whatever its import asks for
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import report
import workloads

HERE = Path(__file__).parent
OURS = "keras_attn"
PEERS = {  # name: (module of `peers` and variant, environment)
    OURS: ("ours", "main"),
    "keras_attn, XLA": ("ours:xla", "main"),
    "Keras": ("plain_keras", "main"),
    "Keras, unrolled": ("plain_keras:unroll", "main"),
    "Keras, predict_on_batch": ("keras_predict", "main"),
    "KerasHub": ("keras_hub_samplers", "main"),
    "KerasHub, XLA": ("keras_hub_samplers:xla", "main"),
    "TF Addons": ("tf_addons", "tfa"),
    "PyTorch by hand": ("hand_pytorch", "torch"),
    "JoeyNMT": ("joey_nmt", "torch"),
}
KINDS = ["train", "greedy", "beam", "server"]
SMOKE = [OURS, "Keras", "KerasHub"]


class Worker:
    """The client's end of `worker.py`: a library in a process of its own."""

    def __init__(self, python, peer, workload, threads, log):
        self.process = subprocess.Popen(
            [python, "worker.py", peer, workload, str(threads)],
            cwd=HERE,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )

    def send(self, do, **request):
        line = json.dumps({"do": do, **request})
        print(line, file=self.process.stdin, flush=True)

    def receive(self):
        line = self.process.stdout.readline()
        if not line:
            return {"error": f"ended with status {self.process.wait()}"}
        return json.loads(line)

    def ask(self, do, **request):
        self.send(do, **request)
        return self.receive()

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def main():
    args = arguments()
    results = {
        "machine": {
            "processor": platform.processor() or platform.machine(),
            "cores": os.cpu_count(),
            "python": platform.python_version(),
        },
        "rounds": args.rounds,
        "skipped": {},
        "workloads": {},
    }
    pythons = {"main": sys.executable, "tfa": args.tfa, "torch": args.torch}
    peers = {}
    for name in args.peers:
        spec, environment = PEERS[name]
        if pythons[environment]:
            peers[name] = pythons[environment], spec
        else:
            results["skipped"][name] = f"no --{environment}-python given"
    with open(args.log, "w") as log:
        for workload in args.workloads:
            found = results["workloads"][workload] = {"peers": {}, "times": {}}
            found["peers"], skipped = describe(peers, workload, log)
            results["skipped"] |= skipped
            able = {
                name: peers[name]
                for name, answer in found["peers"].items()
                if "error" not in answer
            }
            for measure in args.measures:
                found["times"][measure] = time_peers(
                    start(able, workload, measure, log),
                    cases(workload, args),
                    args.rounds,
                    found["peers"],
                )
            print(report.workload(workload, found, OURS), flush=True)
        if "server" in args.kinds:
            note("the development server beside direct calls")
            results["server"] = time_server(args, log)
            print(report.server(results["server"]), flush=True)
    if args.json:
        Path(args.json).write_text(json.dumps(results, indent=1))
    if args.markdown:
        Path(args.markdown).write_text(report.markdown(results, OURS))
    return report.problems(results, OURS)


def time_server(args, log):
    """`{way: {texts a request: {"p50": ms, "p99": ms}}}`, or an error."""
    command = [sys.executable, "serving.py", f"--requests={args.requests}"]
    done = subprocess.run(
        command, cwd=HERE, stdout=subprocess.PIPE, stderr=log, text=True
    )
    if done.returncode:
        return {"error": f"serving.py ended with status {done.returncode}"}
    return json.loads(done.stdout)


def cases(workload, args):
    every = workloads.WORKLOADS[workload].cases()
    return [case for case in every if case[0] in args.kinds]


def start(peers, workload, measure, log):
    threads = 1 if measure == "cpu" else os.cpu_count()
    return {
        name: Worker(*peer, workload, threads, log)
        for name, peer in peers.items()
    }


def describe(peers, workload, log):
    """Returns the results of each library, and why some were skipped.

    Each runs in a process of its own, as what it leaves in memory changes the
    times of a small net by several percent.
    """
    workers = start(peers, workload, "cpu", log)
    for worker in workers.values():  # all at once: nothing is timed here
        worker.send("describe")
    described, skipped = {}, {}
    for name, worker in workers.items():
        answer = worker.receive()
        worker.close()
        if "missing" in answer:
            skipped[name] = f"no module named {answer['missing']}"
        else:
            described[name] = answer
        if reason := answer.get("error", skipped.get(name)):
            note(f"{name}: {reason}")
    return described, skipped


def time_peers(workers, cases, rounds, described):
    """`{peer: {case: [sample, ...]}}` of one workload and one measure."""
    times = {name: {} for name in workers}
    for name, worker in workers.items():
        for kind, batch in cases:
            answer = worker.ask("prepare", kind=kind, batch=batch)
            case = f"{kind} {batch}"
            if "error" in answer:
                note(f"{name}, {case}: {answer['error']}")
                described[name].setdefault("failed", {})[case] = answer["error"]
            elif "skipped" not in answer:
                note(f"{name}, {case}: first call {answer['first']:.1f} s")
                times[name][case] = []
    for round in range(rounds):
        note(f"round {round + 1} of {rounds}")
        for kind, batch in cases:
            order = list(workers)
            order = order[round % len(order) :] + order[: round % len(order)]
            for name in order:
                samples = times[name].get(f"{kind} {batch}")
                if samples is not None:
                    ask = workers[name].ask
                    samples.append(ask("sample", kind=kind, batch=batch))
    for worker in workers.values():
        worker.close()
    return times


def note(text):
    print(text, file=sys.stderr, flush=True)


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0],
    )
    add, names = parser.add_argument, list(PEERS)
    add("--workloads", nargs="+", default=["W1", "W2"])
    add("--peers", nargs="+", choices=names, default=names, metavar="PEER",
        help=f"any of {names}")  # fmt: skip
    add("--kinds", nargs="+", choices=KINDS, default=KINDS)
    add("--measures", nargs="+", choices=["cpu", "wall"],
        default=["cpu", "wall"])  # fmt: skip
    add("--rounds", type=int, default=5)
    add("--requests", type=int, default=500, help="to the server, a way")
    add("--smoke", action="store_true", help="smallest net, one round")
    add("--tfa-python", dest="tfa",
        default=os.environ.get("KERAS_ATTN_BENCH_TFA"))  # fmt: skip
    add("--torch-python", dest="torch",
        default=os.environ.get("KERAS_ATTN_BENCH_TORCH"))  # fmt: skip
    add("--json", help="where to write every sample")
    add("--markdown", help="where to write the tables")
    add(
        "--log", default=os.devnull, help="where the libraries' own output goes"
    )
    args = parser.parse_args()
    if args.smoke:
        args.workloads, args.rounds = ["smoke"], 1
        args.measures, args.peers = ["cpu"], SMOKE
        args.kinds = KINDS[:-1]
    return args


if __name__ == "__main__":
    sys.exit(main())
