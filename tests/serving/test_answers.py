"""Answers have limits: at the server, in time, and at the clients."""

import asyncio
import contextlib
import json
import socket
import threading
import traceback

import grpc
import numpy as np
import pytest
from keras_attn_serving import AsyncClient
from keras_attn_serving import Client
from keras_attn_serving import RestClient
from keras_attn_serving import ServingError
from keras_attn_serving.client import row_parts as parts
from keras_attn_serving.server import Rest
from keras_attn_serving.server import Server
from keras_attn_serving.server import json_tensors
from keras_attn_serving.server import predict
from keras_attn_serving.server.config import Batching
from keras_attn_serving.server.limits import Limits
from keras_attn_serving.server.model import Model
from keras_attn_serving.wire import protocol
from keras_attn_serving.wire import rest_messages
from keras_attn_serving.wire import wire_pb2 as wire
from keras_attn_serving.wire.results import TensorSpec
from support.serving import tiny_server
from support.serving import toy_model
from support.serving.helpers import client_of


@pytest.fixture(
    scope="module", params=[None, Batching()], ids=["alone", "batch"]
)
def small(toy_path, request):
    """A server whose answers have at most 10,000 bytes."""
    with Server(
        toy_path.parent,
        toy_model.NAME,
        port=0,
        rest=Rest(),
        batching=request.param,
        limits=Limits(answer_bytes=10_000, rows=2000),
    ) as server:
        yield server


@pytest.fixture(params=["gRPC", "REST"])
def client(small, request):
    with client_of(small, request.param) as client:
        yield client


def never(*arguments, **named):
    raise AssertionError("This must not be called.")


def test_an_answer_that_is_too_large_is_never_written(client, monkeypatch):
    monkeypatch.setattr(json_tensors, "write", never)
    monkeypatch.setattr(predict, "response", never)
    with pytest.raises(ServingError) as caught:
        client.predict(["cat " * 1500], "align")
    assert caught.value.code == grpc.StatusCode.INVALID_ARGUMENT
    for words in ("at most 10000 bytes", "fewer texts", "--max_answer_bytes"):
        assert words in caught.value.message


def test_a_signature_that_says_so_is_refused_before_it_runs(
    client, monkeypatch
):
    rows, execute = [], Model.execute

    def noted(self, plan, timeout=None):
        rows.append(len(next(iter(plan.feeds.values()))))
        return execute(self, plan, timeout)

    monkeypatch.setattr(Model, "execute", noted)
    found = client.predict({"text": ["cat"] * 1200}, "nbest", "scores")
    assert found["scores"].shape == (1200, 3)
    # Of 3 float32 a row; the client has sent fewer and fewer texts.
    assert max(rows) * 3 * 4 <= 10_000


def test_a_client_sends_fewer_texts_and_joins_the_answers(client):
    texts = ["cat " * 50] * 8
    found = client.predict(texts, "align")
    assert found["alignments"].shape == (8, 6, 50)
    assert found["text"] == [" ".join(["chat"] * 50)] * 8


def test_the_time_limit_holds_for_writing_the_answer(toy_path, monkeypatch):
    gate = threading.Event()

    def write(*arguments):
        gate.wait(5)
        return b"{}"

    with (
        Server(
            toy_path.parent, toy_model.NAME, port=0, rest=Rest(timeout=0.5)
        ) as server,
        RestClient(
            f"http://{server.rest_address}", "toy", timeout=None
        ) as client,
    ):
        client.metadata()
        monkeypatch.setattr(json_tensors, "write", write)
        try:
            with pytest.raises(ServingError) as caught:
                client.predict(["cat"])
        finally:
            gate.set()
    assert caught.value.code == grpc.StatusCode.DEADLINE_EXCEEDED


@pytest.mark.parametrize(
    "dtype",
    [
        "float32",
        "float64",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint32",
        "uint64",
        "bool",
    ],
)
def test_no_number_is_longer_than_it_is_counted(dtype):
    random = np.random.default_rng(0)
    size = np.dtype(dtype).itemsize
    raw = random.bytes(size * 3000)
    if dtype == "bool":
        raw = bytes(x % 2 for x in raw)
    array = np.frombuffer(raw, dtype)
    written = json_tensors.write({"x": array}, rows=False)
    frame = len(json_tensors.write({"x": array[:0]}, rows=False))
    assert len(written) - frame <= json_tensors.width(array.dtype) * array.size


def test_large_outputs_are_written_as_small_ones_are():
    array = np.arange(300_000, dtype=np.float32).reshape(3, 2, 50_000)
    written = json.loads(json_tensors.write({"x": array}, rows=False))
    np.testing.assert_array_equal(written["outputs"], array)


# Clients


@contextlib.contextmanager
def flood(head):
    """A server that answers without an end; gives its port, what it sent."""
    part, sent = b"10000\r\n" + b" " * 65536 + b"\r\n", []

    def serve():
        with listener.accept()[0] as connection:
            with contextlib.suppress(OSError):
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\n" + head)
                while True:
                    connection.sendall(part)
                    sent.append(len(part))

    with socket.create_server(("localhost", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1], sent
        thread.join(20)
        assert not thread.is_alive()


@pytest.mark.parametrize(
    "head",
    [
        b"Transfer-Encoding: chunked\r\n\r\n",
        b"Content-Length: 100000000000\r\n\r\n",
    ],
)
def test_a_flood_is_not_read(head):
    with (
        flood(head) as (port, sent),
        RestClient(
            f"http://localhost:{port}", "toy", max_answer_bytes=2**20
        ) as client,
    ):
        with pytest.raises(ServingError) as caught:
            client.status()
    assert caught.value.code == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "at most 1048576 bytes" in caught.value.message
    assert "`max_answer_bytes`" in caught.value.message
    # What the sockets hold between them comes on top.
    assert sum(sent) < 2**24


def test_a_large_answer_by_grpc_is_not_read(ours):
    with Client(ours, "toy", max_answer_bytes=2000) as client:
        assert client.predict(["cat"])["text"] == ["chat"]
        with pytest.raises(ServingError) as caught:
            client.predict(["cat " * 2000])
    assert caught.value.code == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "larger than max" in caught.value.message


@contextlib.contextmanager
def answering(**outputs):
    """A server by gRPC that answers every call so; gives its address."""

    def predict(request, context):
        response = wire.PredictResponse()
        for name, tensor in outputs.items():
            response.outputs[name].CopyFrom(tensor)
        return response

    server, port = tiny_server.serve(predict=predict)
    try:
        yield f"localhost:{port}"
    finally:
        server.stop(None)


def tensor(dtype, *sizes, **values):
    """A message that declares a shape and has a few values."""
    shape = {"dim": [{"size": x} for x in sizes]}
    return wire.TensorProto(dtype=dtype, tensor_shape=shape, **values)


@pytest.mark.parametrize(
    "values",
    [
        # 50 bytes that took 28 s and 1.6 GB.
        {"x": tensor(wire.DT_STRING, 10**8, string_val=[b"a"])},
        {"x": tensor(wire.DT_STRING, 10, 2000, string_val=[b"a" * 4000])},
        {"x": tensor(wire.DT_FLOAT, 2**18 + 1, float_val=[1])},
        {"x": tensor(wire.DT_BFLOAT16, 2**18 + 1, half_val=[1])},
        {x: tensor(wire.DT_INT64, 2**16 + 1) for x in "ab"},
    ],
    ids=["strings", "long strings", "floats", "bfloat16", "together"],
)
def test_a_few_bytes_that_declare_many_values_are_not_decoded(
    values, monkeypatch
):
    monkeypatch.setattr(protocol, "decode", never)
    with (
        answering(**values) as address,
        Client(address, "m", max_answer_bytes=2**20) as client,
        pytest.raises(ServingError, match="`max_answer_bytes`") as caught,
    ):
        client.predict(["a"])
    assert caught.value.code == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "at most 1048576 bytes. Received: values of" in caught.value.message


def test_a_value_may_be_repeated_within_the_limit():
    values = {
        "text": tensor(wire.DT_STRING, 3, string_val=[b"a"]),
        "x": tensor(wire.DT_FLOAT, 2, 2, float_val=[1.5]),
    }
    with answering(**values) as address, Client(address, "m") as client:
        found = client.predict(["a"])
    assert found["text"] == ["a"] * 3
    np.testing.assert_array_equal(found["x"], np.full((2, 2), 1.5))


@pytest.mark.parametrize(
    "wrong",
    [
        tensor(99, 1),
        tensor(wire.DT_FLOAT, -1),
        tensor(wire.DT_FLOAT, 2, tensor_content=b"abc"),
        tensor(wire.DT_STRING, 2, tensor_content=b"\x09"),
    ],
    ids=["dtype", "shape", "content", "strings"],
)
def test_an_answer_that_is_no_tensor_is_said(wrong):
    async def ask(address):
        async with AsyncClient(address, "m") as client:
            await client.predict(["a"])

    with answering(x=wrong) as address:
        with Client(address, "m") as client:
            with pytest.raises(ServingError, match="cannot be read") as caught:
                client.predict(["a"])
        assert caught.value.code == grpc.StatusCode.UNKNOWN
        with pytest.raises(ServingError, match="cannot be read"):
            asyncio.run(ask(address))


def test_an_error_is_shown_without_those_of_grpc_and_http(small):
    async def ask(address):
        async with AsyncClient(address, "toy") as client:
            await client.predict(["a"], "none")

    def blocking(kind, address):
        with kind(address, "toy") as client:
            client.predict(["a"], "none")

    rest = f"http://{small.rest_address}"
    calls = [
        lambda: asyncio.run(ask(small.address)),
        lambda: blocking(Client, small.address),
        lambda: blocking(Client, "localhost:1"),
        lambda: blocking(RestClient, rest),
        lambda: blocking(RestClient, "http://localhost:1"),
    ]
    for call in calls:
        with pytest.raises(ServingError) as caught:
            call()
        shown = "".join(traceback.format_exception(caught.value))
        assert shown.count("Traceback (most recent call last)") == 1
        assert caught.value.code and caught.value.message


DEEP = b"[" * 900 + b"]" * 900


@pytest.mark.parametrize("dtype", ["string", "float32"])
@pytest.mark.parametrize("value", [DEEP, b"[[], " + DEEP + b"]"])
def test_lists_hundreds_deep_are_no_output(dtype, value):
    specs = {"x": TensorSpec(dtype, None)}
    with pytest.raises(ValueError):
        rest_messages.outputs(b'{"outputs": ' + value + b"}", specs)
    specs |= {"y": TensorSpec(dtype, None)}
    with pytest.raises(ValueError):
        rest_messages.outputs(b'{"outputs": ' + value + b"}", specs)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        # 30 MB of empty lists took 1.5 GB.
        (b"[" + b"[]," * 70_000 + b"[]]", "65536 lists, objects and keys"),
        (b"[" + b"1," * 140_000 + b"1]", "131072 values"),
    ],
)
def test_lists_and_numbers_are_counted_before_they_are_parsed(body, said):
    with pytest.raises(ServingError, match=f"at most {said}") as caught:
        rest_messages.require_few(body, 2**20)
    assert parts.rows_allowed(caught.value, 8) == 4
    rest_messages.require_few(body, 2**21)


@pytest.mark.parametrize("kind", [Client, AsyncClient, RestClient])
@pytest.mark.parametrize("most", [0, -1, True, 1.5, None])
def test_a_limit_that_can_be_none_is_refused(kind, most):
    with pytest.raises(ValueError, match="max_answer_bytes="):
        kind("localhost:1", "toy", max_answer_bytes=most)
