"""The live page, asked by hand and in a browser."""

import http.client
import importlib.util
import os
import pathlib
import subprocess
import sys
import threading
import urllib.parse
from http.server import ThreadingHTTPServer

import grpc
import numpy as np
import pytest
from keras_attn_serving import ServingError
from keras_attn_serving.wire.results import Alignment
from support import browser as browsers

ROOT = pathlib.Path(__file__).parents[2]
PROGRAM = ROOT / "examples" / "live.py"
HOSTILE = "</script><b onclick=alert(1)>\" '&lt;"


@pytest.fixture(scope="module")
def live():
    spec = importlib.util.spec_from_file_location("live", PROGRAM)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Fake:
    """Answers as a client does."""

    def align(self, texts, terms=None):
        if texts == ["away"]:
            raise ServingError(grpc.StatusCode.UNAVAILABLE, "no <server> there")
        missing = [] if terms is None else ["K <K>"]
        return [
            Alignment(
                *("B", -0.5, [*texts, "</s>"], ["B"], np.ones((1, 2))),
                missing=missing,
            )
        ]

    def translate(self, texts, terms):
        assert [x.strip() for x in terms[0]] == ["B", "K K"]
        return {"texts": [["B", "AA"]], "scores": np.array([[-0.7, -1.0]])}

    def predict(self, texts, signature):
        assert signature == "nbest"
        scores = [[-0.5, -1.0, -np.inf]]
        return {"texts": [["B", "K", ""]], "scores": np.array(scores)}


def test_an_answer_has_the_alternatives_that_there_are(live):
    found = live.ask(Fake(), "a", [])
    assert (found.text, found.score) == ("B", -0.5)
    assert [x.text for x in found.alternatives] == ["K"]


@pytest.fixture
def port(live):
    made = live.handler(Fake(), "toy")
    with ThreadingHTTPServer(("localhost", 0), made) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    "path, status, expected",
    [
        ("/", 200, 'name="text" value=""'),
        ("/?text=%20", 200, '{"results":[]}'),
        ("/?text=a", 200, '"text":"K"'),
        ("/?text=a&terms=B;%20K%20K%20;", 200, '"text":"AA"'),
        ("/?text=a&terms=B;K%20K", 200, "Without: K &lt;K&gt;"),
        ("/?terms=B", 200, 'name="terms" value="B"'),
        ("/?text=away", 200, "no &lt;server&gt; there"),
        (f"/?text={urllib.parse.quote(HOSTILE)}", 200, "\\u003c/script"),
        ("/other", 404, "404"),
    ],
)
def test_the_page_answers(port, path, status, expected):
    connection = http.client.HTTPConnection("localhost", port, timeout=60)
    connection.request("GET", path)
    response = connection.getresponse()
    body = response.read().decode()
    connection.close()
    assert response.status == status
    assert expected in body
    assert HOSTILE not in body


@pytest.fixture(scope="module")
def server(toys, tmp_path_factory):
    """The development server's address for REST."""
    from keras_attn_serving.server import Rest
    from keras_attn_serving.server import Server

    folder = tmp_path_factory.mktemp("models") / "toy"
    toys["pre"].export(folder, signatures=["terms"])
    with Server(folder, "toy", port=0, rest=Rest()) as made:
        yield f"http://{made.rest_address}"


@pytest.mark.system
def test_a_browser_shows_what_the_real_server_answers(server, toys, tmp_path):
    command = [sys.executable, PROGRAM, "toy", "--server", server, "--port=0"]
    paths = [ROOT, ROOT / "serving", os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths))}
    expected = toys["pre"](["abc"])[0]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, text=True
    ) as program:
        try:
            address = program.stdout.readline().strip()
            assert address, "the program did not start"
            for browser in browsers.driven():
                page = browser.new_page()
                page.goto(address)
                assert browsers.problems(page) == []
                page.get_by_label("Text").fill("abc")
                page.get_by_role("button", name="Ask").click()
                cards = page.get_by_role("region")
                cards.first.wait_for()
                heads = cards.get_by_role("heading").all_inner_texts()
                others = [x.text for x in expected.alternatives]
                assert heads == [
                    f"{number}. {text}"
                    for number, text in enumerate([expected.text, *others], 1)
                ]
                shares = page.locator("[aria-label='Source tokens'] .percent")
                found = [x.rstrip(" %") for x in shares.all_inner_texts()]
                assert found == [
                    f"{x * 100:.0f}" if x >= 0.005 else "<1"
                    for x in expected.alignment[0]
                ]
                assert browsers.problems(page) == []
                folder = os.environ.get("SCREENSHOTS")
                if folder:
                    page.screenshot(path=f"{folder}/live.png")
                page.get_by_label("Terms").fill("B K; ñ")
                page.get_by_role("button", name="Ask").click()
                page.get_by_role("region").first.wait_for()
                (first, *_) = cards.get_by_role("heading").all_inner_texts()
                assert "B K" in first and "ñ" in first
                assert page.get_by_label("Terms").input_value() == "B K; ñ"
                assert browsers.problems(page) == []
                if folder:
                    page.screenshot(path=f"{folder}/terms.png")
                page.get_by_label("Terms").fill("never")
                page.get_by_role("button", name="Ask").click()
                page.get_by_text("the target text knows").wait_for()
                page.get_by_label("Terms").fill("")
                page.get_by_label("Text").fill(HOSTILE)
                page.keyboard.press("Enter")
                page.get_by_text("→").wait_for()
                assert page.get_by_label("Text").input_value() == HOSTILE
        finally:
            program.terminate()
