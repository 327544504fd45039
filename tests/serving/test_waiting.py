"""Clients by gRPC that keep a call open, or send what grows when parsed."""

import asyncio
import contextlib
import functools
import logging
import os
import pathlib
import signal
import subprocess
import sys
import time

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2
from grpc_health.v1 import health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha import reflection_pb2_grpc
from keras_attn_serving import AsyncClient
from keras_attn_serving import Client
from keras_attn_serving.server import Server
from keras_attn_serving.server import rpcs
from keras_attn_serving.server.config import ConfigError
from keras_attn_serving.server.config import models
from keras_attn_serving.server.connections import Connections
from keras_attn_serving.server.errors import Code
from keras_attn_serving.server.errors import StatusError
from keras_attn_serving.server.limits import Limits
from keras_attn_serving.server.metrics import Metrics
from keras_attn_serving.server.parsing import parse
from keras_attn_serving.server.parsing import weight
from keras_attn_serving.server.service import PredictionService
from support.serving import toy_model
from support.serving.bare_http2 import BareHttp2
from support.serving.helpers import until
from tensorflow_serving.apis import model_management_pb2
from tensorflow_serving.apis import predict_pb2
from tensorflow_serving.config import model_server_config_pb2

PREDICT = "/tensorflow.serving.PredictionService/Predict"
RELOAD = "/tensorflow.serving.ModelService/HandleReloadConfigRequest"
CHECK = "/grpc.health.v1.Health/Check"
WATCH = "/grpc.health.v1.Health/Watch"
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
LARGE = Limits(text_bytes=2**22, elements=2**22)


@pytest.fixture(scope="module")
def serve(toy_path):
    return functools.partial(Server, toy_path.parent, toy_model.NAME, port=0)


@pytest.fixture(scope="module")
def server(serve):
    with serve(limits=LARGE) as server:
        yield server


def honest(server):
    with Client(server.address, toy_model.NAME, timeout=60) as client:
        return client.predict(["cat"])["text"] == ["chat"]


def request(text):
    result = predict_pb2.PredictRequest(model_spec={"name": "toy"})
    result.model_spec.signature_name = "raw"
    tensor = result.inputs["text"]
    tensor.dtype = 7
    tensor.tensor_shape.dim.add(size=1)
    tensor.string_val.append(text)
    return result.SerializeToString()


# Watches


def test_a_watch_that_is_not_read_delays_no_other_and_not_the_end(serve):
    server = serve()
    try:
        with (
            BareHttp2(server.port, window=0) as silent,
            grpc.insecure_channel(server.address) as channel,
        ):
            silent.ask(WATCH, b"")
            until(lambda: server._health._watching == 1)
            watch = health_pb2_grpc.HealthStub(channel).Watch(
                health_pb2.HealthCheckRequest(), timeout=60
            )
            assert next(watch).status == SERVING
            started = time.monotonic()
            server.stop(grace=1.0)
            assert time.monotonic() - started < 20
            assert next(watch).status == NOT_SERVING
    finally:
        server.stop(0.0)


@pytest.mark.full
@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGTERM to send.")
def test_the_command_ends_in_time_though_a_watch_is_not_read(toy_path):
    with subprocess.Popen(
        [
            *(sys.executable, "-m", "keras_attn_serving", "--port=0"),
            f"--model_base_path={toy_path.parent}",
        ],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            port = int(process.stdout.readline().strip().rpartition(":")[2])
            with BareHttp2(port, window=0) as silent:
                silent.ask(WATCH, b"")
                with grpc.insecure_channel(f"localhost:{port}") as channel:
                    stub = health_pb2_grpc.HealthStub(channel)
                    stub.Check(health_pb2.HealthCheckRequest(), timeout=20)
                started = time.monotonic()
                process.send_signal(signal.SIGTERM)
                assert process.wait(timeout=60) == 0
                assert time.monotonic() - started < 10
        finally:
            process.kill()


def test_watches_have_a_limit_and_leave_room_when_they_end(serve):
    with (
        serve(connections=Connections(most=3)) as server,
        grpc.insecure_channel(server.address) as channel,
    ):
        stub = health_pb2_grpc.HealthStub(channel)
        message = health_pb2.HealthCheckRequest()
        watches = [stub.Watch(message, timeout=60) for _ in range(3)]
        for watch in watches:
            assert next(watch).status == SERVING
        with pytest.raises(grpc.RpcError) as caught:
            next(stub.Watch(message, timeout=60))
        assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert stub.Check(message, timeout=60).status == SERVING
        watches[0].cancel()
        until(lambda: server._health._watching == 2)
        assert next(stub.Watch(message, timeout=60)).status == SERVING


# Messages


@pytest.mark.parametrize("method", ["Check", "Watch", "reflection"])
def test_long_names_are_refused(server, method):
    name = "x" * 2000
    with grpc.insecure_channel(server.address) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        message = health_pb2.HealthCheckRequest(service=name)
        info = reflection_pb2_grpc.ServerReflectionStub(channel)
        asked = reflection_pb2.ServerReflectionRequest(
            file_containing_symbol=name
        )
        calls = {
            "Check": lambda: health.Check(message, timeout=60),
            "Watch": lambda: next(health.Watch(message, timeout=60)),
            "reflection": lambda: next(
                info.ServerReflectionInfo(iter([asked]), timeout=60)
            ),
        }
        with pytest.raises(grpc.RpcError) as caught:
            calls[method]()
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "at most 1024 bytes. Received: 2003" in caught.value.details()


def test_a_reload_has_at_most_a_megabyte(server):
    with grpc.insecure_channel(server.address) as channel:
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary(RELOAD)(b"\n\0" * 2**20, timeout=60)
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "at most 1048576 bytes" in caught.value.details()


def varint(number):
    raw = bytearray()
    while number >= 128:
        raw.append(number % 128 | 128)
        number //= 128
    return bytes([*raw, number])


def tensor(body):
    entry = b"\x0a\x01x\x12" + varint(len(body)) + body
    return b"\x12" + varint(len(entry)) + entry


N = 2**19
GROWING = {
    "inputs": b"\x12\0" * N,
    "filter": b"\x1a\0" * N,
    "strings": tensor(b"\x42\0" * N),
    "resources": tensor(b"\x72\0" * N),
    "variants": tensor(b"\x7a\x02\x1a\0" * N),
    "sizes": tensor(b"\x12" + varint(2 * N) + b"\x12\0" * N),
    "unknown": tensor(b"\xa0\x06\0\x42\0" * N),
    "int64": tensor(b"\x52" + varint(8 * N) + b"\x01" * 8 * N),
    # An unknown group hides bytes that are no message.
    "behind a group": b"\x43\x12\x01\xff\x44" + b"\x12\0" * N,
}


@pytest.mark.parametrize("case", GROWING)
def test_what_grows_when_parsed_is_never_parsed(case, monkeypatch):
    def never(raw):
        raise AssertionError("This must not be called.")

    class Kind(predict_pb2.PredictRequest.__base__):
        DESCRIPTOR = predict_pb2.PredictRequest.DESCRIPTOR
        FromString = staticmethod(never)

    with pytest.raises(StatusError) as caught:
        parse(Kind, GROWING[case], 2**20)
    assert caught.value.code == Code.INVALID_ARGUMENT
    for words in ("at most 2097152 bytes of memory", "--max_message_bytes"):
        assert words in caught.value.details


def test_by_grpc_a_zipped_message_that_grows_is_refused(server):
    with grpc.insecure_channel(server.address) as channel:
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary(PREDICT)(
                b"\x12\0" * (2**23 - 1),
                timeout=60,
                compression=grpc.Compression.Gzip,
            )
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "bytes of memory" in caught.value.details()
    assert honest(server)


def test_the_largest_honest_messages_are_parsed():
    texts = predict_pb2.PredictRequest()
    texts.inputs["text"].string_val.extend([b"x" * 1000] * 16_000)
    numbers = predict_pb2.PredictRequest()
    numbers.inputs["x"].float_val.extend(np.ones(2**22 - 100))
    content = predict_pb2.PredictRequest()
    content.inputs["x"].tensor_content = b"x" * (2**24 - 100)
    for each in (texts, numbers, content):
        raw = each.SerializeToString()
        assert len(raw) > 15 * 2**20
        found = parse(predict_pb2.PredictRequest, raw, 2**24)
        assert found == each


def test_a_message_weighs_at_least_its_texts_whatever_is_damaged():
    random = np.random.default_rng(0)
    text = b"x" * 500
    whole = request(text)
    descriptor = predict_pb2.PredictRequest.DESCRIPTOR
    for _ in range(3000):
        raw = bytearray(whole)
        for at in random.integers(len(raw), size=random.integers(1, 4)):
            raw[at] = random.integers(256)
        raw = bytes(raw[: random.integers(len(raw)) + 1])
        found = weight(raw, descriptor, 2**30)  # it ends
        try:
            parsed = predict_pb2.PredictRequest.FromString(raw)
        except Exception:
            continue
        strings = [y for x in parsed.inputs.values() for y in x.string_val]
        assert found >= sum(map(len, strings))


# Calls that wait for their clients


def test_a_call_without_a_request_ends(serve):
    connections = Connections(idle_seconds=0.5)
    with serve(connections=connections) as server:
        with BareHttp2(server.port) as silent:
            calls = [silent.open(CHECK), silent.begin(PREDICT, 100, b"x")]
            for call in calls[:1]:
                assert silent.ended(call)
            until(lambda: not server._rpcs._waiting)
        assert honest(server)


def test_of_many_calls_without_a_request_the_oldest_give_way(
    server, monkeypatch
):
    monkeypatch.setattr(rpcs, "_WAITING", 5)
    monkeypatch.setattr(rpcs, "_PATIENCE", 0.0)
    with BareHttp2(server.port) as silent:
        first = silent.open(PREDICT)
        for _ in range(20):
            silent.open(PREDICT)
        assert silent.ended(first)
        assert honest(server)
        assert len(server._rpcs._waiting) <= 5


def test_answers_that_are_not_read_have_a_limit(server, monkeypatch):
    calls = server._rpcs
    monkeypatch.setattr(rpcs, "_PATIENCE", 0.0)
    monkeypatch.setattr(calls, "_together", 3_000_000)
    raw = request(b"x" * 500_000)  # an answer of a megabyte
    with BareHttp2(server.port, window=0) as silent:
        first = silent.ask(PREDICT, raw)
        until(lambda: calls._unread)  # it is the oldest
        for _ in range(4):
            silent.ask(PREDICT, raw)
        assert silent.ended(first)
        assert honest(server)
        until(lambda: len(calls._unread) == 2)
        assert calls._bytes <= 3_000_000
    until(lambda: not calls._unread)
    assert calls._bytes == 0


def test_while_answers_wait_for_patient_clients_others_are_refused(
    server, monkeypatch
):
    monkeypatch.setattr(server._rpcs, "_together", 1_500_000)
    monkeypatch.setattr(rpcs, "_PATIENCE", 1000.0)
    raw = request(b"x" * 500_000)
    with (
        BareHttp2(server.port, window=0) as slow,
        grpc.insecure_channel(server.address) as channel,
    ):
        slow.ask(PREDICT, raw)
        until(lambda: server._rpcs._unread)
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary(PREDICT)(raw, timeout=60)
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
        assert "have yet to read" in caught.value.details()
        assert honest(server)  # a short answer


def test_an_answer_that_is_not_read_is_given_up(serve, monkeypatch):
    monkeypatch.setattr(rpcs, "_SLOWEST", 1e9)
    connections = Connections(idle_seconds=1.0)
    with (
        serve(limits=LARGE, connections=connections) as server,
        BareHttp2(server.port, window=0) as silent,
    ):
        stream = silent.ask(PREDICT, request(b"x" * 500_000))
        assert silent.ended(stream)
        assert not server._rpcs._unread


def memory():
    status = pathlib.Path("/proc/self/status").read_text()
    line = next(x for x in status.splitlines() if x.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


@pytest.mark.skipif(sys.platform != "linux", reason="It reads /proc.")
def test_what_is_given_up_takes_no_memory(server, monkeypatch):
    monkeypatch.setattr(rpcs, "_PATIENCE", 0.0)
    monkeypatch.setattr(server._rpcs, "_together", 8_000_000)
    raw = request(b"x" * 2_000_000)  # answers of 4 MB
    assert honest(server)
    before = memory()
    with BareHttp2(server.port, window=0) as silent:
        for _ in range(80):
            silent.ask(PREDICT, raw)
        for frame in silent.frames(60):
            if frame[0] == 3 and frame[2] > 150:  # of the last, some stay
                break
        assert memory() - before < 320  # half of the answers


def test_thousands_of_calls_over_one_channel_are_answered(server):
    async def ask():
        async with AsyncClient(server.address, "toy", timeout=120) as client:
            calls = [client.predict(["cat"]) for _ in range(1500)]
            return await asyncio.gather(*calls)

    answers = asyncio.run(ask())
    assert all(each["text"] == ["chat"] for each in answers)


def test_a_health_check_does_not_wait_for_calls_that_came_before(
    serve, monkeypatch
):
    async def predict(self, raw, context):
        time.sleep(0.005)  # the event loop is busy
        return raw

    monkeypatch.setattr(PredictionService, "Predict", predict)
    apart = [("grpc.use_local_subchannel_pool", 1)]  # connections of their own
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(serve())
        *channels, last = [
            stack.enter_context(grpc.insecure_channel(server.address, apart))
            for _ in range(5)
        ]
        check = health_pb2_grpc.HealthStub(last).Check
        check(health_pb2.HealthCheckRequest(), timeout=60)  # connects
        calls = [
            channel.unary_unary(PREDICT).future(b"", timeout=60)
            for channel in channels
            for _ in range(100)
        ]
        check(health_pb2.HealthCheckRequest(), timeout=60)
        answered = sum(each.done() for each in calls)
        assert {each.code() for each in calls} == {grpc.StatusCode.OK}
    assert answered < len(calls) / 2


def test_calls_and_headers_of_a_connection_have_a_limit(server):
    with BareHttp2(server.port) as greedy:
        streams = [greedy.open(CHECK) for _ in range(150)]
        assert greedy.ended(streams[-1])
        assert len(server._rpcs._waiting) <= 110
    with (
        grpc.insecure_channel(server.address) as channel,
        pytest.raises(grpc.RpcError) as caught,
    ):
        channel.unary_unary(CHECK)(
            b"", metadata=[("x", "y" * 12_000)], timeout=60
        )
    assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert honest(server)


# The log


def test_a_thousand_broken_messages_are_one_line(server, caplog):
    with (
        caplog.at_level(logging.INFO),
        grpc.insecure_channel(server.address) as channel,
    ):
        for _ in range(50):
            with contextlib.suppress(grpc.RpcError):
                channel.unary_unary(PREDICT)(b"\xff\xff", timeout=60)
    lines = [x for x in caplog.messages if "code=INTERNAL" in x]
    assert len(lines) == 1
    assert "failed times=1 model= api=Predict" in lines[0]


def test_failures_of_other_kinds_have_their_own_line(caplog):
    metrics = Metrics()
    for model in ("a", "b") * 5:
        for code in (Code.INTERNAL, Code.UNAVAILABLE, Code.OK):
            metrics.request(model, "Predict", "GRPC", code, 0.1)
    assert len(caplog.messages) == 4


def test_a_long_name_of_a_model_is_neither_served_nor_repeated(server, caplog):
    config = model_server_config_pb2.ModelServerConfig()
    config.model_config_list.config.add(
        name="n" * 10_000, base_path="/models", model_platform="tensorflow"
    )
    with pytest.raises(ConfigError) as caught:
        models(config)
    assert "at most 4096 characters. Received: 10000" in str(caught.value)
    assert len(str(caught.value)) < 300
    asked = model_management_pb2.ReloadConfigRequest(config=config)
    with (
        caplog.at_level(logging.INFO),
        grpc.insecure_channel(server.address) as channel,
        pytest.raises(grpc.RpcError) as refused,
    ):
        channel.unary_unary(RELOAD)(asked.SerializeToString(), timeout=60)
    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert sum(map(len, caplog.messages)) < 1000
