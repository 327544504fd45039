"""Decoded text and heat maps as the real TensorBoard shows them."""

import os
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest
from support import browser as browsers

from keras_attn.training.callbacks.tensorboard import Writer
from keras_attn.viewing.plots import plot_attention

pytestmark = pytest.mark.system

RESULT = SimpleNamespace(
    alignment=[[0.9, 0.1], [0.2, 0.8]],
    source_tokens=["a", "b"],
    tokens=["A", "B"],
)
ROWS = [
    ("a_b *c* `d` | [e](f)", "القطة <b>mat</b> &amp; 1. #x", "\\n {y} ~z~"),
    ("second", "two", "three"),
]


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """Runs TensorBoard on a free port, over what an epoch wrote."""
    pytest.importorskip("tensorboard", reason="needs the extra `browser`")
    folder = tmp_path_factory.mktemp("logs")
    figures = {1: plot_attention(RESULT), 2: plot_attention(RESULT)}
    Writer(folder).write(1, ROWS, figures)
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", folder]
    with subprocess.Popen(
        [*command, "--port=0", "--host=localhost", "--load_fast=false"],
        stderr=subprocess.PIPE,
        text=True,
    ) as program:
        try:
            found = None
            while found is None:
                line = program.stderr.readline()
                assert line, "TensorBoard did not start"
                found = re.search(r"at (http://\S+)", line)
            yield found[1]
        finally:
            program.terminate()


@pytest.fixture
def page(address):
    for browser in browsers.driven():
        yield browser.new_page(viewport={"width": 1440, "height": 900})


def photograph(page, name):
    if folder := os.environ.get("SCREENSHOTS"):
        page.screenshot(path=f"{folder}/{name}.png")


def test_texts_are_shown_as_they_are_and_not_as_markdown(page, address):
    page.goto(f"{address}#text")
    page.get_by_text("second", exact=True).wait_for()
    cells = page.locator("td:not(:has(td))").all_inner_texts()
    assert cells == [text for row in ROWS for text in row]
    photograph(page, "tensorboard-text")


def test_a_picture_is_shown_under_its_source(page, address):
    page.goto(f"{address}#images")
    page.get_by_text("2. second").wait_for()
    assert page.get_by_text("1. a_b *c* `d` | [e](f)").count()
    pictures = page.locator("#main-image-container img")
    pictures.nth(1).wait_for()
    assert pictures.count() == 2
    page.wait_for_function(
        "x => x.naturalWidth > 200", arg=pictures.first.element_handle()
    )
    photograph(page, "tensorboard-images")
