"""REST through HTTP, as TensorFlow Serving's own tests have it.

`MALFORMED`, `REFUSED`, `PREDICTED` and `STATUS` put the 36 requests of its
`http_rest_api_handler_test.cc` to the toy model, with their 19 messages. 31
requests and all messages apply. The five to classify and to regress, in
`EXAMPLES`, are refused here: the development server does neither.

What a test asks of `rest_address` TensorFlow Serving must answer as well; with
`our_rest`, `strict` or `busy` it holds for the development server alone.
"""

import asyncio
import concurrent.futures
import contextlib
import gzip
import http.client
import json
import socket
import zlib
from typing import Any
from typing import NamedTuple

import numpy as np
import pytest
from google.protobuf import json_format
from keras_attn_serving import Client
from keras_attn_serving.server import Loading
from keras_attn_serving.server import Rest
from keras_attn_serving.server import Server
from keras_attn_serving.server.config import METRICS_PATH
from keras_attn_serving.server.config import ModelConfig
from keras_attn_serving.server.limits import Limits
from keras_attn_serving.server.rest import RestApi
from prometheus_client import parser
from support.serving import toy_model
from support.serving.helpers import until
from tensorflow_serving.apis import get_model_metadata_pb2

TOY = f"/v1/models/{toy_model.NAME}"
PREDICT = f"{TOY}:predict"
CAT = {"instances": ["cat"]}
CHAT = {"predictions": [{"text": "chat", "score": -0.5}]}
FOREVER = {"signature_name": "slow", "inputs": [10**15]}  # takes days
INVALID, NOT_FOUND = 400, 404
LABEL = "stable"
LIMITS = Limits(rows=4, text_bytes=100, message_bytes=4096)
COUNT = ":tensorflow:serving:request_count"
LATENCY = ":tensorflow:serving:request_latency"


class Answer(NamedTuple):
    status: int
    headers: dict
    body: bytes

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        assert self.headers["content-type"] == "application/json"
        assert self.json.keys() == {"error"}
        return self.json["error"]


def ask(address, method, path, body=None, headers=None, **options):
    connection = http.client.HTTPConnection(address, timeout=60)
    with contextlib.closing(connection):
        return ask_again(connection, method, path, body, headers, **options)


def ask_again(connection, method, path, body=None, headers=None, **options):
    if isinstance(body, dict):
        body = json.dumps(body)
    connection.request(method, path, body, headers or {}, **options)
    response = connection.getresponse()
    names = {name.lower(): value for name, value in response.getheaders()}
    return Answer(response.status, names, response.read())


def predict(address, body, path=PREDICT):
    return ask(address, "POST", path, body)


@pytest.fixture(scope="module")
def strict(our_rest, toy_path):
    """Ours, with a label, narrow limits, CORS and metrics."""
    label = (LABEL, toy_model.VERSION)
    model = ModelConfig(toy_model.NAME, str(toy_path.parent), labels=(label,))
    rest = Rest(cors=True, metrics_path=METRICS_PATH)
    with Server(
        models=[model],
        port=0,
        rest=rest,
        limits=LIMITS,
        loading=Loading(early_labels=True),
    ) as server:
        yield server.rest_address


# TensorFlow Serving's cases

MALFORMED = [
    ("GET", "/v1/foo", "Malformed request: GET /v1/foo"),
    ("POST", "/v1/foo", "Malformed request: POST /v1/foo"),
    ("GET", "/v1/models", "Missing model name in request."),
    ("GET", "/v1/models/debug/model_name", "Malformed request"),
    ("POST", "/v1/models", "Malformed request"),
    ("GET", "/v1/models/foo:predict", "Malformed request"),
    ("GET", "/v1/models/foo/version/50:predict", "Malformed request"),
    ("POST", "/v1/models/foo/version/50:regress", "Malformed request"),
    ("POST", "/v1/models/foo/versions/HELLO:regress", "Malformed request"),
    ("POST", "/v1/models/foo/metadata", "Malformed request"),
    ("POST", "/v1/models/foo/label/some_label:regress", "Malformed request"),
    (
        "POST",
        "/v1/models/foo/versions/50/labels/some_label:regress",
        "Malformed request",
    ),
    ("POST", "/v1/models/foo/versions/some_label:regress", "Malformed request"),
]


@pytest.mark.parametrize(("method", "path", "said"), MALFORMED)
def test_another_path_is_refused(rest_address, method, path, said):
    answer = ask(rest_address, method, path, b"" if method == "POST" else None)
    assert answer.status == INVALID
    assert said in answer.error


@pytest.mark.parametrize(
    "version",
    [2**64 - 1, 2**63, "9" * 5000, "0" * 20 + "9" * 5000],
    ids=["64 bits", "63 bits", "thousands", "thousands behind zeros"],
)
@pytest.mark.parametrize("method", ["POST", "GET"])
def test_a_version_of_too_many_digits_is_refused(our_rest, version, method):
    # TensorFlow Serving sends this text to its log alone.
    path = f"{TOY}/versions/{version}"
    if method == "POST":
        path += ":regress"
    answer = ask(our_rest, method, path)
    assert answer.status == INVALID
    assert answer.error == f"Failed to convert version: {version} to numeric."


# case: path, body, status, a part of the message
REFUSED = {
    "unknown model": (
        "/v1/models/foo:predict",
        {"instances": [1]},
        NOT_FOUND,
        "Servable not found for request: Latest(foo)",
    ),
    "version of an unknown model": (
        "/v1/models/foo/versions/50:predict",
        {"instances": [1]},
        NOT_FOUND,
        "Servable not found for request: Specific(foo, 50)",
    ),
    "longer name": (
        f"{TOY}99:predict",
        {"instances": [1]},
        NOT_FOUND,
        "Servable not found for request: Latest(toy99)",
    ),
    "no document": (
        PREDICT,
        "",
        INVALID,
        "JSON Parse error: The document is empty",
    ),
    "no JSON": (
        PREDICT,
        "instances = [1, 2]",
        INVALID,
        "JSON Parse error: Invalid value",
    ),
    "wrong type": (
        PREDICT,
        {"signature_name": "compiled", "instances": ["x", "y"]},
        INVALID,
        "is not of expected type: float",
    ),
    "unknown label": (
        f"{TOY}/labels/nonexistent:predict",
        {"instances": ["x", "y"]},
        INVALID,
        "Unrecognized servable version label: nonexistent",
    ),
    "a number for a signature": (
        PREDICT,
        {"signature_name": 100},
        INVALID,
        "'signature_name' key must be a string value.",
    ),
    # Not of its tests:
    "unknown version": (
        f"{TOY}/versions/7:predict",
        CAT,
        NOT_FOUND,
        "Servable not found for request: Specific(toy, 7)",
    ),
    "unknown signature": (
        PREDICT,
        {"signature_name": "S"},
        INVALID,
        'Serving signature name: "S" not found in signature def',
    ),
    "no JSON for an unknown model": (
        "/v1/models/foo:predict",
        "",
        INVALID,
        "JSON Parse error: The document is empty",
    ),
    "a failing operation": (
        PREDICT,
        {"signature_name": "number", "inputs": ["cat"]},
        INVALID,
        "StringToNumberOp could not correctly convert string: cat",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_request_is_refused_in_tensorflow_servings_words(rest_address, case):
    path, body, status, said = REFUSED[case]
    answer = predict(rest_address, body, path)
    assert answer.status == status
    assert said in answer.error


ADD = {"signature_name": "add"}
VERSION = f"{TOY}/versions/{toy_model.VERSION}"
IDS = [{"ids": [1, 2], "lengths": 3}, {"ids": [4, 5], "lengths": 6}]

# case: path, body, answer
PREDICTED = {
    "latest": (PREDICT, CAT, CHAT),
    "version": (f"{VERSION}:predict", CAT, CHAT),
    "label": (f"{TOY}/labels/{LABEL}:predict", CAT, CHAT),
    "signature": (
        f"{VERSION}:predict",
        ADD | {"instances": IDS},
        {"predictions": [6, 15]},
    ),
    "columns": (
        f"{VERSION}:predict",
        ADD | {"inputs": {"ids": [[1, 2], [4, 5]], "lengths": [3, 6]}},
        {"outputs": [6, 15]},
    ),
    # Not of its tests:
    "columns without a name": (
        PREDICT,
        {"inputs": ["cat"]},
        {"outputs": {"text": ["chat"], "score": [-0.5]}},
    ),
    "no row": (
        PREDICT,
        {"inputs": []},
        {"outputs": {"text": [], "score": []}},
    ),
}


@pytest.mark.parametrize("case", PREDICTED)
def test_predict_answers_in_the_form_of_the_request(request, case):
    path, body, expected = PREDICTED[case]
    server = "strict" if case == "label" else "rest_address"
    answer = predict(request.getfixturevalue(server), body, path)
    assert answer.status == 200
    assert answer.json == expected
    assert answer.headers["content-type"] == "application/json"


STATUS = {
    "all": ("rest_address", TOY),
    "version": ("rest_address", VERSION),
    "label": ("strict", f"{TOY}/labels/{LABEL}"),
}


@pytest.mark.parametrize("case", STATUS)
def test_the_status_is_that_of_each_version(request, case):
    server, path = STATUS[case]
    answer = ask(request.getfixturevalue(server), "GET", path)
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.json == {
        "model_version_status": [
            {
                "version": str(toy_model.VERSION),
                "state": "AVAILABLE",
                "status": {"error_code": "OK", "error_message": ""},
            }
        ]
    }


@pytest.mark.parametrize("path", [TOY, VERSION])
def test_the_metadata_are_the_signatures(rest_address, prediction, path):
    answer = ask(rest_address, "GET", f"{path}/metadata")
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.json["model_spec"] == {
        "name": toy_model.NAME,
        "signature_name": "",
        "version": str(toy_model.VERSION),
    }
    signatures = answer.json["metadata"]["signature_def"]
    add = signatures["signature_def"]["add"]
    assert add["inputs"]["ids"] == {
        "name": "add_ids:0",
        "dtype": "DT_INT32",
        "tensor_shape": {
            "dim": [{"size": "-1", "name": ""}, {"size": "2", "name": ""}],
            "unknown_rank": False,
        },
    }
    assert add["method_name"] == "tensorflow/serving/predict"
    assert add["defaults"] == {}
    # The same as by gRPC.
    request = get_model_metadata_pb2.GetModelMetadataRequest()
    request.model_spec.name = toy_model.NAME
    request.metadata_field.append("signature_def")
    expected = get_model_metadata_pb2.SignatureDefMap()
    response = prediction.GetModelMetadata(request)
    response.metadata["signature_def"].Unpack(expected)
    found = get_model_metadata_pb2.SignatureDefMap()
    assert json_format.ParseDict(signatures, found) == expected


# path, body, a part of the message
EXAMPLES = [
    (f"{TOY}:regress", {"examples": [{"x": 80.0}]}, "Expected one output"),
    (f"{VERSION}:regress", {"examples": [{"x": 80.0}]}, "Expected one output"),
    (
        f"{TOY}/labels/{LABEL}:regress",
        {"signature_name": "number", "examples": [{"x": 80.0}]},
        "No regression inputs found",
    ),
    (
        f"{TOY}:classify",
        {"signature_name": "add", "examples": [{"x": 20.0}]},
        "Expected one input Tensor.",
    ),
    (
        f"{TOY}/labels/{LABEL}:classify",
        {"signature_name": "S", "examples": [{"x": 10.0}]},
        "No signature was found with the name: S",
    ),
    (f"{TOY}:classify", "", "JSON Parse error: The document is empty"),
    (f"{TOY}:regress", "[]", "JSON Value: [] Is not object"),
]


@pytest.mark.parametrize(("path", "body", "said"), EXAMPLES)
def test_classify_and_regress_are_refused(strict, path, body, said):
    answer = predict(strict, body, path)
    assert answer.status == INVALID
    assert answer.error.startswith(said)


# Paths and methods


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/v1/models/toy/", "Malformed request: GET /v1/models/toy/"),
        ("/v1/", "Malformed request: GET /v1/"),
        ("/v1/models/versions/3", "Missing model name in request."),
        ("/v1/models/versions/3/metadata", "Missing model name in request."),
    ],
)
def test_a_path_without_a_model_is_refused(rest_address, path, said):
    answer = ask(rest_address, "GET", path)
    assert (answer.status, answer.error) == (INVALID, said)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("a%2Fb", "a/b"),
        ("a%20b+c", "a b+c"),
        ("caf%C3%A9", "café"),
        ("%22%0A%00", '"\n\0'),
        ("metadata", "metadata"),
        ("labels", "labels"),
        ("toy?x=1", "toy?x=1"),  # a query is part of the path
    ],
)
def test_a_name_may_be_escaped(rest_address, path, name):
    answer = ask(rest_address, "GET", f"/v1/models/{path}")
    said = f"Could not find any versions of model {name}"
    assert (answer.status, answer.error) == (NOT_FOUND, said)
    escaped = predict(rest_address, CAT, "/v1/models/t%6Fy:predict")
    assert escaped.json == CHAT


def test_a_name_that_is_not_well_escaped_is_unknown(our_rest):
    for path, name in (("%FF%C3", "\ufffd\ufffd"), ("a%zzb%4", "a%zzb%4")):
        answer = ask(our_rest, "GET", f"/v1/models/{path}")
        assert answer.status == NOT_FOUND
        assert answer.error.endswith(f"of model {name}")


def test_capitals_count_in_the_last_part_alone(rest_address):
    assert ask(rest_address, "GET", "/V1/MODELS/toy").status == 200
    capitals = predict(rest_address, CAT, "/V1/Models/toy/VERSIONS/3:predict")
    assert capitals.json == CHAT
    answer = predict(rest_address, CAT, f"{TOY}:PREDICT")
    assert answer.status == INVALID
    assert answer.error == f"Malformed request: POST {TOY}:PREDICT"
    status = ask(rest_address, "GET", f"{TOY}/METADATA")
    assert status.json.keys() == {"model_version_status"}
    assert ask(rest_address, "GET", "/v1/models/TOY").status == NOT_FOUND


def test_a_version_may_begin_with_zeros(rest_address):
    path = f"{TOY}/versions/{'0' * 50}{toy_model.VERSION}:predict"
    assert predict(rest_address, CAT, path).json == CHAT
    answer = ask(rest_address, "GET", f"{TOY}/versions/{2**63 - 1}")
    assert answer.status == NOT_FOUND
    assert answer.error == (
        f"Could not find version {2**63 - 1} of model {toy_model.NAME}"
    )


@pytest.mark.parametrize("path", ["/", "/v1", "/v2/models/toy", "/metadata"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_other_paths_are_not_found(rest_address, method, path):
    assert ask(rest_address, method, path).status == NOT_FOUND


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH"])
def test_another_method_is_refused(rest_address, method):
    answer = ask(rest_address, method, PREDICT, CAT)
    assert answer.status == INVALID
    assert answer.error == f"Malformed request: {method} {PREDICT}"


def test_head_is_refused_without_a_body(rest_address):
    answer = ask(rest_address, "HEAD", TOY)
    assert (answer.status, answer.body) == (INVALID, b"")


def test_metrics_have_no_page_unless_asked_for(our_rest):
    assert ask(our_rest, "GET", METRICS_PATH).status == NOT_FOUND


# CORS


@pytest.mark.parametrize("server", ["our_rest", "strict"])
def test_options_ask_for_leave(request, server):
    address = request.getfixturevalue(server)
    for origin in ("https://a.example", "http://b.example"):
        answer = ask(address, "OPTIONS", PREDICT, headers={"Origin": origin})
        assert (answer.status, answer.body) == (200, b"")
    for headers in ({}, {"Origin": "null"}):
        answer = ask(address, "OPTIONS", PREDICT, headers=headers)
        assert answer.status == INVALID
        assert answer.error == "Origin header is missing in CORS preflight"


def test_other_origins_may_ask_if_cors_is_on(our_rest, strict):
    requests = (
        ("POST", PREDICT, CAT),
        ("GET", TOY, None),
        ("POST", PREDICT, ""),
        ("OPTIONS", PREDICT, None),
    )
    for method, path, body in requests:
        answer = ask(strict, method, path, body, {"Origin": "http://a"})
        assert {
            name: value
            for name, value in answer.headers.items()
            if name.startswith("access-control-")
        } == {
            "access-control-allow-origin": "*",
            "access-control-allow-methods": "POST, GET",
            "access-control-allow-headers": "Content-Type",
        }
        answer = ask(our_rest, method, path, body, {"Origin": "http://a"})
        assert not any("access-control" in name for name in answer.headers)


# Bodies


def test_the_type_of_the_body_does_not_count(rest_address):
    for kind in ("application/x-www-form-urlencoded", "text/plain", ""):
        headers = {"Content-Type": kind}
        answer = ask(rest_address, "POST", PREDICT, CAT, headers)
        assert answer.json == CHAT


def test_a_body_may_come_in_chunks(rest_address):
    text = json.dumps(CAT).encode()
    chunks = [bytes([byte]) for byte in text]
    answer = ask(rest_address, "POST", PREDICT, iter(chunks))
    assert answer.json == CHAT


def test_a_body_may_be_zipped(rest_address):
    headers = {"Content-Encoding": "gzip"}
    body = gzip.compress(json.dumps(CAT).encode())
    assert ask(rest_address, "POST", PREDICT, body, headers).json == CHAT
    chunks = iter([body[:9], body[9:]])
    assert ask(rest_address, "POST", PREDICT, chunks, headers).json == CHAT


@pytest.mark.parametrize(
    "body",
    [
        b"",
        json.dumps(CAT).encode(),
        gzip.compress(json.dumps(CAT).encode())[:-1],
        zlib.compress(json.dumps(CAT).encode()),
        gzip.compress(json.dumps(CAT).encode()) + b"more",
        gzip.compress(json.dumps(CAT).encode()) + gzip.compress(b"more"),
    ],
    ids=["nothing", "not zipped", "cut", "zlib", "more", "twice"],
)
def test_a_body_that_is_not_zipped_as_it_says_is_refused(our_rest, body):
    headers = {"Content-Encoding": "gzip"}
    answer = ask(our_rest, "POST", PREDICT, body, headers)
    assert answer.status == INVALID
    assert answer.error == "The body is not what gzip writes."


def test_a_server_may_be_asked_before_the_body_is_sent(rest_address):
    host, port = rest_address.rsplit(":", 1)
    body = json.dumps(CAT).encode()
    head = (
        f"POST {PREDICT} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n"
        f"Expect: 100-continue\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection((host, int(port)), 60) as connection:
        connection.sendall(head.encode())
        with connection.makefile("rb") as answers:
            assert answers.readline().startswith(b"HTTP/1.1 100 ")
            assert answers.readline() == b"\r\n"
            connection.sendall(body)
            assert answers.readline().startswith(b"HTTP/1.1 200 ")
            assert b"chat" in answers.read()


TOO_LARGE = "A request may have at most 4096 bytes. Send it in several"


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b" " * 4097, {}),
        (b" " * 2**20, {}),
        ([b" " * 4096, b" "], {}),
        (gzip.compress(b" " * 2**24), {"Content-Encoding": "gzip"}),
    ],
    ids=["one byte", "a mebibyte", "chunks", "zipped"],
)
def test_a_body_that_is_too_large_is_refused(strict, body, headers):
    connection = http.client.HTTPConnection(strict, timeout=60)
    with contextlib.closing(connection):
        for path in (PREDICT, f"{TOY}:classify"):
            sent = iter(body) if isinstance(body, list) else body
            answer = ask_again(connection, "POST", path, sent, headers)
            assert answer.status == 429
            assert answer.error.startswith(TOO_LARGE)
        # The connection can be used on.
        assert ask_again(connection, "POST", PREDICT, CAT).json == CHAT


def test_a_body_of_the_limit_is_answered(strict):
    body = json.dumps(CAT).encode()
    answer = predict(strict, body + b" " * (4096 - len(body)))
    assert answer.json == CHAT


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"instances": ["a"] * 5}, "at most 4 rows. Received: 5."),
        ({"inputs": ["a"] * 5}, "at most 4 rows. Received: 5."),
        ({"inputs": {"text": ["a"] * 6}}, "at most 4 rows. Received: 6."),
        ({"instances": ["a" * 101]}, "at most 100 bytes. Received: 101"),
        ({"inputs": ["a", "é" * 51]}, "at most 100 bytes. Received: 102"),
    ],
)
def test_rows_and_texts_have_a_limit(strict, body, said):
    answer = predict(strict, body)
    assert answer.status == INVALID
    assert said in answer.error


def test_a_wrong_shape_is_refused(our_rest):
    answer = predict(our_rest, {"inputs": "cat"})
    assert answer.status == INVALID
    assert "Received shape: []. Send a list" in answer.error


# Values


def both(client, rest_address, signature, inputs):
    """The outputs of a signature, by gRPC and by REST."""
    expected = client.predict(inputs, signature)
    sent = {
        name: value.tolist() if isinstance(value, np.ndarray) else value
        for name, value in inputs.items()
    }
    body = {"signature_name": signature, "inputs": sent}
    answer = predict(rest_address, body)
    assert answer.status == 200, answer
    found = answer.json["outputs"]
    return expected, found if len(expected) > 1 else {list(expected)[0]: found}


def assert_same(found: Any, expected: Any):
    if isinstance(expected, np.ndarray):
        found = np.array(found, expected.dtype).reshape(np.shape(found))
        assert found.shape == expected.shape
        np.testing.assert_array_equal(found, expected)
    else:
        assert found == expected


TEXTS = ["hello world", "cat", "é \u2028 🙂", "a\0b", "one two three cat"]
SIGNATURES = {
    "serving_default": {"text": TEXTS},
    "nbest": {"text": TEXTS},
    "align": {"text": TEXTS},
    "add": {
        "ids": np.int32([[1, 2], [2**31 - 1, 1], [-5, 5]]),
        "lengths": np.int32([3, 0, -(2**31)]),
    },
    "number": {"text": ["0.1", "-1e38", "16777217", "1e-45", "nan", "-inf"]},
    "slow": {"steps": np.int64([2, 3, 4])},
    "raw": {"text": ["plain"]},
}


@pytest.mark.parametrize("signature", SIGNATURES)
def test_rest_has_the_values_that_grpc_has(client, rest_address, signature):
    inputs = SIGNATURES[signature]
    expected, found = both(client, rest_address, signature, inputs)
    if signature == "raw":
        assert found.pop("text_bytes") == [{"b64": "cGxhaW4="}]
        expected = {"text": expected["text"]}
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert_same(found[name], value)
    # And by rows.
    names = list(inputs)
    rows = [
        dict(zip(names, row, strict=True))
        for row in zip(
            *(np.array(x, object).tolist() for x in inputs.values()),
            strict=True,
        )
    ]
    body = {"signature_name": signature, "instances": rows}
    predictions = predict(rest_address, body).json["predictions"]
    for name, value in expected.items():
        column = [
            row[name] if isinstance(row, dict) else row for row in predictions
        ]
        assert_same(column, value)


ECHOED = {
    "float32": np.float32([0.1, -0.0, 1e-45]),
    "float64": np.float64([[0.1], [1 / 3]]),
    "int8": np.int8([-128, 127]),
    "int16": np.int16([-(2**15), 2**15 - 1]),
    "int32": np.array(-(2**31), np.int32),
    "int64": np.int64([2**53 + 1, -(2**63), 2**63 - 1]),
    "uint8": np.uint8([255]),
    "uint32": np.uint32([2**32 - 1]),
    "uint64": np.uint64([2**64 - 1, 2**53 + 1]),
    "bool": np.array([[True, False]]),
    "string": ["text"],
}
# Those that JSON does not have may be empty.
ECHOED |= {
    each.name: np.zeros([0], each.as_numpy_dtype)
    for each in toy_model.DTYPES
    if each.name not in ECHOED
}


def test_every_dtype_of_json_keeps_its_values(client, rest_address):
    expected, found = both(client, rest_address, "echo", ECHOED)
    assert found.keys() == expected.keys() == ECHOED.keys()
    for name, value in ECHOED.items():
        assert_same(found[name], value)
        assert_same(expected[name], value)


def test_a_single_text_comes_back_as_one(client, rest_address):
    inputs = ECHOED | {"string": "a\0"}
    expected, found = both(client, rest_address, "echo", inputs)
    assert found["string"] == expected["string"] == "a\0"


@pytest.mark.parametrize("dtype", toy_model.CASTS)
def test_an_output_without_json_is_refused(rest_address, dtype):
    name = {"float16": "half"}.get(dtype.name, dtype.name)
    for key in ("instances", "inputs"):
        body = {"signature_name": dtype.name, key: [1.0]}
        answer = predict(rest_address, body)
        assert answer.status == INVALID
        assert answer.error == (
            f"Failed to write JSON value for tensor type: {name}"
        )


def test_an_input_without_json_is_unimplemented(rest_address):
    inputs = {each.name: [] for each in toy_model.DTYPES} | {"float16": [1]}
    body = {"signature_name": "echo", "inputs": inputs}
    answer = predict(rest_address, body)
    assert answer.status == 501
    assert answer.error == "Conversion of JSON Value: 1 to type: half"


def test_bytes_come_through_in_base64(rest_address):
    sent = [{"b64": "/w=="}, {"b64": "AGE="}]
    for key, answer in (("inputs", "outputs"), ("instances", "predictions")):
        body = {"signature_name": "raw", key: sent}
        # TensorFlow Serving's own JSON has bytes that are no UTF-8.
        text = predict(rest_address, body).body.decode("utf-8", "replace")
        found = json.loads(text)[answer]
        if key == "instances":
            assert [row["text_bytes"] for row in found] == sent
        else:
            assert found["text_bytes"] == sent


def test_bytes_that_are_no_utf8_are_marked(our_rest):
    body = {"signature_name": "raw", "inputs": [{"b64": "Yf8="}]}
    found = predict(our_rest, body).json["outputs"]
    assert found == {"text": ["a\ufffd"], "text_bytes": [{"b64": "Yf8="}]}


def test_a_score_may_be_infinite(rest_address):
    body = CAT | {"signature_name": "nbest"}
    answer = predict(rest_address, body)
    assert b"-Infinity" in answer.body
    (found,) = answer.json["predictions"]
    assert found == {
        "texts": ["chat", "", ""],
        "scores": [-0.5, -np.inf, -np.inf],
    }


def test_xla_serves_rest_too(our_rest):
    body = {"signature_name": "compiled", "instances": [1, 2.5]}
    assert predict(our_rest, body).json == {"predictions": [2.0, 3.5]}


# Connections, load and time


def test_a_connection_serves_many_requests(rest_address):
    connection = http.client.HTTPConnection(rest_address, timeout=60)
    with contextlib.closing(connection):
        connection.connect()
        used = connection.sock
        for _ in range(3):
            assert ask_again(connection, "POST", PREDICT, CAT).json == CHAT
            assert ask_again(connection, "POST", PREDICT, "").status == INVALID
            assert ask_again(connection, "PUT", PREDICT, CAT).status == INVALID
            assert ask_again(connection, "GET", TOY).status == 200
            assert connection.sock is used


def test_clients_at_a_time_get_answers_of_their_own(rest_address):
    words = list(toy_model.WORDS) * 8

    def one(word):
        answer = predict(rest_address, {"inputs": [word] * 3})
        return answer.json["outputs"]["text"]

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        found = list(pool.map(one, words))
    assert found == [[toy_model.WORDS[word]] * 3 for word in words]


def head(length):
    return (
        f"POST {PREDICT} HTTP/1.1\r\nHost: a\r\n"
        f"Content-Length: {length}\r\n\r\n"
    ).encode()


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"POST ",
        head(100)[:-2],
        head(100),
        head(100) + b'{"instances"',
        head(19) + b'{"inputs": ["cat"]}',
        b"\0" * 100,
        b"GET /" + b"a" * 100_000,
        b"POST /v1/models/toy:predict HTTP/1.1\r\nHost: a\r\n"
        b"Transfer-Encoding: chunked\r\n\r\nXYZ\r\n",
    ],
)
def test_a_client_that_leaves_or_errs_harms_no_one(rest_address, sent):
    host, port = rest_address.rsplit(":", 1)
    for _ in range(3):
        with socket.create_connection((host, int(port)), 60) as connection:
            # Some are refused before they have been read.
            with contextlib.suppress(ConnectionError):
                connection.sendall(sent)
    assert predict(rest_address, CAT).json == CHAT


def test_a_run_ends_with_the_timeout(our_rest, toy_path):
    rest = Rest(timeout=0.3)
    base_path = toy_path.parent
    with Server(base_path, toy_model.NAME, port=0, rest=rest) as server:
        answer = predict(server.rest_address, FOREVER)
        assert answer.status == 504
        assert answer.error
        assert ask(server.rest_address, "GET", TOY).status == 200


def test_a_body_that_does_not_come_ends_with_the_timeout(our_rest, toy_path):
    rest = Rest(timeout=0.3)
    base_path = toy_path.parent
    with Server(base_path, toy_model.NAME, port=0, rest=rest) as server:
        host, port = server.rest_address.rsplit(":", 1)
        with socket.create_connection((host, int(port)), 60) as connection:
            connection.sendall(head(100) + b"{")
            assert connection.recv(65536).startswith(b"HTTP/1.1 504")


@pytest.fixture
def busy(our_rest, toy_path):
    """A server whose only thread is taken, where one call may wait."""
    server = Server(
        toy_path.parent,
        toy_model.NAME,
        port=0,
        threads=1,
        rest=Rest(timeout=None),
        limits=Limits(queued_calls=1),
    )
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        running = pool.submit(predict, server.rest_address, FOREVER)
        until(lambda: not server._executor._workers._free)
        yield server
        server.stop(grace=0.1)
        answer = running.result()
        assert (answer.status, answer.error) == (503, "The server stops.")


@contextlib.contextmanager
def waiting(server):
    """A call that waits for its turn, of a client that then leaves."""
    host, port = server.rest_address.rsplit(":", 1)
    body = json.dumps(CAT).encode()
    workers = server._executor._workers
    with socket.create_connection((host, int(port)), 60) as connection:
        connection.sendall(head(len(body)) + body)
        until(lambda: workers._waiting)
        yield


def test_a_call_that_finds_the_queue_full_is_refused_at_once(busy):
    with waiting(busy):
        answer = predict(busy.rest_address, CAT)
        assert answer.status == 503
        assert "its queue of 1 calls is full" in answer.error
        assert ask(busy.rest_address, "GET", TOY).status == 200
        assert ask(busy.rest_address, "GET", "/readyz").status == 200


def test_a_call_whose_client_has_left_never_runs(busy):
    workers = busy._executor._workers
    for _ in range(3):
        with waiting(busy):
            pass
        until(lambda: not workers._waiting)
    assert not workers._bytes


# Health and metrics


def test_health_and_readiness_answer(our_rest):
    for path in ("/healthz", "/readyz"):
        answer = ask(our_rest, "GET", path)
        assert (answer.status, answer.body) == (200, b"ok")


def test_a_server_is_not_ready_before_every_model_is_loaded():
    class Loading:
        def ready(self):
            return False

    sent = []

    async def send(message):
        sent.append(message)

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    api: Any = RestApi
    app = api(Loading(), None, None, None, None, None)
    for path, status in ((b"/readyz", 503), (b"/healthz", 200)):
        scope = {
            "type": "http",
            "method": "GET",
            "raw_path": path,
            "query_string": b"",
            "headers": [],
        }
        asyncio.run(app(scope, receive, send))
        assert sent[-2]["status"] == status


def samples(address):
    """What the metrics page says, by names and labels."""
    answer = ask(address, "GET", METRICS_PATH)
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/plain")
    page = answer.body.decode()
    for name, kind in ((COUNT, "counter"), (LATENCY, "histogram")):
        assert f"# TYPE {name} {kind}\n" in page
        assert f"\n{name}_total" not in page
    # The parser adds an ending to the names of counters.
    return {
        (x.name.removesuffix("_total"), tuple(sorted(x.labels.items()))): (
            x.value
        )
        for family in parser.text_string_to_metric_families(page)
        for x in family.samples
    }


def test_metrics_count_requests_by_their_status(strict):
    before = samples(strict)
    for _ in range(3):
        predict(strict, CAT)
    predict(strict, "")
    predict(strict, " " * 5000)
    ask(strict, "GET", TOY)
    ask(strict, "GET", f"{TOY}/metadata")
    predict(strict, CAT, "/v1/models/stranger:predict")
    ask(strict, "OPTIONS", PREDICT, headers={"Origin": "http://a"})
    ask(strict, "GET", "/healthz")
    ask(strict, "GET", "/elsewhere")
    after = samples(strict)

    def rise(name, **labels):
        key = name, tuple(sorted(labels.items()))
        return after.get(key, 0) - before.get(key, 0)

    toy = toy_model.NAME
    for model, status, expected in (
        (toy, "OK", 5),
        (toy, "INVALID_ARGUMENT", 1),
        (toy, "RESOURCE_EXHAUSTED", 1),
        ("", "NOT_FOUND", 1),
        ("", "OK", 1),
    ):
        assert rise(COUNT, model_name=model, status=status) == expected
    assert "stranger" not in str(after)
    # The time of those that were answered, with the method of a POST.
    for model, method, expected in (
        (toy, "predict", 3),
        (toy, "", 2),
        ("", "", 1),
    ):
        labels = {"model_name": model, "API": method, "entrypoint": "REST"}
        assert rise(f"{LATENCY}_count", **labels) == expected
        assert rise(f"{LATENCY}_bucket", le="+Inf", **labels) == expected
        assert rise(f"{LATENCY}_sum", **labels) > 0


def test_grpc_and_rest_are_counted_apart(toy_path, our_rest):
    rest = Rest(metrics_path=METRICS_PATH)
    with (
        Server(toy_path.parent, toy_model.NAME, port=0, rest=rest) as server,
        Client(server.address, toy_model.NAME, timeout=30) as client,
    ):
        client.predict(["cat"])
        predict(server.rest_address, CAT)
        found = samples(server.rest_address)
    for api, entrypoint in (("Predict", "GRPC"), ("predict", "REST")):
        labels = (
            ("API", api),
            ("entrypoint", entrypoint),
            ("model_name", toy_model.NAME),
        )
        assert found[f"{LATENCY}_count", labels] == 1
    labels = (("model_name", toy_model.NAME), ("status", "OK"))
    assert found[COUNT, labels] == 2
