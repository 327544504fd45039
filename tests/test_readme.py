"""Every snippet of the README runs, in order, as written."""

import pathlib
import re
import shlex
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
ADDRESS = "localhost:8500"  # what the README says; a free port stands in
USES_THE_TOUR = "pronounce.score("  # goes on with the names of the tour

pytestmark = pytest.mark.filterwarnings(
    "ignore:`shuffle=True` was passed:UserWarning"
)


def snippets(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.M | re.S)


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
    directory = tmp_path_factory.mktemp("readme")
    tour = next(code for code in snippets("python") if "model.fit" in code)
    names = {"words": lines[0], "phones": lines[1]}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(directory)
        exec(compile(tour, "README.md", "exec"), names)
    return directory, names


@pytest.fixture(scope="module")
def address(exported):
    """Starts the server by the README's command, on a free port."""
    (command,) = [x for x in snippets("sh") if "keras_attn_serving --" in x]
    python, *arguments = shlex.split(command)
    assert python == "python" and arguments[-1] == "--port=8500"
    server = subprocess.Popen(
        [sys.executable, *arguments[:-1], "--port=0"],
        cwd=exported[0],
        stdout=subprocess.PIPE,
        text=True,
    )
    with server:
        ready = server.stdout.readline()
        assert ready, "the server did not start"
        yield ready.split()[-1]
        server.terminate()


def test_the_tour_trains_decodes_draws_and_exports(exported):
    directory, names = exported
    result = names["result"]
    assert len(result.text) == len(result.scores) == 1
    assert len(result.alternatives[0]) == 2
    assert result.alignments[0].shape[1] == len("attention") + 1
    assert (directory / "attention.png").stat().st_size > 1000
    assert (directory / "models/pronounce/1/saved_model.pb").exists()


def test_the_model_of_the_tour_takes_fewer_than_30_lines():
    tour = next(code for code in snippets("python") if "model.fit" in code)
    model = tour[tour.index("source = keras.Input") :]
    model = model[: model.index("model.compile")]
    assert len(model.strip().splitlines()) < 30


def test_the_clients_of_the_readme_get_the_translators_answer(
    exported, address, capsys
):
    _, names = exported
    queries = [code for code in snippets("python") if ADDRESS in code]
    assert len(queries) == 2  # ours, and TensorFlow's own stub
    for code in queries:
        code = code.replace(ADDRESS, address)
        exec(compile(code, "README.md", "exec"), {})
        assert names["result"].text[0] in capsys.readouterr().out


def test_the_tour_s_translator_does_what_the_readme_goes_on_to_say(
    exported, capsys
):
    _, names = exported
    on_scores, on_text = [x for x in snippets("python") if USES_THE_TOUR in x]
    exec(compile(on_scores, "README.md", "exec"), dict(names))
    assert len(capsys.readouterr().out.splitlines()) > 2
    exec(compile(on_text, "README.md", "exec"), dict(names))
    truncated, unknown, *_ = capsys.readouterr().out.splitlines()
    assert truncated == "[False, True, False]"
    assert unknown == "[0, 0, 2]"  # the words here have no v either


def test_the_other_python_snippets_run():
    done = ("model.fit", ADDRESS, USES_THE_TOUR)
    others = [
        code
        for code in snippets("python")
        if not any(mark in code for mark in done)
    ]
    assert others
    for code in others:
        exec(compile(code, "README.md", "exec"), {})


def test_the_commands_name_targets_and_extras_that_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"make ([a-z-]+)", " ".join(snippets("sh"))))
    assert targets == {"demo", "test"}
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.M)
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert re.search(r"^plot = ", project, re.M)


def test_every_file_that_the_readme_links_to_exists():
    for link in re.findall(r"\]\(([^)#]+)\)", README):
        if not link.startswith("http"):
            assert (ROOT / link).exists(), link
