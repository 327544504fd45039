"""Nothing that grows with a request runs in the server's event loop."""

import contextlib
import gzip
import http.client
import json
import threading
import time
from concurrent import futures

import grpc
import pytest
from grpc_health.v1 import health_pb2
from grpc_health.v1 import health_pb2_grpc
from keras_attn_serving import Client
from keras_attn_serving.server import Rest
from keras_attn_serving.server import Server
from keras_attn_serving.server import config
from keras_attn_serving.server import descriptions
from keras_attn_serving.server import examples
from keras_attn_serving.server import json_tensors
from keras_attn_serving.server.config import Batching
from keras_attn_serving.server.limits import Limits
from support.serving import toy_model
from tensorflow_serving.apis import get_model_metadata_pb2
from tensorflow_serving.apis import get_model_status_pb2
from tensorflow_serving.apis import inference_pb2
from tensorflow_serving.apis import model_management_pb2
from tensorflow_serving.apis import predict_pb2

PREDICTION = "PredictionService"
MODEL = "ModelService"
TOY = "/v1/models/toy"


def spec():
    return {"name": "toy"}


def by_grpc(service, method, message=b""):
    def ask(server):
        with grpc.insecure_channel(server.address) as channel:
            path = f"/tensorflow.serving.{service}/{method}"
            with contextlib.suppress(grpc.RpcError):
                channel.unary_unary(path)(message, timeout=60)

    return ask


def by_rest(method, path, body=None, **headers):
    def ask(server):
        connection = http.client.HTTPConnection(server.rest_address, timeout=60)
        with contextlib.closing(connection):
            connection.request(method, path, body, headers)
            connection.getresponse().read()

    return ask


METADATA = get_model_metadata_pb2.GetModelMetadataRequest(
    model_spec=spec(), metadata_field=["signature_def"]
).SerializeToString()
STATUS = get_model_status_pb2.GetModelStatusRequest(
    model_spec=spec()
).SerializeToString()
TASKS = inference_pb2.MultiInferenceRequest(
    tasks=[{"model_spec": spec()}]
).SerializeToString()
RELOAD = model_management_pb2.ReloadConfigRequest().SerializeToString()
CAT = json.dumps({"instances": ["cat"] * 20_000}).encode()
ZIPPED = gzip.compress(CAT)

CASES = {
    # A call, and what it comes to: a module and its function.
    "metadata, gRPC": (
        by_grpc(PREDICTION, "GetModelMetadata", METADATA),
        (descriptions, "metadata"),
    ),
    "status, gRPC": (
        by_grpc(MODEL, "GetModelStatus", STATUS),
        (descriptions, "status"),
    ),
    "several": (
        by_grpc(PREDICTION, "MultiInference", TASKS),
        (examples, "refuse_several"),
    ),
    "classify, gRPC": (
        by_grpc(PREDICTION, "Classify", STATUS),
        (examples, "refuse"),
    ),
    "reload": (
        by_grpc(MODEL, "HandleReloadConfigRequest", RELOAD),
        (config, "models"),
    ),
    "metadata, REST": (
        by_rest("GET", f"{TOY}/metadata"),
        (descriptions, "metadata"),
    ),
    "status, REST": (by_rest("GET", TOY), (descriptions, "status")),
    "classify, REST": (
        by_rest("POST", f"{TOY}:classify", b"{}"),
        (json_tensors, "read_signature"),
    ),
    "predict, REST": (
        by_rest("POST", f"{TOY}:predict", CAT),
        (json_tensors, "read"),
    ),
    "predict, zipped": (
        by_rest(
            "POST", f"{TOY}:predict", ZIPPED, **{"Content-Encoding": "gzip"}
        ),
        (json_tensors, "read"),
    ),
}


@pytest.fixture(
    scope="module", params=[None, Batching()], ids=["alone", "batch"]
)
def server(toy_path, request):
    with Server(
        toy_path.parent,
        toy_model.NAME,
        port=0,
        rest=Rest(),
        batching=request.param,
    ) as server:
        yield server


@pytest.mark.parametrize("case", CASES)
def test_health_is_answered_while_a_request_is_read(server, monkeypatch, case):
    ask, (module, name) = CASES[case]
    entered, gate = threading.Event(), threading.Event()
    function = getattr(module, name)

    def held_up(*arguments):
        entered.set()
        gate.wait(30)
        return function(*arguments)

    monkeypatch.setattr(module, name, held_up)
    with futures.ThreadPoolExecutor(1) as pool:
        call = pool.submit(ask, server)
        try:
            assert entered.wait(30)
            require_health(server)
        finally:
            gate.set()
        call.result()


def require_health(server):
    with grpc.insecure_channel(server.address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        found = stub.Check(health_pb2.HealthCheckRequest(), timeout=20)
    assert found.status == health_pb2.HealthCheckResponse.SERVING
    connection = http.client.HTTPConnection(server.rest_address, timeout=20)
    with contextlib.closing(connection):
        connection.request("GET", "/healthz")
        assert connection.getresponse().status == 200


@pytest.mark.parametrize(
    ("service", "method"),
    [
        (PREDICTION, "Classify"),
        (PREDICTION, "Regress"),
        (PREDICTION, "MultiInference"),
        (PREDICTION, "GetModelMetadata"),
        (MODEL, "GetModelStatus"),
    ],
)
def test_large_messages_without_a_run_are_not_parsed(server, service, method):
    with grpc.insecure_channel(server.address) as channel:
        path = f"/tensorflow.serving.{service}/{method}"
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary(path)(b"\n\0" * 2**20, timeout=60)
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "at most 1048576 bytes. Received: 2097152" in caught.value.details()


@pytest.mark.parametrize(
    ("service", "method"),
    [
        (PREDICTION, "Predict"),
        (PREDICTION, "Classify"),
        (PREDICTION, "Regress"),
        (PREDICTION, "MultiInference"),
        (PREDICTION, "GetModelMetadata"),
        (MODEL, "GetModelStatus"),
        (MODEL, "HandleReloadConfigRequest"),
    ],
)
def test_a_message_of_another_kind_is_refused(server, service, method):
    with grpc.insecure_channel(server.address) as channel:
        path = f"/tensorflow.serving.{service}/{method}"
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary(path)(b"\xff\xff", timeout=60)
    assert caught.value.code() == grpc.StatusCode.INTERNAL
    assert "The request is no" in caught.value.details()


def test_a_burst_ends_in_answers_or_unavailable(toy_path):
    """gRPC cancels calls beyond 3,000 that the loop has not taken yet."""
    limits = Limits(queued_calls=10)
    request = predict_pb2.PredictRequest(model_spec=spec())
    request.inputs["text"].dtype = 7
    request.inputs["text"].tensor_shape.dim.add(size=1)
    request.inputs["text"].string_val.append(b"cat")
    raw = request.SerializeToString()
    gate = threading.Event()
    with (
        Server(
            toy_path.parent, toy_model.NAME, port=0, threads=1, limits=limits
        ) as server,
        Client(server.address, "toy", timeout=60, retries=3) as client,
        grpc.insecure_channel(server.address) as channel,
    ):
        assert client.predict(["cat"])["text"] == ["chat"]
        server._loop.call_soon_threadsafe(gate.wait, 60)
        method = channel.unary_unary(
            "/tensorflow.serving.PredictionService/Predict"
        )
        calls = [method.future(raw, timeout=120) for _ in range(3500)]
        time.sleep(0.5)  # for all to arrive: too little makes it easier
        gate.set()
        codes = {call.code() for call in calls}
        assert client.predict(["cat"])["text"] == ["chat"]
    assert codes <= {grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE}
