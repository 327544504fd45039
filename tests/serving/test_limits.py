"""No request stops the server: limits, open streams, calls that wait."""

import asyncio
import concurrent.futures
import contextlib
import gzip
import http.client
import json
import threading
import time

import grpc
import numpy as np
import pytest
import tensorflow as tf
from grpc_health.v1 import health_pb2
from grpc_health.v1 import health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha import reflection_pb2_grpc
from keras_attn_serving import Client
from keras_attn_serving import ServingError
from keras_attn_serving.client import row_parts as parts
from keras_attn_serving.server import Rest
from keras_attn_serving.server import Server
from keras_attn_serving.server.config import Batching
from keras_attn_serving.server.errors import Code
from keras_attn_serving.server.errors import StatusError
from keras_attn_serving.server.limits import Limits
from keras_attn_serving.server.predict import Arrays
from keras_attn_serving.server.signatures import Signature
from keras_attn_serving.server.signatures import Tensor
from keras_attn_serving.server.workers import Later
from keras_attn_serving.server.workers import Workers
from keras_attn_serving.wire import protocol
from support.serving import toy_model
from support.serving.helpers import client_of
from tensorflow_serving.apis import predict_pb2
from tensorflow_serving.apis import prediction_service_pb2_grpc

FOREVER = {"steps": [10**15]}  # counting this far takes days


def header(dtype, *sizes, **values):
    """A message that declares a shape and has a few values."""
    shape = {"dim": [{"size": x} for x in sizes]}
    return tf.make_tensor_proto([b"x"]).__class__(
        dtype=dtype.as_datatype_enum, tensor_shape=shape, **values
    )


def read(message, limits=None, **wanted):
    """Decodes a message as the input `text` of a signature."""
    tensor = Tensor(
        **({"name": "x", "dtype": tf.string, "shape": (None,)} | wanted)
    )
    signature = Signature({"text": tensor}, {}, {})
    return Arrays({"text": message}, signature, limits or Limits())["text"]


# What a request may ask


@pytest.mark.parametrize(
    ("message", "said"),
    [
        # 36 bytes that took 40 s and 6.5 GB.
        (
            header(tf.string, 100_000, string_val=[b"a"]),
            "at most 128 rows. Received: 100000. Send them in several",
        ),
        (
            header(tf.string, 1, string_val=[b"a" * 20_000]),
            "at most 16384 bytes",
        ),
        (
            tf.make_tensor_proto([b"a", b"b" * 16_385]),
            "Received: 16385 bytes. Split it, or start the server with a",
        ),
    ],
)
def test_rows_and_texts_have_a_limit(message, said):
    with pytest.raises(StatusError) as caught:
        read(message)
    assert caught.value.code == Code.INVALID_ARGUMENT
    assert said in caught.value.details
    several = Limits(rows=200_000, text_bytes=30_000)
    assert len(read(message, several)) >= 1


def test_a_shape_that_is_said_to_be_unknown_has_the_same_limits():
    message = header(tf.string, 100_000, string_val=[b"a"])
    message.tensor_shape.unknown_rank = True
    with pytest.raises(StatusError, match="at most 128 rows"):
        read(message)
    message = header(tf.float32, 30_000_000, float_val=[1.0])
    message.tensor_shape.unknown_rank = True
    assert read(message).strides == (0,)


@pytest.mark.parametrize("shape", [None, (None,)])
def test_a_tensor_has_a_limit_of_axes(shape):
    message = header(tf.string, *[2**62] * 20_000, string_val=[b"a"])
    with pytest.raises(StatusError, match="tensor parsing error: text"):
        read(message, shape=shape)


def test_texts_have_a_limit_together():
    message = header(tf.string, 150_000, string_val=[b"a" * 16_000])
    many = Limits(elements=2**40)
    with pytest.raises(StatusError, match="16777216 bytes together"):
        read(message, many, shape=None)


IDS = {"dtype": tf.int32, "shape": (None, None)}


@pytest.mark.parametrize(
    ("message", "wanted"),
    [
        # 72 bytes for which a net took 8 GB.
        (header(tf.int32, 128, 32_768, int_val=[5]), IDS),
        (header(tf.int32, 1, 128_001, int_val=[5]), IDS),
        (
            header(tf.float32, 128, 1001, 1, float_val=[1.0]),
            {"dtype": tf.float32, "shape": (None, None, 1)},
        ),
        (
            header(tf.float32, 128, 1001, float_val=[1.0]),
            {"dtype": tf.float32, "shape": None},
        ),
        (tf.make_tensor_proto([b"a" * 1001] + [b""] * 127), {}),
        (
            tf.make_tensor_proto(
                [[b"a" * 500, b"b" * 501]] + [[b"", b""]] * 127
            ),
            {"shape": (None, None)},
        ),
    ],
    ids=["ids", "one row", "features", "any rank", "texts", "tokens"],
)
def test_rows_times_the_longest_row_have_a_limit(message, wanted, monkeypatch):
    if message.dtype != tf.string.as_datatype_enum:
        monkeypatch.setattr(protocol, "decode", None)  # refused before that
    with pytest.raises(StatusError) as caught:
        read(message, **wanted)
    assert caught.value.code == Code.INVALID_ARGUMENT
    for words in ("at most 128000 elements", "Received: ", "--max_elements"):
        assert words in caught.value.details
    monkeypatch.undo()
    many = Limits(elements=2**23, message_bytes=2**25)
    assert len(read(message, many, **wanted)) >= 1


def test_what_a_signature_fixes_is_no_element():
    message = header(tf.float32, 128, 1000, 8, float_val=[1.0])
    frames = {"dtype": tf.float32, "shape": (None, None, 8)}
    assert read(message, **frames).shape == (128, 1000, 8)


@pytest.fixture(scope="module")
def few(toy_path):
    """A server that takes 20 elements."""
    with Server(
        toy_path.parent,
        toy_model.NAME,
        port=0,
        rest=Rest(),
        limits=Limits(elements=20),
    ) as server:
        yield server


@pytest.fixture(params=["gRPC", "REST"])
def few_client(few, request):
    with client_of(few, request.param) as client:
        yield client


@pytest.mark.parametrize(
    ("inputs", "signature"),
    [
        ({"text": ["a" * 21]}, "serving_default"),
        ({"x": np.ones(21, np.float32)}, "compiled"),
    ],
)
def test_elements_have_a_limit_by_grpc_and_by_rest(
    few_client, inputs, signature, monkeypatch
):
    # The client would send fewer rows.
    monkeypatch.setattr(parts, "rows_allowed", lambda *arguments: None)
    with pytest.raises(ServingError, match="at most 20 elements") as caught:
        few_client.predict(inputs, signature)
    assert caught.value.code == grpc.StatusCode.INVALID_ARGUMENT


def test_a_client_sends_fewer_texts_when_one_is_long(few_client):
    texts = ["cat", "hello world cat", "cat", "world", "cat"]
    wanted = ["chat", "bonjour monde chat", "chat", "monde", "chat"]
    assert few_client.predict(texts)["text"] == wanted


@pytest.mark.parametrize("method", ["predict", "classify"])
@pytest.mark.parametrize(
    ("body", "said"),
    [
        # 5 million empty lists held Python's lock for 12 s.
        (
            b'{"instances": [' + b"[], " * 200 + b"[]]}",
            b"at most 160 lists, objects and keys. Received: 204.",
        ),
        (
            b"{" + b", ".join(b'"%d": 1' % x for x in range(160)) + b"}",
            b"at most 160 lists, objects and keys. Received: 161.",
        ),
        # 4 million numbers took 480 MB.
        (
            b'{"instances": [' + b"1, " * 321 + b"1]}",
            b"at most 320 values. Received: 321.",
        ),
    ],
    ids=["lists", "keys", "numbers"],
)
def test_json_has_limits_before_it_is_parsed(few, method, body, said):
    status, answer = post(few, method, body)
    assert status == 400
    assert said in answer
    assert b"--max_elements" in answer
    refused = grpc.StatusCode.INVALID_ARGUMENT
    error = ServingError(refused, json.loads(answer)["error"])
    assert parts.rows_allowed(error, 8) == 4  # clients send fewer then


def test_a_request_that_runs_no_model_is_measured_unzipped(ours, toy_server):
    body = gzip.compress(b'{"instances": ["cat"]}'.rjust(2**21))
    status, answer = post(toy_server, "classify", body, "gzip")
    assert status == 400
    assert b"may have at most 1048576 bytes. Received: 2097152" in answer


def post(server, method, body, encoding="identity"):
    host = http.client.HTTPConnection(server.rest_address, timeout=30)
    with contextlib.closing(host):
        headers = {"Content-Encoding": encoding}
        host.request("POST", f"/v1/models/toy:{method}", body, headers)
        answer = host.getresponse()
        return answer.status, answer.read()


def test_bytes_have_a_limit_where_rows_are_no_rows():
    message = header(tf.float32, 5_000_000, float_val=[0.0])
    echo = {"dtype": tf.float32, "shape": None}
    with pytest.raises(StatusError, match="at most 16777216 bytes"):
        read(message, Limits(elements=2**40), **echo)
    large = Limits(elements=2**40, message_bytes=2**25)
    assert read(message, large, **echo).shape == (5_000_000,)


@pytest.mark.parametrize(
    "message",
    [
        # 34 bytes that took 18 s and 4.9 GB.
        header(tf.float32, 250_000_000, float_val=[1.0]),
        header(tf.string, 10**6, 10**6, string_val=[b"a"]),
    ],
)
def test_what_has_the_wrong_type_or_rank_is_not_decoded(message):
    found = read(message)
    assert found.strides == (0,) * found.ndim  # it has no values
    assert found.shape == tuple(x.size for x in message.tensor_shape.dim)


def test_a_few_bytes_are_answered_by_a_line(ours, prediction):
    for message in (
        header(tf.string, 100_000, string_val=[b"a"]),
        header(tf.float32, 250_000_000, float_val=[1.0]),
        header(tf.string, 2**20, 2**20, string_val=[b"a"]),
    ):
        request = predict_pb2.PredictRequest()
        request.model_spec.name = toy_model.NAME
        request.inputs["text"].CopyFrom(message)
        assert request.ByteSize() < 100
        with pytest.raises(grpc.RpcError) as caught:
            prediction.Predict(request, timeout=20)
        assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT


def test_a_message_has_a_limit(toy_path):
    limits = Limits(message_bytes=10_000)
    with (
        Server(
            toy_path.parent, toy_model.NAME, port=0, limits=limits
        ) as server,
        Client(server.address, toy_model.NAME) as client,
    ):
        with pytest.raises(ServingError) as caught:
            client.predict(["a" * 10_000] * 2)
        assert caught.value.code == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert client.predict(["cat"])["text"] == ["chat"]


def test_a_run_has_a_time_limit_without_a_deadline(toy_path):
    limits = Limits(run_seconds=0.3)
    with (
        Server(
            toy_path.parent, toy_model.NAME, port=0, threads=1, limits=limits
        ) as server,
        Client(server.address, toy_model.NAME, timeout=None) as client,
    ):
        with pytest.raises(ServingError) as caught:
            client.predict(FOREVER, "slow")
        assert caught.value.code == grpc.StatusCode.DEADLINE_EXCEEDED
        assert client.predict(["cat"])["text"] == ["chat"]


def test_a_server_that_stops_ends_runs_that_no_call_waits_for(toy_path):
    server = Server(toy_path.parent, toy_model.NAME, port=0, threads=1)
    with Client(server.address, toy_model.NAME, timeout=60) as client:
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            call = pool.submit(client.predict, FOREVER, "slow")
            while server._executor._workers._free:
                time.sleep(0.01)
            begun = time.monotonic()
            stops = [pool.submit(server.stop, 0.1) for _ in range(3)]
            for stop in stops:
                stop.result()
            assert time.monotonic() - begun < 30  # not the 60 s of a run
            with pytest.raises(ServingError):
                call.result()


def test_a_message_that_is_none_is_refused(ours, channel):
    method = "/tensorflow.serving.PredictionService/Predict"
    with pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary(method)(b"\xff\xff", timeout=20)
    assert caught.value.code() == grpc.StatusCode.INTERNAL


# Streams and load


@pytest.fixture(scope="module")
def one_thread(toy_path):
    with Server(toy_path.parent, toy_model.NAME, port=0, threads=1) as server:
        yield server.address


def test_open_streams_take_no_thread(ours, one_thread):
    end = threading.Event()

    def wait():
        end.wait(60)
        yield from ()

    with contextlib.ExitStack() as stack:
        stack.callback(end.set)
        for _ in range(50):
            channel = stack.enter_context(grpc.insecure_channel(one_thread))
            reflection = reflection_pb2_grpc.ServerReflectionStub(channel)
            stack.callback(reflection.ServerReflectionInfo(wait()).cancel)
            health = health_pb2_grpc.HealthStub(channel)
            watch = health.Watch(health_pb2.HealthCheckRequest())
            assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
            stack.callback(watch.cancel)
        with Client(one_thread, toy_model.NAME, timeout=20) as client:
            assert client.predict(["cat"])["text"] == ["chat"]


def test_health_answers_while_all_threads_run_the_model(ours, one_thread):
    with (
        Client(one_thread, toy_model.NAME, timeout=5) as client,
        grpc.insecure_channel(one_thread) as channel,
        concurrent.futures.ThreadPoolExecutor(3) as pool,
    ):
        runs = [pool.submit(client.predict, FOREVER, "slow") for _ in range(3)]
        stub = health_pb2_grpc.HealthStub(channel)
        for _ in range(20):
            found = stub.Check(health_pb2.HealthCheckRequest(), timeout=5)
            assert found.status == health_pb2.HealthCheckResponse.SERVING
        assert not any(run.done() for run in runs[:1])
        for run in runs:
            with pytest.raises(ServingError) as caught:
                run.result()
            assert caught.value.code in (
                grpc.StatusCode.DEADLINE_EXCEEDED,
                grpc.StatusCode.UNAVAILABLE,
            )


@pytest.mark.parametrize(
    "service",
    [
        "tensorflow.serving.PredictionService",
        "tensorflow.serving.ModelService",
        "grpc.health.v1.Health",
    ],
)
def test_reflection_describes_the_services(ours, channel, service):
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    request = reflection_pb2.ServerReflectionRequest(
        file_containing_symbol=service
    )
    (found,) = stub.ServerReflectionInfo(iter([request]))
    files = found.file_descriptor_response.file_descriptor_proto
    assert files and service.split(".")[-1].encode() in files[0]


def test_calls_beyond_the_queue_are_refused_at_once(toy_path):
    limits = Limits(queued_calls=2)
    with (
        Server(
            toy_path.parent, toy_model.NAME, port=0, threads=1, limits=limits
        ) as server,
        grpc.insecure_channel(server.address) as channel,
    ):
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        request = predict_pb2.PredictRequest()
        request.model_spec.name = toy_model.NAME
        request.model_spec.signature_name = "slow"
        request.inputs["steps"].CopyFrom(
            tf.make_tensor_proto(FOREVER["steps"], tf.int64)
        )
        calls = [stub.Predict.future(request, timeout=30) for _ in range(9)]
        # One runs, two wait.
        for _ in range(3000):
            refused = [x for x in calls if x.done()]
            if len(refused) >= 6:
                break
            time.sleep(0.01)
        assert len(refused) == 6
        for call in refused:
            assert call.code() == grpc.StatusCode.UNAVAILABLE
            assert "its queue of 2 calls is full" in call.details()
        for call in calls:
            call.cancel()
        # The one that runs ends with the server's grace.
        server.stop(grace=0.1)


# Workers


def in_a_loop(test):
    """Runs a coroutine with workers of one thread, and ends them."""

    async def run():
        gate = threading.Event()
        workers = Workers(threads=1, queued=3, run_seconds=60.0)
        try:
            await asyncio.wait_for(test(workers, gate), 30)
        finally:
            gate.set()
            workers.close()

    asyncio.run(run())


def job(names, name, gate=None):
    """Returns a function that writes its name, and waits."""

    def run(seconds):
        names.append(name)
        if gate is not None:
            gate.wait(30)
        return name

    return run


async def started(names, count):
    while len(names) < count:
        await asyncio.sleep(0.01)


def test_who_left_while_waiting_never_runs():
    async def test(workers, gate):
        ran = []
        first = asyncio.create_task(workers.run(job(ran, "a", gate), None))
        await started(ran, 1)
        waiting = [
            asyncio.create_task(workers.run(job(ran, x), None)) for x in "bcd"
        ]
        await asyncio.sleep(0)
        waiting[0].cancel()
        waiting[2].cancel()
        await asyncio.sleep(0)
        gate.set()
        assert await first == "a" and await waiting[1] == "c"
        assert await workers.run(job(ran, "e"), None) == "e"
        assert ran == ["a", "c", "e"]

    in_a_loop(test)


def test_who_left_while_running_keeps_its_thread_until_it_ends():
    async def test(workers, gate):
        ran = []
        first = asyncio.create_task(workers.run(job(ran, "a", gate), None))
        await started(ran, 1)
        first.cancel()
        second = asyncio.create_task(workers.run(job(ran, "b"), None))
        await asyncio.sleep(0.1)
        assert ran == ["a"]
        gate.set()
        assert await second == "b"

    in_a_loop(test)


def test_a_call_that_would_be_late_is_refused():
    async def test(workers, gate):
        ran = []
        workers._mean = 2.0  # seconds, as runs before took
        first = asyncio.create_task(workers.run(job(ran, "a", gate), 1.0))
        await started(ran, 1)  # a free thread tries it all the same
        with pytest.raises(StatusError, match="answered after its deadline"):
            await workers.run(job(ran, "b"), 3.0)
        taken = asyncio.create_task(workers.run(job(ran, "c"), 4.1))
        await asyncio.sleep(0)
        # Some runs are long and others short: whose turn comes is tried.
        workers._mean = workers._spread = 9.0
        late = asyncio.create_task(workers.run(job(ran, "d"), 1e9))
        await asyncio.sleep(0)
        gate.set()
        assert await first == "a" and await taken == "c" and await late == "d"
        assert ran == ["a", "c", "d"]

    in_a_loop(test)


def test_a_request_refused_before_it_runs_tells_nothing_of_runs():
    async def test(workers, gate):
        def refuse(seconds):
            raise StatusError(Code.INVALID_ARGUMENT, "no")

        workers._mean = 2.0  # seconds
        for _ in range(20):
            with pytest.raises(StatusError, match="no"):
                await workers.run(refuse, None)
        while not workers._free:
            await asyncio.sleep(0.001)
        assert workers._mean == 2.0
        assert await workers.run(lambda seconds: 1, None) == 1
        while workers._mean == 2.0:  # a quick run does
            await asyncio.sleep(0.001)

    in_a_loop(test)


def test_whose_time_is_over_when_its_turn_comes_is_refused():
    async def test(workers, gate):
        ran = []
        first = asyncio.create_task(workers.run(job(ran, "a", gate), None))
        await started(ran, 1)
        late = asyncio.create_task(workers.run(job(ran, "b"), 4.0))
        await asyncio.sleep(0)
        workers._mean = 9.0  # all runs take so long
        gate.set()
        assert await first == "a"
        with pytest.raises(StatusError) as caught:
            await late
        assert caught.value.code == Code.UNAVAILABLE
        assert await workers.run(job(ran, "c"), 1.0) == "c"
        assert ran == ["a", "c"]

    in_a_loop(test)


def test_the_bytes_that_wait_have_a_limit():
    async def test(workers, gate):
        ran = []
        workers._queued_bytes = 10
        first = asyncio.create_task(workers.run(job(ran, "a", gate), None, 99))
        await started(ran, 1)
        second = asyncio.create_task(workers.run(job(ran, "b"), None, 6))
        await asyncio.sleep(0)
        with pytest.raises(StatusError, match="queue of 1 calls is full"):
            await workers.run(job(ran, "c"), None, 5)
        third = asyncio.create_task(workers.run(job(ran, "d"), None, 4))
        await asyncio.sleep(0)
        third.cancel()
        gate.set()
        assert await first == "a" and await second == "b"
        assert workers._bytes == 0

    in_a_loop(test)


def test_cancelled_at_any_moment_no_thread_is_lost():
    async def test(workers, gate):
        gate.set()
        random = np.random.default_rng(0)
        tasks = []
        for number in range(300):
            coroutine = workers.run(job([], number), None)
            tasks.append(asyncio.create_task(coroutine))
            for _ in range(random.integers(3)):
                await asyncio.sleep(0)
            random.choice(tasks).cancel()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        kinds = {type(x) for x in found}
        assert kinds <= {int, asyncio.CancelledError, StatusError}
        assert await workers.run(job([], "last"), None) == "last"
        while not workers._free:
            await asyncio.sleep(0.01)
        assert workers._free == 1 and not workers._waiting

    in_a_loop(test)


def later_job(names, name, ready):
    """Returns a function that runs once a future is done."""

    def run(seconds):
        if not ready.done():
            return Later(ready)
        return job(names, name)(seconds)

    return run


def test_who_has_to_wait_gives_the_thread_back_and_gets_the_next():
    async def test(workers, gate):
        ran, ready = [], concurrent.futures.Future()
        waits = asyncio.create_task(
            workers.run(later_job(ran, "a", ready), None, 5)
        )
        while workers._bytes != 5:
            await asyncio.sleep(0.001)
        running = asyncio.create_task(workers.run(job(ran, "b", gate), None))
        await started(ran, 1)
        queued = asyncio.create_task(workers.run(job(ran, "c"), None))
        await asyncio.sleep(0)
        ready.set_result(None)
        while not workers._first:
            await asyncio.sleep(0.001)
        gate.set()
        assert await asyncio.gather(waits, running, queued) == ["a", "b", "c"]
        assert ran == ["b", "a", "c"]
        assert workers._bytes == workers._later == 0

    in_a_loop(test)


def test_who_leaves_or_is_late_while_it_has_to_wait_never_runs():
    async def test(workers, gate):
        ran, ready = [], concurrent.futures.Future()
        leaves = asyncio.create_task(
            workers.run(later_job(ran, "a", ready), None)
        )
        late = asyncio.create_task(workers.run(later_job(ran, "b", ready), 0.1))
        while workers._later != 2:
            await asyncio.sleep(0.001)
        leaves.cancel()
        with pytest.raises(StatusError, match="Deadline exceeded"):
            await late
        assert workers._later == 0 and not ready.done()
        ready.set_result(None)
        assert await workers.run(job(ran, "c"), None) == "c"
        assert ran == ["c"]

    in_a_loop(test)


def test_errors_pass_and_free_the_thread():
    async def test(workers, gate):
        def fail(seconds):
            raise StatusError(Code.NOT_FOUND, "no")

        for _ in range(3):
            with pytest.raises(StatusError, match="no"):
                await workers.run(fail, None)
        seconds = await workers.run(lambda seconds: seconds, 20.0)
        assert 19 < seconds <= 20
        assert await workers.run(lambda seconds: seconds, None) == 60.0

    in_a_loop(test)


def test_values_are_those_of_the_message():
    message = tf.make_tensor_proto([b"a", b"b"])
    np.testing.assert_array_equal(read(message), [b"a", b"b"])


@pytest.mark.parametrize("batching", [None, Batching()], ids=["alone", "batch"])
def test_a_run_that_is_too_long_names_its_limit(toy_path, batching):
    limits = Limits(run_seconds=0.3)
    with (
        Server(
            toy_path.parent, "toy", port=0, limits=limits, batching=batching
        ) as server,
        Client(server.address, "toy", timeout=60) as client,
    ):
        with pytest.raises(ServingError, match="at most 0.3 seconds") as caught:
            client.predict({"steps": np.array([10**12])}, "slow")
    assert "--max_run_seconds" in caught.value.message
    assert not caught.value.hint
