"""Hostile requests: every one gets a documented status, and the server lives.

    python tests/benchmarks/hostile.py --requests 10000
    python tests/benchmarks/hostile.py --model tour

Sends damaged and made-up messages by gRPC, by REST and as plain bytes to a
server of the toy model, seeded. After each hundred it asks an honest question.
Then come the attacks of `attacks.py`, one after the other. Prints tables:
requests by the way they came, the statuses that answered them, the longest
answer; attacks, their statuses, the memory that the server added and the
longest health check. It fails if a bound is passed, or a call was lost.

`--model tour` attacks the net of the README's tour, with random weights.
"""

import argparse
import collections
import contextlib
import http.client
import json
import pathlib
import random
import socket
import sys
import tempfile
import time

import grpc
import keras_attn_serving
import watch
from tensorflow_serving.apis import predict_pb2

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

import attacks  # noqa: E402
from served import Served  # noqa: E402
from support.serving import toy_model  # noqa: E402

STATUSES = {200, 400, 404, 413, 429, 431, 500, 501, 503, 504}

# MB above an idle server, and seconds of a health check. The largest request
# that is allowed takes 1.4 GB with the tour's net.
MOST = {"toy": 500, "tour": 1536}
HEALTH, HEALTH_SMOKE = 1.0, 10.0  # tests run beside other work

# Attacks by their names, and how many of each: in full, and to try.
ATTACKS = {
    "large ids": (attacks.large_ids, 64, 8),
    "large answers": (attacks.large_answers, 4, 1),
    "16 MiB of tasks": (attacks.several_tasks, 4, 1),
    "16 MiB of lists": (attacks.many_lists, 8, 2),
    "16 MiB of numbers": (attacks.many_numbers, 8, 2),
    "16 MiB and a wrong key": (attacks.a_wrong_key, 8, 2),
    "one-byte chunks": (attacks.one_byte_chunks, 8, 2),
    "half-closed": (attacks.half_closed, 100, 10),
    "silent connections": (attacks.silent_connections, 300, 40),
    "unfinished bodies": (attacks.unfinished_bodies, 100, 10),
    "zipped fields": (attacks.zipped_fields, 8, 2),
    "unread answers": (attacks.unread_answers, 240, 8),
    "unread watches": (attacks.unread_watches, 90, 8),
    "unread reflection": (attacks.unread_reflection, 20, 2),
    "silent calls": (attacks.silent_calls, 30_000, 500),
    "unfinished messages": (attacks.unfinished_messages, 90, 4),
    "a burst": (attacks.burst, 5000, 500),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--model", choices=MOST, default="toy")
    parser.add_argument("--smoke", action="store_true")
    args = parser.parse_args()
    count = 300 if args.smoke else args.requests
    seconds = 5 if args.model == "toy" else 60
    with tempfile.TemporaryDirectory() as folder:
        base = pathlib.Path(folder, args.model)
        export(args.model, base)
        flag = f"--max_run_seconds={seconds}"
        with Served(base, args.model, flag) as server:
            target = server.target(args.model)
            if args.model == "toy":
                rng = random.Random(args.seed)
                attack(target.pid, target.port, target.rest, count, rng)
            charge(target, args.smoke)
            assert server.alive, "the server has ended"


def export(model, base):
    if model == "toy":
        toy_model.export(base, 1)
    else:  # it needs Keras
        import tour

        tour.export(base)


def charge(target, smoke):
    """Makes the attacks that are large or many."""
    found = dict(ATTACKS)
    if target.model == "tour":
        found["allowed texts"] = attacks.allowed_texts, 1, 1
    client = keras_attn_serving.Client(
        f"localhost:{target.port}", model=target.model, timeout=60, retries=3
    )
    for _ in range(50):
        client.predict(["cat"])
    idle, bad = watch.memory(target.pid), []
    print("\n| attack | statuses | MB added | health, s |\n|---|---|---|---|")
    for name, (run, many, few) in found.items():
        count = few if smoke else many
        with target.watched() as watched:
            statuses, documented = run(target, count)
        added, health = watched["MB"] - idle, watched["seconds"]
        shown = ", ".join(f"{n} {x}" for x, n in statuses.most_common())
        print(
            f"| {name}, {count} | {shown} | {added:.0f} | {health:.2f} |",
            flush=True,
        )
        late = health > (HEALTH_SMOKE if smoke else HEALTH)
        if set(statuses) - documented or added > MOST[target.model] or late:
            bad.append(name)
        client.predict(["cat"])
    assert not bad, f"too much: {bad}"


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
    before = peak = watch.memory(pid)
    found = {way: collections.Counter() for way in ways}
    longest = dict.fromkeys(ways, 0.0)
    names = list(ways)
    for number in range(count):
        way = names[number % len(names)]
        started = time.perf_counter()
        found[way][str(ways[way]())] += 1
        longest[way] = max(longest[way], time.perf_counter() - started)
        if number % 100 == 99:
            peak = max(peak, watch.memory(pid))
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
    return attacks.CLOSED


if __name__ == "__main__":
    main()
