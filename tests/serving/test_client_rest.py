"""`RestClient`: the same results by REST as by gRPC, and its connections."""

import concurrent.futures
import contextlib
import http.server
import json
import socket
import ssl
import subprocess
import sys
import threading
import time
import types

import grpc
import numpy as np
import pytest
from keras_attn_serving import Client
from keras_attn_serving import RestClient
from keras_attn_serving import Result
from keras_attn_serving import ServingError
from keras_attn_serving.server import Rest
from keras_attn_serving.server import Server
from keras_attn_serving.wire import deadline
from keras_attn_serving.wire import rest_messages
from keras_attn_serving.wire.results import TensorSpec
from keras_attn_serving.wire.transport import ModelSpec
from support.serving import toy_model
from support.serving.certificates import self_signed
from support.serving.tiny_proxy import Proxy

MANY = ["hello world", "cat", "", "a cat"] * 75  # more than a request may have


@pytest.fixture(scope="module")
def clients(toy_path):
    """A client by gRPC and one by REST, of the same server."""
    options = {"model": toy_model.NAME, "timeout": 30}
    with (
        Server(
            toy_path.parent, toy_model.NAME, port=0, rest=Rest(timeout=None)
        ) as server,
        Client(server.address, **options) as by_grpc,
        RestClient(f"http://{server.rest_address}", **options) as by_rest,
    ):
        yield by_grpc, by_rest


def assert_same(found, expected):
    """Checks names, order, dtypes, shapes and values."""
    assert list(found) == list(expected)
    for name, value in expected.items():
        if isinstance(value, np.ndarray):
            assert found[name].dtype == value.dtype, name
            assert found[name].shape == value.shape, name
            np.testing.assert_array_equal(found[name], value)
        else:
            assert found[name] == value, name
    assert (found.model, found.signature) == (
        expected.model,
        expected.signature,
    )


@pytest.mark.parametrize(
    ("inputs", "signature"),
    [
        (["hello world", "cat"], "serving_default"),
        (["日本 cat", 'a "\\\n\0 cat', b"\xff cat"], "serving_default"),
        (["cat", "hello"], "nbest"),
        (["hello cat world", "cat", ""], "align"),
        (["1.1", "nan", "-inf", "1e-40", "16777217"], "number"),
        ({"ids": [[1, 2], [3, 4]], "lengths": [10, 20]}, "add"),
        ([], "serving_default"),
        ([], "nbest"),
        (MANY, "align"),
    ],
    ids=str,
)
def test_results_are_those_of_grpc(clients, inputs, signature):
    by_grpc, by_rest = clients
    expected = by_grpc.predict(inputs, signature)
    assert_same(by_rest.predict(inputs, signature), expected)


def test_the_other_calls_return_the_same(clients):
    by_grpc, by_rest = clients
    assert by_rest.metadata() == by_grpc.metadata()
    assert by_rest.status() == by_grpc.status()
    assert by_rest.status(version=toy_model.VERSION) == by_grpc.status()
    for found, expected in zip(
        by_rest.align(MANY), by_grpc.align(MANY), strict=True
    ):
        assert found._replace(alignment=0) == expected._replace(alignment=0)
        np.testing.assert_array_equal(found.alignment, expected.alignment)
    by_rest.wait_until_ready(10)


def test_outputs_are_chosen_as_by_grpc(clients):
    for client in clients:
        assert client.predict(["cat"], outputs="text") == {"text": ["chat"]}
        with pytest.raises(ServingError, match="alias not found.*: Z") as error:
            client.predict(["cat"], outputs=["text", "Z"])
        assert error.value.code == grpc.StatusCode.INVALID_ARGUMENT


def test_a_version_is_named_only_if_it_was_asked_for(clients):
    _, by_rest = clients
    assert by_rest.predict(["cat"]).version == 0
    number = toy_model.VERSION
    assert by_rest.predict(["cat"], version=number).version == number
    with pytest.raises(ServingError, match=r"Specific\(toy, 7\)") as caught:
        by_rest.predict(["cat"], version=7)
    assert caught.value.code == grpc.StatusCode.NOT_FOUND
    with pytest.raises(ServingError, match="version label: a/b c"):
        by_rest.predict(["cat"], version="a/b c")


@pytest.mark.full
def test_a_call_of_too_many_bytes_goes_in_parts(clients):
    # Half of them are still too many bytes, and a quarter too many rows.
    texts = ["x" * 15_000 + " cat"] * 2000
    for client in clients:
        assert client.predict(texts)["text"] == ["? chat"] * 2000


def test_refusals_keep_their_codes_and_words(clients):
    _, by_rest = clients
    with pytest.raises(ServingError) as caught:
        by_rest.predict(["cat"], model="no body")
    assert caught.value.code == grpc.StatusCode.NOT_FOUND
    assert "Latest(no body)" in caught.value.message
    with pytest.raises(ServingError, match="not of expected type: int32"):
        by_rest.predict({"ids": [[1.5, 2]], "lengths": [1]}, "add")
    with pytest.raises(ServingError, match='"nothing" not found in'):
        by_rest.predict(["cat"], "nothing")
    with pytest.raises(ValueError, match="`Client`, which takes every dtype"):
        by_rest.predict({"complex64": np.ones(1, "complex64")}, "echo")


def test_a_call_ends_at_its_deadline(toy_path):
    # Requests by REST bring no deadline: the server's own ends their runs.
    rest = Rest(timeout=1.0)
    forever = {"steps": np.array([10**15])}
    with (
        Server(toy_path.parent, toy_model.NAME, port=0, rest=rest) as server,
        RestClient(f"http://{server.rest_address}", "toy") as client,
    ):
        with pytest.raises(ServingError, match="longer than 0.3 s") as caught:
            client.predict(forever, "slow", timeout=0.3)
        assert caught.value.code == grpc.StatusCode.DEADLINE_EXCEEDED
        assert client.status()[0].state == "AVAILABLE"


def test_threads_share_a_client(clients):
    _, by_rest = clients
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        texts = [["cat"] * (n % 5) for n in range(60)]
        for asked, found in zip(
            texts, pool.map(by_rest.predict, texts), strict=True
        ):
            assert found["text"] == ["chat"] * len(asked)


def test_a_client_works_in_processes_that_fork(clients):
    _, by_rest = clients
    program = (
        "import os, sys\n"
        "from keras_attn_serving import RestClient\n"
        "client = RestClient(sys.argv[1], 'toy', timeout=30)\n"
        "assert client.predict(['cat'])['text'] == ['chat']\n"
        "child = os.fork()\n"
        "for _ in range(20):\n"
        "    assert client.predict(['hello'])['text'] == ['bonjour']\n"
        "if child:\n"
        "    assert os.waitpid(child, 0)[1] == 0\n"
    )
    subprocess.run(
        [sys.executable, "-c", program, by_rest._queries.address],
        check=True,
        timeout=100,
    )


# What TensorFlow Serving writes: the form of its answers, by its sources.
STATUS = b"""{
 "model_version_status": [
  {
   "version": "2",
   "state": "END",
   "status": {
    "error_code": "NOT_FOUND",
    "error_message": "gone"
   }
  }
 ]
}
"""
METADATA = b"""{
"model_spec":{
 "name": "m",
 "signature_name": "",
 "version": "2"
}
,
"metadata": {"signature_def": {
 "signature_def": {
  "__saved_model_init_op": {
   "inputs": {},
   "outputs": {},
   "method_name": "",
   "defaults": {}
  },
  "serving_default": {
   "inputs": {
    "text": {
     "dtype": "DT_STRING",
     "tensor_shape": {
      "dim": [
       {
        "size": "-1",
        "name": ""
       }
      ],
      "unknown_rank": false
     },
     "name": "serving_default_text:0"
    }
   },
   "outputs": {
    "score": {
     "dtype": "DT_FLOAT",
     "tensor_shape": {
      "dim": [],
      "unknown_rank": true
     },
     "name": "score:0"
    }
   },
   "method_name": "tensorflow/serving/predict",
   "defaults": {}
  }
 }
}
}
}
"""


def test_tensorflow_servings_status_is_read():
    assert rest_messages.status(STATUS) == [(2, "END", 5, "gone")]


def test_tensorflow_servings_metadata_is_read():
    found = rest_messages.metadata(METADATA)
    assert found.version == 2
    assert found.signatures == {
        "serving_default": (
            {"text": ("string", (None,))},
            {"score": ("float32", None)},
        )
    }


def spec(dtype, *shape):
    return TensorSpec(dtype, shape)


@pytest.mark.parametrize(
    ("text", "specs", "expected"),
    [
        (
            '{"outputs": [-Infinity, NaN, 0.1]}',
            {"x": spec("float32", None)},
            np.array([-np.inf, np.nan, 0.1], "float32"),
        ),
        (
            '{"outputs": [18446744073709551615, 1]}',
            {"x": spec("uint64", None)},
            np.array([2**64 - 1, 1], "uint64"),
        ),
        (
            '{"outputs": [true, false]}',
            {"x": spec("bool", None)},
            np.array([True, False]),
        ),
        ('{"outputs": 5}', {"x": spec("int32")}, np.array(5, "int32")),
        (
            '{"outputs": []}',
            {"x": spec("float32", None, 3)},
            np.ones((0, 3), "float32"),
        ),
        (
            '{"outputs": [[], []]}',
            {"x": spec("float32", None, None, 4)},
            np.ones((2, 0, 4), "float32"),
        ),
    ],
)
def test_numbers_get_the_dtype_and_shape_that_json_lacks(text, specs, expected):
    found = rest_messages.outputs(text.encode(), specs)["x"]
    assert found.dtype == expected.dtype and found.shape == expected.shape
    np.testing.assert_array_equal(found, expected)


def test_strings_are_text_or_bytes_by_the_outputs_name():
    body = b'{"outputs": {"a_bytes": [{"b64": "/wA="}], "b": ["\xff\tx"]}}'
    specs = {x: spec("string", None) for x in ("a_bytes", "b")}
    assert rest_messages.outputs(body, specs) == {
        "a_bytes": [b"\xff\0"],
        "b": ["\ufffd\tx"],
    }


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        ("1.5", "int32"),
        ("true", "int32"),
        ("1", "bool"),
        ('"1"', "float32"),
        ("300", "int8"),
        ("1", "string"),
    ],
)
def test_values_of_another_dtype_are_not_converted(value, dtype):
    body = f'{{"outputs": [{value}]}}'.encode()
    with pytest.raises(ValueError, match="is not"):
        rest_messages.outputs(body, {"x": spec(dtype, None)})


@pytest.mark.parametrize("body", [b"<html>", b"{}", b"[]", b'{"x": 1}'])
def test_what_is_no_answer_of_a_model_server_is_said(body):
    for read in (rest_messages.status, rest_messages.metadata):
        with pytest.raises(ServingError, match="not a model server's"):
            read(body)


@pytest.mark.parametrize(
    ("number", "body", "code", "message"),
    [
        (400, b'{"error": "no"}', "INVALID_ARGUMENT", "no"),
        (404, b"<html>", "NOT_FOUND", "HTTP 404 reason: <html>"),
        (413, b"", "RESOURCE_EXHAUSTED", "Request larger than max (HTTP 413)"),
        (429, b'{"error": "full"}', "RESOURCE_EXHAUSTED", "full"),
        (499, b'{"error": "x"}', "CANCELLED", "x"),
        (500, b'{"error": "x"}', "INTERNAL", "x"),
        (501, b'{"error": "x"}', "UNIMPLEMENTED", "x"),
        (503, b'{"error": "x"}', "UNAVAILABLE", "x"),
        (504, b'{"error": "x"}', "DEADLINE_EXCEEDED", "x"),
        (418, b"tea", "UNKNOWN", "HTTP 418 reason: tea"),
    ],
)
def test_statuses_become_codes(number, body, code, message):
    error = rest_messages.refusal(number, "reason", body)
    assert error.code.name == code
    assert error.message.startswith(message)


def test_names_are_quoted_in_paths():
    assert rest_messages.path(ModelSpec("a/b é", None)) == (
        "/v1/models/a%2Fb%20%C3%A9"
    )
    assert rest_messages.path(ModelSpec("m", 3)) == "/v1/models/m/versions/3"
    assert rest_messages.path(ModelSpec("m", "s/t")) == (
        "/v1/models/m/labels/s%2Ft"
    )


class Scripted(http.server.BaseHTTPRequestHandler):
    """Answers as `answers` says; keeps what came in `seen`."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.seen.append((self.path, dict(self.headers), body))
        number, answer = self.server.answers.pop(0)
        self.send_response(number)
        self.send_header("Content-Length", str(len(answer)))
        if self.server.says_so:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(answer)
        # It promises to keep the connection and then closes it.
        self.close_connection = self.server.closes

    do_POST = do_GET

    def log_message(self, *_):
        pass


@pytest.fixture
def scripted():
    server = http.server.ThreadingHTTPServer(("localhost", 0), Scripted)
    server.seen, server.answers, server.closes = [], [], False
    server.says_so = False
    server.address = f"http://localhost:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


SCORE = (200, b'{"outputs": [0.5]}')


def test_metadata_is_asked_for_once(scripted):
    scripted.answers = [(200, METADATA), SCORE, SCORE, SCORE]
    address = f"{scripted.address}/gate/"
    headers = {"Authorization": "Bearer x"}
    with RestClient(address, "m", headers=headers) as client:
        for _ in range(3):
            found = client.predict(["a"])
            assert isinstance(found, Result)
            np.testing.assert_array_equal(found["score"], [0.5])
    paths = [path for path, _, _ in scripted.seen]
    assert paths == [
        "/gate/v1/models/m/metadata",
        *["/gate/v1/models/m:predict"] * 3,
    ]
    _, sent, body = scripted.seen[1]
    assert sent["Authorization"] == "Bearer x"
    assert json.loads(body) == {
        "signature_name": "serving_default",
        "inputs": {"text": ["a"]},
    }


def test_metadata_is_asked_for_again_when_outputs_change(scripted):
    whole = METADATA.replace(b"DT_FLOAT", b"DT_INT32")
    scripted.answers = [
        *[(200, whole), (200, b'{"outputs": [5]}')],
        *[SCORE, (200, METADATA)],
    ]
    with RestClient(scripted.address, "m") as client:
        assert client.predict(["a"])["score"].dtype == np.int32
        assert client.predict(["a"])["score"].dtype == np.float32


@pytest.mark.parametrize(
    "outputs",
    [
        b'{"b64": 5}',
        b'[{"b64": "?"}]',
        b'["x"]',
        b"[" * 100_000 + b"]" * 100_000,
    ],
    ids=lambda x: x[:9].decode(),
)
def test_an_answer_that_fits_no_signature_is_said(scripted, outputs):
    answer = 200, b'{"outputs": ' + outputs + b"}"
    scripted.answers = [(200, METADATA), answer, (200, METADATA)]
    with RestClient(scripted.address, "m") as client:
        with pytest.raises(ServingError, match="answer is not") as caught:
            client.predict(["a"])
    assert caught.value.code.name == "UNKNOWN"


@pytest.mark.parametrize("value", ["0.5", "[[0.5]]", "null"])
@pytest.mark.parametrize("dtype", ["float32", "string"])
def test_values_of_another_shape_are_not_taken(value, dtype):
    body = f'{{"outputs": {value}}}'.encode()
    with pytest.raises(ValueError, match="is not of shape"):
        rest_messages.outputs(body, {"x": spec(dtype, None)})


@pytest.mark.parametrize("part", ["head", "body"])
def test_an_answer_that_comes_in_drips_ends_at_the_deadline(part):
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n"
    ended = threading.Event()

    def drip(listener):
        connection, _ = listener.accept()
        with connection, contextlib.suppress(ConnectionError):
            connection.recv(65536)
            connection.sendall(head if part == "head" else head + b"\r\n")
            while not ended.wait(0.05):
                connection.sendall(b"X-A: b\r\n")

    with socket.create_server(("localhost", 0)) as listener:
        thread = threading.Thread(target=drip, args=(listener,))
        thread.start()
        port = listener.getsockname()[1]
        try:
            with RestClient(f"localhost:{port}", "m", timeout=0.5) as client:
                started = time.monotonic()
                with pytest.raises(ServingError, match="longer than 0.5 sec"):
                    client.status()
                # Of 100 headers, read one by one, each would come in time.
                assert time.monotonic() - started < 4
        finally:
            ended.set()
            thread.join()


@pytest.mark.parametrize("seconds", [float("inf"), 1e12])
def test_a_call_may_take_for_ever(clients, seconds):
    for client in clients:
        assert client.predict(["cat"], timeout=seconds)["text"] == ["chat"]
        with pytest.raises(ValueError, match="`timeout` must be a number"):
            client.predict(["cat"], timeout=float("nan"))


def test_a_connection_that_was_closed_meanwhile_is_opened_again(scripted):
    scripted.answers = [(200, STATUS)] * 3
    scripted.closes = True
    with RestClient(scripted.address, "m") as client:
        for _ in range(3):
            assert client.status()[0].version == 2


def test_retries_carry_a_call_through_a_full_queue(scripted):
    scripted.answers = [(503, b'{"error": "queue"}'), (200, STATUS)]
    with RestClient(scripted.address, "m", retries=1) as client:
        assert client.status()[0].version == 2


def hint_of(address, **options):
    with RestClient(address, "m", timeout=20, **options) as client:
        with pytest.raises(ServingError) as caught:
            client.status()
    assert caught.value.code == grpc.StatusCode.UNAVAILABLE
    return caught.value.hint


def test_a_client_says_why_it_cannot_connect(scripted):
    with socket.create_server(("localhost", 0)) as free:
        port = free.getsockname()[1]
    assert "Is a server running" in hint_of(f"http://localhost:{port}")
    assert "is unknown here" in hint_of("http://nowhere.invalid")
    secure = scripted.address.replace("http", "https")
    assert "does not speak TLS" in hint_of(secure)
    with RestClient(f"localhost:{port}", "m") as client:
        with pytest.raises(ServingError, match="became ready within 0.1 sec"):
            client.wait_until_ready(0.1)


def test_a_connection_that_is_reset_is_no_surprise():
    # What comes to this listener is reset: it closes with data unread.
    with socket.create_server(("localhost", 0)) as listener:

        def reset():
            for _ in range(2):
                listener.accept()[0].close()

        thread = threading.Thread(target=reset)
        thread.start()
        port = listener.getsockname()[1]
        for scheme in ("http", "https"):
            hint = hint_of(f"{scheme}://localhost:{port}")
            assert "takes connections and closes" in hint or "TLS" in hint
        thread.join()


def test_a_client_says_that_it_was_given_the_grpc_port(clients):
    by_grpc, _ = clients
    hint = hint_of(f"http://{by_grpc._queries.address}")
    assert "Is it the gRPC port?" in hint or "takes connections and" in hint


def test_a_server_that_went_is_told_from_one_that_is_absent(scripted):
    scripted.answers = [(200, STATUS)]
    scripted.closes = True
    with RestClient(scripted.address, "m") as client:
        client.status()
        scripted.shutdown()
        scripted.server_close()
        with pytest.raises(ServingError, match="answered before"):
            client.status()


def with_tls(server, folder, name):
    """Gives a server a certificate for this name; returns who trusts it."""
    key, certificate = self_signed(folder, name)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    return ssl.create_default_context(cafile=certificate)


def test_a_client_speaks_tls(scripted, tmp_path):
    trusted = with_tls(scripted, tmp_path, "localhost")
    scripted.answers = [(200, STATUS)]
    secure = scripted.address.replace("http", "https")
    with RestClient(secure, "m", context=trusted) as client:
        assert client.status()[0].version == 2
    assert "not signed by an authority" in hint_of(secure)
    other = secure.replace("localhost", "127.0.0.1")
    assert "for another name" in hint_of(other, context=trusted)
    plain = hint_of(scripted.address)
    assert "begins with https" in plain or "A server with TLS does so" in plain


def test_each_call_by_a_proxy_has_its_own_time(scripted, tmp_path, monkeypatch):
    trusted = with_tls(scripted, tmp_path, "model.test")
    scripted.answers, scripted.says_so = [(200, STATUS)] * 2, True
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with Proxy() as proxy:
        monkeypatch.setenv("https_proxy", proxy.url)
        address = f"https://model.test:{scripted.server_port}"
        with RestClient(address, "m", context=trusted, timeout=60) as client:
            assert client.status()[0].version == 2
            later = types.SimpleNamespace(
                monotonic=lambda: time.monotonic() + 100
            )
            monkeypatch.setattr(deadline, "time", later)
            assert client.status()[0].version == 2
        assert len(proxy.asked) == 2  # the server closed the first connection


@pytest.mark.parametrize("address", [8501, "ftp://x", "http://", "http://a:b"])
def test_an_address_that_can_be_none_is_refused(address):
    with pytest.raises(ValueError, match="the server's REST port, such as"):
        RestClient(address)
