"""Every page holds what it says: its snippets run as written, links lead on.

A snippet that goes on with names of the README's tour is given these names.
A block of `text` right after a snippet is what that prints. The Python of
`serving/README.md` runs in `tests/serving`.
"""

import ast
import builtins
import codeop
import contextlib
import io
import itertools
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tomllib
from typing import NamedTuple

import pytest
import soundfile
from support.sounds import sounds

ROOT = pathlib.Path(__file__).parents[2]
FOLDERS = "keras_attn", "examples", "tests/benchmarks", "serving"
README = ROOT / "README.md"
PAGES = [README, *sorted(x for y in FOLDERS for x in (ROOT / y).rglob("*.md"))]
ADDRESS = "localhost:8500"  # what pages say; a free port stands in

pytestmark = pytest.mark.filterwarnings(
    "ignore:`shuffle=True` was passed:UserWarning"
)


class Snippet(NamedTuple):
    """A block of code, and what the page says that it prints."""

    name: str  # page and line
    code: str
    printed: str | None


def named(page):
    return page.relative_to(ROOT).as_posix()


def text_of(page):
    return page.read_text(encoding="utf-8")


def snippets(page, language):
    found, text = [], text_of(page)
    pattern = rf"^```{language}\n(.*?)^```$(?:\n+```text\n(.*?)^```$)?"
    for match in re.finditer(pattern, text, re.M | re.S):
        line = text.count("\n", 0, match.start()) + 1
        found.append(Snippet(f"{named(page)}:{line}", *match.groups()))
    return found


def prose(page):
    """A page without its code."""
    text = re.sub(r"^```.*?^```$", "", text_of(page), flags=re.M | re.S)
    return re.sub(r"`[^`\n]*`", "`code`", text)


def free_names(code):
    """The names that a snippet reads and does not make itself."""
    read, made = set(), set(dir(builtins))
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Name):
            reads = isinstance(node.ctx, ast.Load)
            (read if reads else made).add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            made.add(node.name)
        elif isinstance(node, ast.arg):
            made.add(node.arg)
        elif isinstance(node, ast.ExceptHandler):
            made.add(node.name)
        elif isinstance(node, ast.alias):
            made.add((node.asname or node.name).split(".")[0])
    return read - made


def is_tour(snippet):
    return "model.fit(" in snippet.code


def is_query(snippet):
    return ADDRESS in snippet.code


TOUR = next(x for x in snippets(README, "python") if is_tour(x))
OTHERS = [
    snippet
    for page in PAGES
    if page != ROOT / "serving" / "README.md"
    for snippet in snippets(page, "python")
    if snippet != TOUR
]
QUERIES = [x for x in OTHERS if is_query(x)]
WITH_NAMES = [x for x in OTHERS if free_names(x.code) and not is_query(x)]
ALONE = [x for x in OTHERS if x not in QUERIES and x not in WITH_NAMES]
COMMANDS = [x for page in PAGES for x in snippets(page, "sh")]


def named_snippets(found):
    """Returns cases; whole models of others are left to `make test-all`."""
    slow = "keras_attn/models/", "keras_attn/training/"
    cases = [
        pytest.param(x, marks=[pytest.mark.full] * x.name.startswith(slow))
        for x in found
    ]
    return {"argvalues": cases, "ids": [x.name for x in found]}


def run(snippet, names, code=None):
    exec(compile(code or snippet.code, snippet.name, "exec"), names)


def require_printed(snippet, printed):
    if snippet.printed is not None:
        assert printed.split() == snippet.printed.split()


@pytest.fixture(scope="module")
def lines():
    """A small real-looking task: spell a word, letter by letter."""
    words = ["attention", "nation", "tent", "note", "ten", "antenna"] * 8
    sounds = {"a": "AH", "e": "EH"}
    return words, [
        " ".join(sounds.get(letter, letter.upper()) for letter in word)
        for word in words
    ]


@pytest.fixture(scope="module")
def exported(lines, tmp_path_factory):
    """Runs the tour in a directory of its own and returns that."""
    directory = tmp_path_factory.mktemp("tour")
    names = {"words": lines[0], "phones": lines[1]}
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(directory)
        with contextlib.redirect_stdout(printed):
            run(TOUR, names)
    return directory, names, printed.getvalue()


@pytest.fixture(scope="module")
def address(exported):
    """Starts the server by the README's command, on a free port."""
    (command,) = [
        x.code
        for x in snippets(README, "sh")
        if "-m keras_attn_serving" in x.code
    ]
    python, *arguments = shlex.split(command)
    assert python == "python" and arguments[-1] == "--port=8500"
    environment = {k: v for k, v in os.environ.items() if k[:3] != "TF_"}
    with (exported[0] / "errors.txt").open("w") as errors:
        server = subprocess.Popen(
            [sys.executable, *arguments[:-1], "--port=0"],
            cwd=exported[0],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=environment,
        )
    with server:
        ready = server.stdout.readline()
        assert ready, (exported[0] / "errors.txt").read_text()
        yield ready.split()[-1]
        server.terminate()


def test_the_tour_trains_decodes_draws_and_exports(exported):
    directory, names, _ = exported
    result = names["result"]
    assert len(result.text) == len(result.scores) == 1
    assert len(result.alternatives[0]) == 2
    assert result.alignments[0].shape[1] == len("attention") + 1
    assert (directory / "attention.png").stat().st_size > 1000
    assert (directory / "models/pronounce/1/saved_model.pb").exists()


def test_the_tour_prints_the_score_and_the_text_of_each_guess(exported):
    _, names, printed = exported
    best = names["result"][0]
    guesses = [best, *best.alternatives]
    assert len(guesses) == 3
    assert printed.splitlines()[-3:] == [
        f"{x.score:.2f} {x.text}" for x in guesses
    ]
    assert "/step - loss" in printed.splitlines()[-4]  # of `fit`


def test_the_model_of_the_tour_takes_fewer_than_30_lines():
    model = TOUR.code[TOUR.code.index("source = keras.Input") :]
    model = model[: model.index("model.compile")]
    assert len(model.strip().splitlines()) < 30


def test_a_layer_takes_five_lines_on_the_first_screen():
    layer = snippets(README, "python")[0]
    assert len([x for x in layer.code.splitlines() if x]) <= 9
    assert layer.printed
    before = text_of(README)[: text_of(README).index(layer.code)]
    assert before.count("\n") < 25


def test_there_are_queries_by_our_client_and_by_tensorflows_own_stub():
    assert len(QUERIES) == 2
    assert "tensorflow_serving" in QUERIES[1].code


@pytest.mark.sample_cases(1)
@pytest.mark.parametrize("query", **named_snippets(QUERIES))
def test_a_client_gets_the_translators_answer(query, exported, address, capsys):
    run(query, {}, query.code.replace(ADDRESS, address))
    assert exported[1]["result"].text[0] in capsys.readouterr().out


def test_the_server_writes_only_its_own_lines(exported, address):
    lines = (exported[0] / "errors.txt").read_text().splitlines()
    assert lines and [x for x in lines if " level=INFO " not in x] == []


def test_the_tour_can_be_pasted_at_pythons_prompt():
    code = codeop.CommandCompiler()
    lines: list[str] = []
    for line in TOUR.code.splitlines():
        lines.append(line)
        if code("\n".join(lines)) is not None:  # it raises SyntaxError
            lines.clear()
    assert lines == []


@pytest.mark.full
@pytest.mark.sample_cases(1)
@pytest.mark.parametrize("snippet", **named_snippets(WITH_NAMES))
def test_a_snippet_goes_on_with_the_tour(
    snippet, exported, capsys, monkeypatch
):
    directory, names, _ = exported
    assert free_names(snippet.code) <= names.keys(), "neither its own nor ours"
    monkeypatch.chdir(directory)
    run(snippet, dict(names))
    printed = capsys.readouterr().out
    require_printed(snippet, printed)
    if ".stream(" in snippet.code:
        assert len(printed.splitlines()) > 2
    if "result.truncated" in snippet.code:
        truncated, unknown, *_ = printed.splitlines()
        assert truncated == "[False, True, False]"
        assert unknown == "[0, 0, 2]"  # the words here have no v either


# A page on models of others says that these warnings come.
@pytest.mark.filterwarnings("ignore:At each step .* read")
@pytest.mark.filterwarnings("ignore:Padding changes")
@pytest.mark.parametrize("snippet", **named_snippets(ALONE))
def test_a_snippet_runs_alone(snippet, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)  # not in the checkout, and yet:
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    # In the place of a download, a tiny model of random weights
    marian = ROOT / "tests" / "fixtures" / "hugging_face" / "marian"
    (tmp_path / "opus-mt-en-fr").symlink_to(marian)
    whisper = ROOT / "tests" / "fixtures" / "whisper" / "languages"
    (tmp_path / "whisper-tiny").symlink_to(whisper)
    soundfile.write(tmp_path / "speech.wav", sounds()[1], 16_000)
    run(snippet, {"__name__": "snippet"})
    require_printed(snippet, capsys.readouterr().out)


def test_every_python_snippet_is_run_by_one_of_the_tests_above():
    text = "".join(map(text_of, PAGES))
    served = len(snippets(ROOT / "serving" / "README.md", "python"))
    count = len([TOUR, *QUERIES, *WITH_NAMES, *ALONE]) + served
    assert len(re.findall(r"^```python", text, re.M)) == count
    assert WITH_NAMES and ALONE


def test_commands_name_targets_programs_and_extras_that_exist():
    makefile = text_of(ROOT / "Makefile")
    said = "\n".join(x.code for x in COMMANDS)
    targets = set(re.findall(r"^make ([a-z-]+)", said, re.M))
    assert {"demo", "test"} <= targets
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.M), target
    for program in re.findall(r"\bpython (\S+\.py)", said):
        assert (ROOT / program).is_file(), program
    for project, extras in re.findall(r'(\.[\w/]*)\[([\w,]+)\]["\']', said):
        file = ROOT / project / "pyproject.toml"
        known = tomllib.loads(text_of(file))["project"]
        assert set(extras.split(",")) <= known["optional-dependencies"].keys()
    assert '".[plot]"' in said and '"./serving[server]"' in said


def test_contributing_says_how_to_run_one_test():
    page = ROOT / ".github" / "CONTRIBUTING.md"
    said = "\n".join(x.code for x in snippets(page, "sh"))
    found = re.findall(r"-m pytest (\S+\.py) -k (\w+)$", said, re.M)
    assert found
    for file, words in found:
        tests = re.findall(r"^def (test_\w+)", text_of(ROOT / file), re.M)
        assert len([x for x in tests if words in x]) == 1


def anchors(page):
    """The anchors that headings have, as GitHub makes them."""
    text = re.sub(r"^```.*?^```$", "", text_of(page), flags=re.M | re.S)
    headings = re.findall(r"^#+ (.*)$", text, re.M)
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in headings
    }


def links(page):
    """The relative links of a page: files, and anchors or ""."""
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if not link.startswith(("http:", "https:")):
            path, _, anchor = link.partition("#")
            file = (page.parent / path).resolve() if path else page
            yield link, file, anchor


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_link_leads_to_a_file_and_a_heading(page):
    for link, file, anchor in links(page):
        assert file.exists(), link
        assert not anchor or anchor in anchors(file), link


def test_every_page_can_be_reached_from_the_readme():
    found, new = set(), {README}
    while new:
        found |= new
        pages = {file for page in new for _, file, _ in links(page)}
        new = (pages & set(PAGES)) - found
    assert found == set(PAGES)


def test_the_readme_is_a_page_that_one_reads():
    assert len(text_of(README).splitlines()) <= 250


def test_the_roads_from_elsewhere_are_short():
    roads = [x for x in PAGES if x.name.startswith("from_")]
    assert len(roads) == 3
    for page in roads:
        text = text_of(page)
        assert len(text.splitlines()) <= 150, page
        assert "## The steps" in text and "## What is missing" in text, page


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_lines_are_short_outside_of_tables(page):
    for number, line in enumerate(text_of(page).splitlines(), 1):
        short = len(re.sub(r"\(?https?://\S+", "", line)) <= 110
        assert short or line.startswith("|"), f"{named(page)}:{number}"


def test_no_paragraph_stands_twice():
    paragraphs = [
        (" ".join(x.split()), named(page))
        for page in PAGES
        for x in re.split(r"\n\s*\n", prose(page))
    ]
    long = sorted(x for x in paragraphs if len(x[0]) > 120)
    for (one, page), (other, also) in itertools.pairwise(long):
        assert one != other, (page, also)
