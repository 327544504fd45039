"""Hostile requests: every one gets a documented status, and the server lives.

    python tests/benchmarks/hostile.py --requests 10000

Sends damaged and made-up messages by gRPC, by REST and as plain bytes to a
server of the toy model, seeded. After each hundred it asks an honest question.
Prints a table: requests by the way they came, the statuses that answered
them, the longest answer, and the most memory that the server added.
"""

import argparse
import collections
import contextlib
import http.client
import json
import pathlib
import random
import socket
import subprocess
import sys
import tempfile
import time

import grpc
import keras_attn_serving
from tensorflow_serving.apis import predict_pb2

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "serving"))

import toy_model  # noqa: E402

STATUSES = {200, 400, 404, 413, 429, 431, 500, 501, 503, 504}
# A request that ends the connection is answered by its end.
CLOSED = "closed"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--smoke", action="store_true")
    args = parser.parse_args()
    count = 300 if args.smoke else args.requests
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.ExitStack() as stack,
    ):
        base = pathlib.Path(folder, "toy")
        toy_model.export(base, 1)
        port, rest = free_port(), free_port()
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "keras_attn_serving",
                f"--model_base_path={base}",
                "--model_name=toy",
                f"--port={port}",
                f"--rest_api_port={rest}",
                "--max_run_seconds=5",
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        stack.callback(process.kill)
        assert process.stdout.readline().startswith("serving")
        attack(process.pid, port, rest, count, random.Random(args.seed))
        assert process.poll() is None, "the server has ended"


def attack(pid, port, rest, count, rng):
    ways = {
        "gRPC, damaged bytes": lambda: by_grpc(port, damaged(honest(), rng)),
        "gRPC, odd tensors": lambda: by_grpc(port, odd_request(rng)),
        "REST, damaged JSON": lambda: by_rest(
            rest, "/v1/models/toy:predict", damaged(honest_json(rng), rng)
        ),
        "REST, odd values": lambda: by_rest(
            rest, "/v1/models/toy:predict", odd_json(rng)
        ),
        "REST, odd paths": lambda: by_rest(rest, odd_path(rng), b"{}"),
        "plain bytes": lambda: by_bytes(rng.choice([port, rest]), rng),
    }
    client = keras_attn_serving.Client(f"localhost:{port}", model="toy")
    for _ in range(50):
        client.predict(["cat"])
    before = peak = memory(pid)
    found = {way: collections.Counter() for way in ways}
    longest = dict.fromkeys(ways, 0.0)
    names = list(ways)
    for number in range(count):
        way = names[number % len(names)]
        started = time.perf_counter()
        found[way][str(ways[way]())] += 1
        longest[way] = max(longest[way], time.perf_counter() - started)
        if number % 100 == 99:
            peak = max(peak, memory(pid))
            assert client.predict(["cat"], timeout=10)["text"] == ["chat"]
    print("| requests | statuses | longest, s |\n|---|---|---|")
    for way, statuses in found.items():
        shown = ", ".join(f"{n} {x}" for x, n in statuses.most_common())
        total = sum(statuses.values())
        print(f"| {total} {way} | {shown} | {longest[way]:.2f} |")
    print(f"\nMemory: {before:.0f} MB before, {peak:.0f} MB at most.")
    assert max(longest.values()) < 10
    assert peak - before < 500


def honest():
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "toy"
    tensor = request.inputs["text"]
    tensor.dtype = 7
    tensor.tensor_shape.dim.add(size=2)
    tensor.string_val.extend([b"cat", b"hello world"])
    return request.SerializeToString()


def honest_json(rng):
    return rng.choice(
        [
            b'{"instances": ["cat", "hello world"]}',
            b'{"signature_name": "nbest", "inputs": {"text": ["cat"]}}',
            b'{"signature_name": "add", "inputs": {"ids": [[1, 2]], '
            b'"lengths": [3]}}',
            b'{"instances": [{"b64": "Y2F0"}]}',
        ]
    )


def damaged(raw, rng):
    data = bytearray(raw)
    for _ in range(rng.choice([1, 1, 1, 2, 8])):
        kind = rng.choice([0, 0, 0, 1, 2, 3])
        at = rng.randrange(len(data) + 1)
        if kind == 0 and data:
            data[at % len(data)] = rng.randrange(256)
        elif kind == 1:
            data[at:at] = rng.randbytes(rng.randint(1, 6))
        elif kind == 2:
            del data[at : at + rng.randint(1, 6)]
        else:
            data[at:at] = data[: rng.randint(0, 40)]
    return bytes(data)


def odd_request(rng):
    request = predict_pb2.PredictRequest()
    request.model_spec.name = rng.choice(["toy", "", "x" * 5000])
    signature = rng.choice(["", "nbest", "align", "add", "number", "slow"])
    request.model_spec.signature_name = signature
    names = {"add": ["ids", "lengths"], "slow": ["steps"]}
    for name in names.get(signature, ["text"]):
        tensor = request.inputs[name]
        tensor.dtype = rng.choice([0, 1, 3, 7, 7, 7, 9, 20, 23, 107, 999])
        for _ in range(rng.choice([0, 1, 1, 1, 2, 5, 300])):
            size = rng.choice([0, 1, 2, 100, 10**6, 2**31, 2**62, -1, -5])
            tensor.tensor_shape.dim.add(size=size)
        tensor.tensor_shape.unknown_rank = rng.random() < 0.1
        if rng.random() < 0.5:
            tensor.string_val.append(rng.randbytes(rng.choice([0, 3, 20_000])))
        if rng.random() < 0.3:
            tensor.int64_val.append(rng.choice([0, -1, 2**62]))
        if rng.random() < 0.3:
            tensor.tensor_content = rng.randbytes(rng.choice([0, 4, 9]))
    return request.SerializeToString()


def odd_json(rng):
    def value(depth=0):
        kinds = ["cat", "", "\0", 1, -1, 1.5, 10**30, None, True, float("nan")]
        if depth < 4 and rng.random() < 0.5:
            items = [value(depth + 1) for _ in range(rng.randint(0, 4))]
            if rng.random() < 0.5:
                return items
            keys = ["b64", "text", "ids", "lengths", "x"]
            return {rng.choice(keys): item for item in items}
        return rng.choice(kinds)

    body = {}
    for key in ("instances", "inputs", "signature_name"):
        if rng.random() < 0.5:
            body[key] = value()
    text = json.dumps(body)
    if rng.random() < 0.1:
        text = "[" * rng.choice([10, 1000, 200_000]) + text
    if rng.random() < 0.05:
        text = text.replace("1", "1" * 10_000)
    return text.encode()


def odd_path(rng):
    parts = ["v1", "models", "toy", "versions", "1", "labels", "%2e%2e", ""]
    parts += [
        "toy:predict",
        "metadata",
        "9" * 30,
        "%00",
        "%ff",
        "..",
        "a" * 999,
    ]
    return "/" + "/".join(rng.choices(parts, k=rng.randint(1, 6)))


def by_grpc(port, raw):
    with grpc.insecure_channel(f"localhost:{port}") as channel:
        call = channel.unary_unary(
            "/tensorflow.serving.PredictionService/Predict"
        )
        try:
            call(raw, timeout=20)
        except grpc.RpcError as error:
            return error.code().name
    return "OK"


def by_rest(port, path, body):
    connection = http.client.HTTPConnection("localhost", port, timeout=20)
    with contextlib.closing(connection):
        connection.request("POST", path, body)
        status = connection.getresponse().status
    assert status in STATUSES, status
    return status


def by_bytes(port, rng):
    start = rng.choice(
        [
            b"",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",  # the start of HTTP/2
            b"POST /v1/models/toy:predict HTTP/1.1\r\n",
            b"GET /v1/models/toy HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n",
        ]
    )
    with socket.create_connection(("localhost", port), timeout=20) as other:
        other.settimeout(0.02)
        with contextlib.suppress(OSError):
            other.sendall(start + rng.randbytes(rng.randint(0, 2000)))
            other.recv(1000)
    return CLOSED


def memory(pid):
    """Returns the resident memory in MB."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    line = next(x for x in status.splitlines() if x.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def free_port():
    with socket.create_server(("localhost", 0)) as other:
        return other.getsockname()[1]


if __name__ == "__main__":
    main()
