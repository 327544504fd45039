"""serving/deploy/verify.sh, against the development server."""

import http.server
import os
import subprocess
import sys
import threading

import pytest
from support.serving.deployed import DEPLOY

PAGES = {
    "/v1/models/toy/metadata": b'{"metadata": {"signature_def": {}}}',
    "/monitoring/prometheus/metrics": (
        b"# TYPE :tensorflow:serving:request_count counter\n"
        b':tensorflow:serving:request_count{model_name="toy",status="OK"} 1\n'
    ),
}


class Pages(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path in PAGES else 404)
        self.end_headers()
        self.wfile.write(PAGES.get(self.path, b""))

    def log_message(self, *args):
        pass


@pytest.fixture
def rest():
    """The address of a stand-in for TensorFlow Serving's REST port."""
    with http.server.HTTPServer(("localhost", 0), Pages) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"localhost:{server.server_port}"
        server.shutdown()


def verify(*arguments, **environment):
    given = {"PYTHON": sys.executable, "DURATION": "0.5"}
    return subprocess.run(
        [DEPLOY / "verify.sh", *arguments],
        env=os.environ | given | environment,
        capture_output=True,
        text=True,
    )


@pytest.mark.full
def test_a_server_is_tried_and_a_table_printed(ours, rest):
    done = verify(
        ours, rest, SERVER="ours", PYTEST_ADDOPTS="-k test_predict.py"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for row in (
        "| server | ours |",
        "| model | toy, version 3 AVAILABLE |",
        "| ready by REST | yes |",
        "| `:tensorflow:serving:request_count` | yes |",
        "| `:tensorflow:serving:request_latency_bucket` | no |",
        "| clients | texts/s | p50, ms | p99, ms | refused |",
    ):
        assert row in done.stdout.splitlines()
    (tests,) = [x for x in done.stdout.splitlines() if "protocol tests" in x]
    assert " passed" in tests
    assert "\n| 64 | " in done.stdout


@pytest.mark.full
def test_a_test_that_fails_is_named(ours, tmp_path):
    (tmp_path / "failing.py").write_text(
        "import pytest\n"
        "@pytest.fixture(autouse=True)\n"
        "def failing():\n"
        "    assert False\n"
    )
    done = verify(
        ours,
        PYTEST_ADDOPTS="-k test_client_returns_texts -p failing",
        PYTHONPATH=f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}",
    )
    assert done.returncode == 1
    _, _, failed = done.stdout.partition("\nFailed:\n")
    assert "test_client_returns_texts" in failed


@pytest.mark.full
def test_the_tests_can_be_left_out(ours):
    done = verify(ours, TESTS="no")
    assert done.returncode == 0
    assert "| protocol tests | left out |" in done.stdout


def test_an_address_is_needed():
    done = verify()
    assert done.returncode == 2
    assert "verify.sh ADDRESS" in done.stderr
