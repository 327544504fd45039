"""The development server beside direct calls of the same SavedModel.

    python tests/benchmarks/serving.py --requests 500

Exports a net of W2's sizes with random weights, so that every request decodes
to the maximum length, with beam search. Prints one JSON object: p50 and p99
in milliseconds for each way of calling it and each number of texts a request.
The ways take turns. The server has a process of its own, as in life; it
shares the cores with the one that asks. Another export of the same, compiled
by XLA, is called directly; its compiling is not in the times.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401  registers the tokenizers' operations
import workloads
from keras_attn_serving import Client
from peers import ours
from served import Served

BATCHES = 1, 32
TURN = 20  # requests before the next way has its turn
SIGNATURE = "serving_default"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--workload", default="W2")
    parser.add_argument("--requests", type=int, default=500)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        workload = workloads.WORKLOADS[args.workload]
        plain, compiled = Path(folder, "plain"), Path(folder, "compiled")
        texts = ours.export(workload, plain)
        ours.export(workload, compiled, jit_compile=True)
        path, compiled = (
            str(next(x.glob("*/saved_model.pb")).parent)
            for x in (plain, compiled)
        )
        with (
            Served(plain, "bench") as server,
            Client(server.address, model="bench") as client,
        ):
            ways = {
                "server, gRPC": client.predict,
                "TF1 session": session(path),
                "tf.saved_model.load": loaded(path),
                "the same, jit_compile=True": loaded(compiled),
            }
            print(json.dumps(measure(ways, texts, args.requests)))


def session(path):
    """Returns a function that runs the export in a session, as servers do."""
    graph = tf.Graph()
    with graph.as_default():
        # Kept alive by the callable.
        session = tf.compat.v1.Session(graph=graph)
        meta = tf.compat.v1.saved_model.load(session, ["serve"], path)
    signature = meta.signature_def[SIGNATURE]
    names = [spec.name for spec in signature.outputs.values()]
    run = session.make_callable(names, [signature.inputs["text"].name])
    return lambda texts: run(np.array([t.encode() for t in texts], object))


def loaded(path):
    model = tf.saved_model.load(path)
    run = model.signatures[SIGNATURE]

    def call(texts, model=model):  # the signature alone does not keep it
        outputs = run(text=tf.constant(texts))
        return {name: x.numpy() for name, x in outputs.items()}

    return call


def measure(ways, texts, requests):
    """`{way: {texts a request: {"p50": ms, "p99": ms}}}`."""
    found = {way: {} for way in ways}
    for batch in BATCHES:
        batches = [
            [texts[(start + i) % len(texts)] for i in range(batch)]
            for start in range(len(texts))
        ]
        seconds = {way: [] for way in ways}
        for way in ways.values():
            for first in batches[:3]:
                way(first)
        for turn in range(0, requests, TURN):
            for name, way in ways.items():
                for i in range(turn, min(turn + TURN, requests)):
                    start = time.perf_counter()
                    way(batches[i % len(batches)])
                    seconds[name].append(time.perf_counter() - start)
        for name in ways:
            p50, p99 = 1e3 * np.percentile(seconds[name], [50, 99])
            found[name][str(batch)] = {"p50": p50, "p99": p99}
    return found


if __name__ == "__main__":
    main()
