"""Watches a server under attack, from a process of its own.

    python tests/benchmarks/watch.py PID GRPC_PORT REST_PORT

prints an empty line when it looks. When its standard input ends it prints, as
JSON, the most MB that the server had and the longest seconds of a health
check. It needs no TensorFlow, which takes seconds to import.
"""

import contextlib
import http.client
import json
import pathlib
import select
import sys
import time

import grpc
from grpc_health.v1 import health_pb2
from grpc_health.v1 import health_pb2_grpc

_LOOK = 0.05  # seconds between two looks


def main(pid, port, rest):
    most, longest = memory(pid), 0.0
    with grpc.insecure_channel(f"localhost:{port}") as channel:
        check = health_pb2_grpc.HealthStub(channel).Check
        message = health_pb2.HealthCheckRequest()
        check(message, timeout=20)
        print(flush=True)
        while not select.select([sys.stdin], [], [], _LOOK)[0]:
            most = max(most, memory(pid))
            started = time.perf_counter()
            check(message, timeout=60)
            connection = http.client.HTTPConnection(
                "localhost", rest, timeout=60
            )
            with contextlib.closing(connection):
                middle = time.perf_counter()
                connection.request("GET", "/healthz")
                assert connection.getresponse().status == 200
            ended = time.perf_counter()
            longest = max(longest, middle - started, ended - middle)
    print(json.dumps({"MB": most, "seconds": longest}))


def memory(pid, kind="VmRSS"):
    """Returns the resident memory in MB; its peak for `"VmHWM"`."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    line = next(x for x in status.splitlines() if x.startswith(kind))
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
