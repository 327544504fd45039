"""Clients that connect and then keep the server waiting, by HTTP and gRPC."""

import asyncio
import concurrent.futures
import contextlib
import gzip
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time

import grpc
import pytest
from grpc_health.v1 import health_pb2
from grpc_health.v1 import health_pb2_grpc
from keras_attn_serving import Client
from keras_attn_serving.server import Rest
from keras_attn_serving.server import Server
from keras_attn_serving.server import http_connection
from keras_attn_serving.server.connections import Connections
from keras_attn_serving.server.http_server import HttpServer
from keras_attn_serving.server.limits import Limits
from support.serving import toy_model
from support.serving.helpers import free_port
from support.serving.helpers import until

PREDICT = f"/v1/models/{toy_model.NAME}:predict"
METRICS = "/metrics"
CAT = b'{"inputs": ["cat"]}'
FOREVER = b'{"signature_name": "slow", "inputs": [1000000000000000]}'
# More than the buffers of the system hold.
LARGE = json.dumps({"signature_name": "raw", "inputs": ["x" * 2**23]}).encode()
IDLE = 0.4
MOST = 8
LIMITS = Limits(
    text_bytes=2**24, elements=2**24, message_bytes=2**24, answer_bytes=2**26
)


@pytest.fixture(scope="module")
def server(toy_path):
    """A server that takes few connections and has little patience."""
    with Server(
        toy_path.parent,
        toy_model.NAME,
        port=0,
        rest=Rest(metrics_path=METRICS),
        limits=LIMITS,
        connections=Connections(MOST, IDLE),
    ) as server:
        yield server


@pytest.fixture
def connect(server):
    """Connects to a port of the server, its REST port if none is named."""
    with contextlib.ExitStack() as stack:

        def connect(port=server.rest_port):
            made = socket.create_connection(("localhost", port), timeout=20)
            return stack.enter_context(made)

        yield connect


def head(length=None, path=PREDICT, method="POST", **headers):
    lines = [f"{method} {path} HTTP/1.1", "Host: a"]
    if length is not None:
        lines.append(f"Content-Length: {length}")
    lines += [f"{x.replace('_', '-')}: {y}" for x, y in headers.items()]
    return "".join(f"{line}\r\n" for line in [*lines, ""]).encode()


def post(body):
    return head(len(body)) + body


def answer(connection):
    """Returns the status and the body of the next answer."""
    response = http.client.HTTPResponse(connection)
    response.begin()
    return response.status, response.read()


def closed(connection, seconds=20.0):
    """Whether the server closes a connection, without a further answer."""
    connection.settimeout(seconds)
    try:
        return not connection.recv(1)
    except ConnectionError:
        return True
    except TimeoutError:
        return False


def get(port, path):
    connection = http.client.HTTPConnection("localhost", port, timeout=20)
    with contextlib.closing(connection):
        connection.request("GET", path)
        return connection.getresponse().status


def healthy(server):
    paths = "/healthz", "/readyz", METRICS
    return {get(server.rest_port, path) for path in paths} == {200}


# Clients that are silent, slow or many


@pytest.mark.parametrize("sent", [b"", b"POST /v1", head(9)[:-2]])
def test_a_connection_without_a_whole_head_is_closed(connect, sent):
    connection = connect()
    connection.sendall(sent)
    assert closed(connection)


def test_a_head_that_trickles_in_has_no_more_time(connect):
    connection = connect()
    started = time.monotonic()
    with contextlib.suppress(ConnectionError):
        while time.monotonic() - started < 20:
            connection.sendall(b"X")
            time.sleep(0.05)
    assert time.monotonic() - started < 20


def test_connections_are_watched_whatever_moment_they_come_at():
    async def come_and_wait():
        listening = socket.create_server(("localhost", 0))
        limits = Connections(MOST, idle_seconds=1e-6)  # always looking
        server = HttpServer(None, [listening], limits)
        server.start()
        for turns in range(50):
            for _ in range(turns):  # of the event loop
                await asyncio.sleep(0)
            address = listening.getsockname()
            reader, writer = await asyncio.open_connection(*address)
            assert await asyncio.wait_for(reader.read(), 20) == b""
            writer.close()
        await server.stop(0.0)

    asyncio.run(come_and_wait())


def test_a_connection_that_is_idle_after_an_answer_is_closed(connect):
    connection = connect()
    for _ in range(2):
        connection.sendall(post(CAT))
        assert answer(connection)[0] == 200
    assert closed(connection)


def test_a_body_that_trickles_in_after_its_refusal_has_no_more_time(connect):
    connection = connect()
    connection.sendall(head(10**9))
    started = time.monotonic()
    with contextlib.suppress(ConnectionError):
        connection.sendall(b" " * (LIMITS.message_bytes + 1))  # too many
        while time.monotonic() - started < 20:
            connection.sendall(b" ")
            time.sleep(0.05)
    assert time.monotonic() - started < 20


def test_an_answer_that_is_not_read_is_given_up(server, connect):
    connection = connect()
    connection.sendall(post(LARGE))
    deadline = time.monotonic() + 20
    while True:  # until it has been closed at the other end
        assert time.monotonic() < deadline
        with contextlib.suppress(BlockingIOError):
            try:
                connection.send(b" ", socket.MSG_DONTWAIT)
            except ConnectionError:
                break
        time.sleep(0.05)


def test_an_answer_that_is_read_slowly_arrives_whole(toy_path):
    idle = 1.5  # a busy machine may halt the reader for a while
    with (
        Server(
            toy_path.parent,
            toy_model.NAME,
            port=0,
            rest=Rest(),
            limits=LIMITS,
            connections=Connections(MOST, idle),
        ) as server,
        socket.create_connection(("localhost", server.rest_port)) as connection,
    ):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**16)
        connection.sendall(post(LARGE))
        received, started = [], time.monotonic()
        while not b"".join(received[-2:]).endswith(b"}\n}"):
            received.append(connection.recv(2**18))
            assert received[-1]
            time.sleep(0.03)
        assert time.monotonic() - started > idle
    assert sum(map(len, received)) > 2**24  # `text`, and its base64


def test_new_clients_are_answered_however_many_are_silent(server, connect):
    silent = [connect() for _ in range(3 * MOST)]
    assert healthy(server)
    assert closed(silent[0])
    half = [connect() for _ in range(3 * MOST)]
    for each in half:
        with contextlib.suppress(ConnectionError):
            each.sendall(head(100) + b"{")
    assert healthy(server)
    with Client(server.address, toy_model.NAME) as client:
        assert client.predict(["cat"])["text"] == ["chat"]


def test_requests_that_are_whole_do_not_give_way(toy_path):
    with (
        Server(
            toy_path.parent,
            toy_model.NAME,
            port=0,
            threads=1,
            rest=Rest(timeout=1.5),
            connections=Connections(most=1, idle_seconds=IDLE),
        ) as server,
        contextlib.ExitStack() as stack,
    ):

        def connect(sent):
            address = "localhost", server.rest_port
            made = socket.create_connection(address, timeout=20)
            stack.enter_context(made)
            made.sendall(sent)
            return made

        running = [connect(post(FOREVER)) for _ in range(3)]
        for _ in range(5):
            connect(b"")
        # Those that wait for the thread are refused, as it will be too late.
        assert {answer(each)[0] for each in running} <= {503, 504}


@pytest.mark.full
@pytest.mark.skipif(os.name == "nt", reason="Windows has no limit to set.")
def test_no_file_descriptor_left_costs_neither_answers_nor_a_log(
    toy_path, tmp_path
):
    port, log = free_port(), tmp_path / "log"
    flags = (
        f"--model_base_path={toy_path.parent} --model_name=toy --port=0 "
        f"--rest_api_port={port} --max_connections=1000"
    )
    with (
        open(log, "w") as errors,
        subprocess.Popen(
            [
                "bash",
                "-c",
                f"ulimit -n 200; exec {sys.executable} "
                f"-m keras_attn_serving {flags}",
            ],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
        contextlib.ExitStack() as stack,
    ):
        stack.callback(process.kill)
        line = process.stdout.readline()
        assert line.startswith("serving "), log.read_text()
        before = len(log.read_text())
        for _ in range(300):
            stack.enter_context(
                socket.create_connection(("localhost", port), timeout=20)
            )
        for _ in range(5):
            assert get(port, "/healthz") == 200
        said = log.read_text()[before:]
        assert "ulimit -n" in said
        assert len(said) < 2000


# Clients that shut their side


@pytest.mark.parametrize("path", [PREDICT, "/healthz"])
def test_a_client_that_shuts_its_side_is_answered(server, connect, path):
    connection = connect()
    sent = post(CAT) if path == PREDICT else head(path=path, method="GET")
    connection.sendall(sent * 2)
    connection.shutdown(socket.SHUT_WR)
    with connection.makefile("rb") as file:
        assert file.read().count(b"HTTP/1.1 200") == 2
    until(lambda: not server._http._connections)


def test_half_a_request_of_a_client_that_shuts_its_side_is_not(connect):
    for sent in (b"", post(CAT)[:9], post(CAT)[:-1]):
        connection = connect()
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        assert closed(connection)


def test_a_client_that_shuts_its_side_counts_as_gone_after_a_while(
    toy_path, monkeypatch
):
    monkeypatch.setattr(http_connection, "_SECONDS_AFTER_END", 0.3)
    with (
        Server(
            toy_path.parent,
            toy_model.NAME,
            port=0,
            threads=1,
            rest=Rest(timeout=None),
        ) as server,
        socket.create_connection(("localhost", server.rest_port)) as connection,
    ):
        connection.sendall(post(FOREVER))
        connection.shutdown(socket.SHUT_WR)
        assert closed(connection, 30.0)


# Bodies that wait


def test_bodies_that_wait_have_one_limit_and_the_oldest_gives_way(toy_path):
    limits = Limits(message_bytes=4096)
    with (
        Server(
            toy_path.parent,
            toy_model.NAME,
            port=0,
            rest=Rest(),
            limits=limits,
        ) as server,
        contextlib.ExitStack() as stack,
    ):
        waiting = []
        for _ in range(8):
            made = socket.create_connection(
                ("localhost", server.rest_port), timeout=20
            )
            waiting.append(stack.enter_context(made))
            made.sendall(head(4096) + b" " * 3000)
        for each in waiting[:2]:  # five fit into 16 kB
            status, body = answer(each)
            assert status == 503
            assert "arrived too slowly" in json.loads(body)["error"]
        assert server._bodies._bytes <= 4 * 4096
        # The newest can still be sent to its end, and others pass it.
        made = waiting[-1]
        with contextlib.closing(
            http.client.HTTPConnection(server.rest_address, timeout=20)
        ) as other:
            other.request("POST", PREDICT, CAT)
            assert other.getresponse().status == 200
        made.sendall(CAT.rjust(1096))
        assert answer(made)[0] == 200


def test_bodies_that_wait_stay_zipped(server, connect):
    zipped = gzip.compress(b" " * (LIMITS.message_bytes - 100) + CAT)
    assert len(zipped) < 20_000
    waiting = [connect() for _ in range(4)]
    for each in waiting:
        each.sendall(head(len(zipped), Content_Encoding="gzip") + zipped[:-1])
    until(lambda: server._bodies._bytes == 4 * (len(zipped) - 1))
    for each in waiting:
        each.sendall(zipped[-1:])
        assert answer(each)[0] == 200
    assert not server._bodies._bytes


# Requests that two servers could read differently


SMUGGLED = b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"


@pytest.mark.parametrize(
    "sent",
    [
        head(len(SMUGGLED) + 5, Transfer_Encoding="chunked") + b"0\r\n\r\n",
        head(4, "/healthz", "GET", Transfer_Encoding="chunked") + b"0\r\n\r\n",
        head(Transfer_Encoding="chunked").replace(b"1.1", b"1.0")
        + b"0\r\n\r\n",
        head(4, Content_length="5") + b"1234",
        b"nonsense\r\n\r\n",
    ],
    ids=["post", "get", "old", "two lengths", "no http"],
)
def test_what_is_not_valid_http_is_refused_and_the_connection_closed(
    connect, sent
):
    connection = connect()
    connection.sendall(sent + SMUGGLED)
    status, body = answer(connection)
    assert status == 400
    assert json.loads(body)["error"].startswith("The request is not valid HTTP")
    assert closed(connection)


def chunked(*chunks):
    """A request to predict, whose body is in chunks."""
    lines = [b"%x\r\n%b\r\n" % (len(x), x) for x in [*chunks, b""]]
    return head(Transfer_Encoding="chunked") + b"".join(lines)


def pieces(text, size):
    return [text[x : x + size] for x in range(0, len(text), size)]


@pytest.mark.parametrize(
    ("body", "size"),
    [(CAT.rjust(900), 1), (CAT.rjust(2**20), 256), (CAT.rjust(2**23), 2**20)],
)
def test_a_body_may_come_in_chunks(connect, body, size):
    connection = connect()
    for _ in range(2):
        connection.sendall(chunked(*pieces(body, size)))
        assert answer(connection)[0] == 200


@pytest.mark.parametrize("size", [1, 16])
def test_many_small_chunks_are_refused(connect, size):
    """Eight bodies of a million such kept a health check waiting for 19 s."""
    connection = connect()
    # No more than is read at once, or the refusal may be lost with the rest.
    connection.sendall(chunked(*pieces(b" " * 1100 * size, size)))
    status, body = answer(connection)
    assert status == 400
    assert closed(connection)
    said = json.loads(body)["error"]
    assert said.startswith("A body may have at most 1000 chunks, and one more ")
    assert "Content-Length" in said


@pytest.mark.parametrize(
    "before", [b"", head(Transfer_Encoding="chunked") + b"0\r\n"]
)
def test_a_head_has_a_limit_though_it_comes_at_once(connect, before):
    connection = connect()
    start = before or head(method="GET")[:-2]
    connection.sendall(start + b"a:\r\n" * 9_000 + b"\r\n")
    status, _ = answer(connection)
    assert status == 400
    assert closed(connection)


@pytest.mark.parametrize("host", ["http://a", "HTTP://user@a:80", "https://a"])
def test_a_request_may_name_the_address_of_the_server(connect, host):
    connection = connect()
    connection.sendall(head(path=host + "/v1/models/toy", method="GET"))
    status, body = answer(connection)
    assert status == 200
    assert json.loads(body)["model_version_status"]
    connection.sendall(head(path=host, method="GET"))
    assert answer(connection)[0] == 404  # of "/"
    connection.sendall(head(path=host + METRICS + "?x=1", method="GET"))
    assert answer(connection)[0] == 400


# gRPC


def test_grpc_closes_connections_that_are_idle_or_too_many(server, connect):
    silent = [connect(server.port) for _ in range(2 * MOST)]
    assert all(map(closed_after_greeting, silent))
    with grpc.insecure_channel(server.address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        for _ in range(2):
            found = stub.Check(health_pb2.HealthCheckRequest(), timeout=20)
            assert found.status == health_pb2.HealthCheckResponse.SERVING
            time.sleep(2 * IDLE)  # it connects again by itself


def closed_after_greeting(connection):
    with contextlib.suppress(ConnectionError):
        while connection.recv(1000):
            pass
    return True


# The end


def test_half_a_body_does_not_hold_up_the_end(toy_path):
    server = Server(toy_path.parent, toy_model.NAME, port=0, rest=Rest())
    with contextlib.ExitStack() as stack:
        made = [
            stack.enter_context(
                socket.create_connection(
                    ("localhost", server.rest_port), timeout=20
                )
            )
            for _ in range(3)
        ]
        made[0].sendall(head(100) + b"{")
        made[1].sendall(b"POST")
        until(lambda: server._bodies._bytes)
        started = time.monotonic()
        server.stop(grace=60.0)
        assert time.monotonic() - started < 20
        status, body = answer(made[0])
        assert (status, json.loads(body)) == (
            503,
            {"error": "The server stops."},
        )


@pytest.mark.full
@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGTERM to send.")
def test_the_command_ends_within_ten_seconds_whatever_clients_do(toy_path):
    port = free_port()
    with (
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                "keras_attn_serving",
                "--port=0",
                f"--model_base_path={toy_path.parent}",
                "--model_name=toy",
                f"--rest_api_port={port}",
            ],
            stdout=subprocess.PIPE,
            text=True,
        ) as process,
        contextlib.ExitStack() as stack,
        concurrent.futures.ThreadPoolExecutor(1) as pool,
    ):
        stack.callback(process.kill)
        address = process.stdout.readline().split(" at ")[1].split()[0]
        for sent in (b"", b"POST", head(100) + b"{", post(FOREVER)):
            made = socket.create_connection(("localhost", port), timeout=20)
            stack.enter_context(made).sendall(sent)
        channel = stack.enter_context(grpc.insecure_channel(address))
        watching = health_pb2_grpc.HealthStub(channel).Watch(
            health_pb2.HealthCheckRequest()
        )
        assert next(watching).status == health_pb2.HealthCheckResponse.SERVING
        client = stack.enter_context(Client(address, "toy", timeout=60))
        call = pool.submit(client.predict, {"steps": [10**9]}, "slow")
        time.sleep(1.0)
        started = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0
        assert time.monotonic() - started < 10
        assert call.exception() is not None
