"""Triton Inference Server hosts exports, by serving/deploy/triton/host.py.

Needs a Python with `nvidia-pytriton`, TensorFlow and tensorflow-text, which
`KERAS_ATTN_TRITON` names.
"""

import json
import os
import pathlib
import re
import socket
import subprocess
import time
import urllib.error
import urllib.request

import numpy as np
import pytest
import tensorflow as tf
from support import toys as toy_models
from support.exports import own_options
from support.serving.deployed import DEPLOY
from support.serving.helpers import free_port

pytestmark = pytest.mark.system

PYTHON = os.environ.get("KERAS_ATTN_TRITON")
CALLS = pathlib.Path(__file__).parents[1] / "support/serving/triton_calls.py"
README = DEPLOY.parent / "README.md"


class Triton:
    """An export, hosted under the name `pronounce`."""

    def __init__(self, path, log):
        self.exported = tf.saved_model.load(path)
        self.ports = [free_port() for _ in range(3)]
        http, grpc, metrics = self.ports
        self._log = log
        with log.open("w") as file:
            self.process = subprocess.Popen(
                [
                    PYTHON,
                    DEPLOY / "triton" / "host.py",
                    f"--model_base_path={path.parent}",
                    "--model_name=pronounce",
                    f"--http_port={http}",
                    f"--grpc_port={grpc}",
                    f"--metrics_port={metrics}",
                ],
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        self._wait(list(self.exported.signatures)[-1])

    def _wait(self, last):
        deadline = time.monotonic() + 180
        url = f"http://localhost:{self.ports[0]}/v2/models/{self._model(last)}"
        while True:
            try:
                urllib.request.urlopen(f"{url}/ready", timeout=5).close()
                return
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                assert self.process.poll() is None, self._log.read_text()
                assert time.monotonic() < deadline, self._log.read_text()
                time.sleep(0.2)

    def ask(self, signature, requests):
        """Sends all requests at a time; returns answers by protocol."""
        inputs = [
            {name: self._sent(rows) for name, rows in request.items()}
            for request in requests
        ]
        given = {
            "http": f"localhost:{self.ports[0]}",
            "grpc": f"localhost:{self.ports[1]}",
            "calls": [[self._model(signature), x] for x in inputs],
        }
        done = subprocess.run(
            [PYTHON, CALLS],
            input=json.dumps(given),
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def count(self, metric, signature):
        url = f"http://localhost:{self.ports[2]}/metrics"
        page = urllib.request.urlopen(url, timeout=10).read().decode()
        (found,) = re.findall(
            rf'^{metric}{{model="{self._model(signature)}",.*}} (\d+)$',
            page,
            re.MULTILINE,
        )
        return int(found)

    def alone(self, signature, request):
        """Returns the answer of the export itself."""
        made = self.exported.signatures[signature](
            **{name: tf.constant(rows) for name, rows in request.items()}
        )
        return {name: value.numpy() for name, value in made.items()}

    def close(self):
        """Ends it, as containers do, and expects that nothing is left."""
        self.process.terminate()
        assert self.process.wait(60) == 0, self._log.read_text()
        for port in self.ports:
            with socket.socket() as free:
                free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                free.bind(("127.0.0.1", port))

    @staticmethod
    def _model(signature):
        suffix = "" if signature == "serving_default" else f"_{signature}"
        return f"pronounce{suffix}"

    @staticmethod
    def _sent(rows):
        rows = np.asarray(rows)
        column = rows[:, None] if rows.ndim == 1 else rows
        if rows.dtype == object:
            return "str", [[x.decode() for x in row] for row in column]
        return rows.dtype.name, column.tolist()


@pytest.fixture(scope="module")
def start(toys, tmp_path_factory):
    if not PYTHON:
        pytest.skip("KERAS_ATTN_TRITON names no Python with nvidia-pytriton.")
    started = {}

    def made(name, max_rows=128):
        key = name, max_rows
        if key not in started:
            folder = tmp_path_factory.mktemp(name)
            toys[name].export(
                folder,
                signatures="all",
                lengths=False if name == "spectra" else None,
                max_rows=max_rows,
            )
            started[key] = Triton(folder / "1", folder / "log.txt")
        return started[key]

    yield made
    for triton in started.values():
        triton.close()


def assert_equal(answer, right):
    """Compares an answer with that of the row alone, which is less padded."""
    assert isinstance(answer, dict), answer
    assert answer.keys() == right.keys()
    for name, value in right.items():
        if value.ndim == 1:
            value = value[:, None]
        found = np.array(
            answer[name], object if value.dtype == object else None
        )
        real = tuple(slice(size) for size in value.shape)
        if value.dtype == object:
            decode = np.vectorize(bytes.decode, otypes=[object])
            np.testing.assert_array_equal(found[real], decode(value), name)
        else:
            np.testing.assert_allclose(
                found[real].astype(value.dtype), value, 1e-5, 1e-6, err_msg=name
            )
        rest = found.copy()
        rest[real] = "" if value.dtype == object else 0
        assert not np.any(rest != ("" if value.dtype == object else 0)), name


def lines(count):
    random = np.random.default_rng(5)
    return [
        "".join(random.choice(list("abcdeé?"), random.integers(0, 12)))
        for _ in range(count)
    ]


@pytest.mark.parametrize(
    "signature", ["serving_default", "nbest", "align", "score", "options"]
)
def test_requests_are_answered_as_alone(start, toys, signature):
    triton = start("pre")
    requests = []
    for number, line in enumerate(lines(48)):
        request = {"text": np.array([line.encode()], object)}
        if signature == "score":
            request["target"] = np.array(
                [b"AA B", b""][number % 2 :][:1], object
            )
        if signature == "options":
            request = own_options(toys["pre"], [line])
        requests.append(request)
    for answers in triton.ask(signature, requests).values():
        for request, answer in zip(requests, answers, strict=True):
            assert_equal(answer, triton.alone(signature, request))
    asked = triton.count("nv_inference_request_success", signature)
    assert asked == 96
    assert triton.count("nv_inference_exec_count", signature) < asked  # merged


def test_rows_of_one_request_are_answered(start):
    triton = start("pre")
    texts = np.array([x.encode() for x in toy_models.LINES], object)
    right = triton.alone("nbest", {"text": texts})
    for (answer,) in triton.ask("nbest", [{"text": texts}]).values():
        assert_equal(answer, right)


def test_features_are_answered(start):
    triton = start("spectra")
    frames = toy_models.sources("spectra")
    requests = [{"frames": frames[:1]}, {"frames": frames[1:]}]
    for answers in triton.ask("align", requests).values():
        for request, answer in zip(requests, answers, strict=True):
            assert_equal(answer, triton.alone("align", request))


def test_a_bad_row_fails_alone(start):
    triton = start("pre")
    requests = [
        {"ids": np.array([ids], "int32"), "lengths": np.array([n], "int32")}
        for ids, n in [([1, 2, 3], 3), ([1, 2, 3], 9), ([2, 2, 2], 2)]
    ]
    for answers in triton.ask("ids", requests).values():
        errors = [x["error"][0][0] for x in answers]
        assert not errors[0] and not errors[2]
        assert errors[1].startswith("`lengths` must be between 0 and")


def test_too_many_rows_are_refused(start):
    triton = start("pre")
    texts = np.array([b"abc"] * 129, object)
    for (answer,) in triton.ask("nbest", [{"text": texts}]).values():
        assert "128" in answer


def test_requests_that_are_too_large_together_are_answered(start):
    triton = start("pre", max_rows=16)
    texts = [x.encode() for x in lines(64)]
    requests = [
        {"text": np.array(texts[i : i + 8], object)} for i in range(0, 64, 8)
    ]
    for answers in triton.ask("serving_default", requests).values():
        for request, answer in zip(requests, answers, strict=True):
            assert_equal(answer, triton.alone("serving_default", request))
    too_many = {"text": np.array(texts[:17], object)}
    for (answer,) in triton.ask("serving_default", [too_many]).values():
        assert "may have at most 16 rows. Received:" in answer
        assert "[17]" in answer


def ended(*arguments):
    """Returns what the program writes when it refuses to start."""
    if not PYTHON:
        pytest.skip("KERAS_ATTN_TRITON names no Python with nvidia-pytriton.")
    done = subprocess.run(
        [PYTHON, DEPLOY / "triton" / "host.py", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    return done.stderr


def test_a_directory_without_a_version_is_refused(tmp_path):
    (tmp_path / "1").mkdir()
    (tmp_path / "2").touch()
    message = ended(f"--model_base_path={tmp_path}", "--model_name=pronounce")
    assert "must have a version: a directory named by a number" in message
    assert "Traceback" not in message


def test_a_port_in_use_is_named(toys, tmp_path):
    toys["pre"].export(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        message = ended(
            f"--model_base_path={tmp_path}",
            "--model_name=pronounce",
            f"--grpc_port={port}",
            f"--http_port={free_port()}",
        )
    assert f"--grpc_port={port} cannot be used: " in message
    assert "Traceback" not in message


def test_the_readmes_call_is_answered(start):
    (block,) = [
        x
        for x in re.findall(
            r"```python\n(.*?)```", README.read_text(), re.DOTALL
        )
        if "tritonclient" in x
    ]
    triton = start("pre")
    block = block.replace("localhost:8001", f"localhost:{triton.ports[1]}")
    done = subprocess.run(
        [PYTHON, "-c", block], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    request = {"text": np.array([b"attention", b"memory"], object)}
    right = triton.alone("serving_default", request)
    assert done.stdout.strip() == repr(
        [x.decode() for x in right["text"].tolist()]
    )
