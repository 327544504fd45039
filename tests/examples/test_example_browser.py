"""The page that runs an ONNX export in a browser."""

import functools
import http.server
import json
import os
import pathlib
import shutil
import subprocess
import threading

import pytest
from support import browser as browsers
from support import splitters
from support import toys as toy_models
from support.programs import PROGRAM
from support.programs import load

from keras_attn import Text
from keras_attn.export.onnx.vocabularies import VocabularyFile

BROWSER = PROGRAM.with_name("browser.py")
PAGE = BROWSER.parent / "common" / "browser"
TEXTS = {
    "characters": toy_models.SOURCE,
    "lower": Text("abcé日 ß'", split="characters", lowercase=True),
    "cut": Text(
        "abc日 ", split="characters", normalization="NFKC", max_length=7
    ),
    "words": Text.from_lines(splitters.LINES, "whitespace"),
}
READ = """
import { readFileSync } from "node:fs";
import { Text } from "./text.js";
const content = JSON.parse(readFileSync("source.json"));
const [lines, rows] = JSON.parse(readFileSync("given.json"));
const text = new Text(content);
const ids = lines.map((line) => text.sourceIds(line));
console.log(JSON.stringify([ids, rows.map((row) => text.text(row))]));
"""


@pytest.mark.system
@pytest.mark.parametrize("name", TEXTS)
def test_texts_are_split_and_joined_as_in_tensorflow(name, tmp_path):
    node = shutil.which("node") or pytest.skip("needs Node.js")
    text = TEXTS[name]
    VocabularyFile(text, "source.json", "ids").write(tmp_path)
    lines = [*splitters.LINES, *splitters.fuzz(1000)]
    ids = text.source_ids(lines).numpy()
    given = json.dumps([lines, ids.tolist()])
    (tmp_path / "given.json").write_text(given, "utf-8")
    shutil.copy(PAGE / "text.js", tmp_path)
    (tmp_path / "read.mjs").write_text(READ)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    done = subprocess.run(
        [node, "read.mjs"], cwd=tmp_path, check=True, capture_output=True
    )
    found, texts = json.loads(done.stdout)
    for line, row, expected in zip(lines, found, ids, strict=True):
        assert row == expected[: len(row)].tolist(), line
        assert (expected[len(row) :] == text.special.pad).all(), line
    assert texts == [x.decode() for x in text.strings(ids).numpy()]


@pytest.fixture(scope="module")
def page(toys, tmp_path_factory):
    folder = tmp_path_factory.mktemp("browser")
    toys["pre"].save(folder / "translator")
    options = [str(folder / "translator"), "--output", str(folder / "page")]
    load(BROWSER).main(options)
    load(BROWSER).main(options)  # over what is there
    return folder / "page"


@pytest.mark.full
def test_the_folder_has_the_page_and_the_export(page):
    assert sorted(x.name for x in page.iterdir()) == [
        "index.html",
        "model",
        "model.js",
        "text.js",
    ]
    assert (page / "model" / "model.onnx").is_file()
    html = (page / "index.html").read_text("utf-8")
    assert "http://" not in html and "https://" not in html


def test_the_page_is_small():
    for file in (BROWSER, *PAGE.iterdir()):
        assert len(file.read_text("utf-8").splitlines()) <= 100, file


@pytest.mark.system
def test_a_browser_translates(page, toys):
    """With `NODE_MODULES`, a folder into which npm put onnxruntime-web."""
    modules = pathlib.Path(os.environ.get("NODE_MODULES", "none"))
    if not (modules / "onnxruntime-web").is_dir():
        pytest.skip("needs NODE_MODULES=folder with onnxruntime-web")
    (page / "node_modules").symlink_to(modules.resolve())
    handler = functools.partial(
        http.server.SimpleHTTPRequestHandler, directory=str(page)
    )
    server = http.server.ThreadingHTTPServer(("localhost", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        for browser in browsers.driven():
            _translate(browser.new_page(), server.server_port, toys["pre"])
    finally:
        server.shutdown()
        server.server_close()


def _translate(tab, port, translator):
    tab.goto(f"http://localhost:{port}/")
    ask = tab.get_by_role("button", name="Ask")
    tab.get_by_text("The model is here.").wait_for()
    assert browsers.problems(tab) == []
    for row, line in zip(
        translator(toy_models.LINES), toy_models.LINES, strict=True
    ):
        if not line:  # the field needs a text
            continue
        tab.get_by_role("status").evaluate("x => x.textContent = ''")
        tab.get_by_label("Text").fill(line)
        ask.click()
        tab.get_by_text(" ms").wait_for()
        items = tab.get_by_role("listitem").all_inner_texts()
        every = [row, *row.alternatives]
        assert items == [f"{x.text} {x.score:.3f}".strip() for x in every]
    assert browsers.problems(tab) == []
    tab.set_viewport_size({"width": 360, "height": 640})  # a phone's
    wide = "document.documentElement.scrollWidth"
    assert tab.evaluate(wide) <= 360
    if folder := os.environ.get("SCREENSHOTS"):
        tab.screenshot(path=f"{folder}/browser.png")
    # All of a thousand texts at once, by the model itself
    lines = [x for x in splitters.fuzz(1000) if x][:-1]
    found = tab.evaluate(
        """async (lines) => {
            const runtime = "./node_modules/onnxruntime-web/dist/";
            const ort = await import(runtime + "ort.wasm.min.mjs");
            const { Model } = await import("./model.js");
            const model = await Model.load(ort, "./model");
            const texts = [];
            for (const line of lines)
                texts.push((await model.translate(line))[0].text);
            return texts;
        }""",
        lines,
    )
    assert found == translator(lines).text
