"""The command `keras-attn`: lines in, lines out, and its exit statuses."""

import io
import json
import os
import pathlib
import pty
import re
import shlex
import subprocess
import sys
import tomllib

import pytest
from keras_attn_serving.command import cli
from keras_attn_serving.command import flags
from keras_attn_serving.command import printed_rows as rows
from keras_attn_serving.command.progress import Progress
from keras_attn_serving.server import Rest
from keras_attn_serving.server import Server
from support.serving import toy_model

README = pathlib.Path(__file__).parents[2] / "serving" / "README.md"


@pytest.fixture(scope="module")
def server(toy_path):
    with Server(toy_path.parent, toy_model.NAME, port=0, rest=Rest()) as server:
        yield server


@pytest.fixture
def query(server, capsys, monkeypatch):
    """Runs `keras-attn query`; returns its status, output and errors."""

    def run(*arguments, lines=None, address=server.address):
        if lines is not None:
            given = io.TextIOWrapper(io.BytesIO(lines))
            monkeypatch.setattr(sys, "stdin", given)
        flags = "--address", address, "--model", toy_model.NAME
        status = cli.main(["query", *flags, *arguments])
        return status, *capsys.readouterr()

    return run


def test_each_text_is_answered_by_a_line(query):
    assert query("hello world", "cat") == (0, "bonjour monde\nchat\n", "")


def test_standard_input_is_read_line_by_line(query):
    lines = b"hello\r\n\ncat\n\xff world"  # the last one without an end
    expected = 0, "bonjour\n\nchat\n? monde\n", ""
    assert query(lines=lines) == expected
    for size in ("1", "3"):
        assert query("--batch_size", size, lines=lines) == expected


def test_more_lines_than_a_request_may_have_are_answered_in_order(query):
    words = ["hello", "world", "cat"] * 100
    given = "".join(f"{x}\n" for x in words).encode()
    status, out, _ = query("--batch_size", "1000", lines=given)
    assert status == 0
    assert out.split() == [toy_model.WORDS[x] for x in words]


def test_json_has_all_outputs_of_a_text_in_a_line(query):
    status, out, _ = query("--json", "hello world", "日本")
    assert status == 0
    assert [json.loads(line) for line in out.splitlines()] == [
        {"text": "bonjour monde", "score": -1.0},
        {"text": "?", "score": -0.5},
    ]
    _, out, _ = query("--json", "--signature", "nbest", "cat")
    # Strict JSON has no infinity.
    assert json.loads(out, parse_constant=pytest.fail) == {
        "texts": ["chat", "", ""],
        "scores": [-0.5, None, None],
    }


def test_alternatives_stand_in_one_line(query):
    assert query("--signature", "nbest", "cat") == (0, "chat\n", "")
    assert rows.as_text({"texts": ["a", "b\nc", ""]}) == "a\tb c"
    made_up = {"text": "a", "score": -1.0, "empty": True}
    assert rows.as_text(made_up) == "" and rows.failure(made_up) == ""
    assert rows.as_text(made_up | {"empty": False}) == "a"


def test_alignments_come_without_padding(query):
    _, out, _ = query("--json", "--signature", "align", "hello cat", "cat")
    first, second = map(json.loads, out.splitlines())
    assert first["source_tokens"] == ["hello", "cat"]
    assert first["alignment"] == [[1.0, 0.0], [0.0, 1.0]]
    assert second["alignment"] == [[1.0]]


def test_numbers_have_the_digits_of_their_dtype(query):
    _, out, _ = query("--json", "--signature", "number", "0.1")
    assert out == '{"number": 0.1}\n'


def test_rest_prints_the_same(query, server):
    by_rest = f"http://{server.rest_address}"
    expected = query("--json", "cat", "hello")
    assert query("--json", "cat", "hello", address=by_rest) == expected


def test_a_version_is_named_by_number_or_label(query):
    assert query("--version", str(toy_model.VERSION), "cat")[0] == 0
    status, _, err = query("--version", "stable", "cat")
    assert status == cli.REFUSED and "version label: stable" in err


def test_a_refusal_ends_the_command_and_names_the_lines(query):
    given = b"1\n2\ncat\n3\n"
    flags = "--json", "--signature", "number", "--batch_size", "2"
    status, out, err = query(*flags, lines=given)
    assert status == cli.REFUSED
    assert out == '{"number": 1.0}\n{"number": 2.0}\n'
    assert err.startswith("error: lines 3 to 4: INVALID_ARGUMENT: StringToNum")
    status, _, err = query("cat", address="localhost:1")
    assert status == cli.REFUSED
    assert err.startswith("error: line 1: UNAVAILABLE: ")
    assert "Is a server running" in err


def test_a_text_that_is_not_answered_leaves_its_line_empty(query, monkeypatch):
    failed = [
        ({"text": "", "score": -float("inf")}, "the model could not answer it"),
        ({"text": "", "score": 0.0, "error": "too long"}, "too long"),
        ({"texts": [""], "scores": [-float("inf")]}, "the model could not"),
    ]
    for row, why in failed:
        assert rows.failure(row).startswith(why)
        assert rows.as_text(row) == ""
    assert rows.failure({"text": "", "score": -0.5, "error": ""}) == ""
    assert rows.failure({"sum": 3}) == ""

    monkeypatch.setattr(rows, "of_result", lambda _: [failed[0][0]])
    status, out, err = query("cat")
    assert (status, out) == (cli.REFUSED, "\n")
    assert err == "error: line 1: the model could not answer it\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--signature", "number", "1"], "Add --json"),
        (["--ca", "nowhere.pem", "cat"], "nowhere.pem"),
        (["--ca", str(README), "cat"], "must be PEM files"),
        (["--key", str(README), "cat"], "--cert and --key go together"),
        (["--tls", "--address=http://localhost:1", "cat"], "https://"),
        (["--retries", "-1", "cat"], "`retries` must be"),
        (["--stream", "cat"], 'signatures=["step"]'),
        (["--stream", "--signature=nbest", "cat"], "Leave out one of them"),
    ],
)
def test_wrong_arguments_are_told_from_refusals(query, arguments, words):
    status, out, err = query(*arguments)
    assert status == cli.USAGE
    assert err.startswith("error: ") and words in err


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["query", "--batch_size=0"],
        ["query", "--json", "--stream"],
        ["dance"],
    ],
)
def test_arguments_that_cannot_be_are_refused(arguments):
    with pytest.raises(SystemExit, match="2"):
        cli.main(arguments)


def test_serve_passes_its_flags_on(capsys):
    with pytest.raises(SystemExit, match="0"):
        cli.main(["serve", "--help"])
    assert "--model_base_path" in capsys.readouterr().out


def test_export_without_keras_attn_names_it(capsys, monkeypatch):
    monkeypatch.setattr(
        cli.importlib.metadata, "entry_points", lambda **given: []
    )
    assert cli.main(["export", "a", "b"]) == cli.USAGE
    assert "needs the package keras-attn," in capsys.readouterr().err


def test_the_distribution_declares_the_command():
    project = tomllib.loads((README.parent / "pyproject.toml").read_text())
    declared = {"keras-attn": "keras_attn_serving.command.cli:main"}
    assert project["project"]["scripts"] == declared


def commands_of_the_readme():
    blocks = re.findall(r"```sh\n(.*?)```", README.read_text(), re.DOTALL)
    found = re.findall(r"^keras-attn (.*)$", "".join(blocks), re.MULTILINE)
    return [shlex.split(x.partition(" <")[0]) for x in found]


@pytest.mark.parametrize("arguments", commands_of_the_readme(), ids=" ".join)
def test_the_readmes_commands_are_taken(arguments):
    command, *rest = arguments
    if command == "serve":
        flags.read(rest)
        return
    if command == "export":
        exporting = pytest.importorskip("keras_attn.command.export")
        exporting.parser().parse_args(rest)
        return
    found = cli.parser().parse_args(arguments)
    assert found.model == "pronounce"


def command(program, *arguments, **options):
    """Runs a program that calls the command."""
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        timeout=100,
        **options,
    )


def test_serve_without_its_extra_names_it():
    done = command(
        "import sys; sys.modules['tensorflow'] = None\n"
        "from keras_attn_serving.command import cli\n"
        "sys.exit(cli.main(['serve', '--model_base_path=x']))"
    )
    assert done.returncode == cli.REFUSED
    assert b"pip install 'keras-attn-serving[server]'" in done.stderr


RUN = "import sys, keras_attn_serving.command.cli as x; sys.exit(x.main())"


def test_a_reader_that_has_enough_ends_the_command(server):
    asked = "query", "--address", server.address, "--model", toy_model.NAME
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, *asked, "--batch_size=1"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    process.stdin.write(b"cat\n")
    process.stdin.flush()
    # The answer comes before the next line is given... at the latest with it.
    process.stdin.write(b"hello\n" * 9)
    process.stdin.flush()
    assert process.stdout.readline() == b"chat\n"
    process.stdout.close()
    _, err = process.communicate(b"cat\n" * 2000, timeout=60)
    assert process.returncode == cli.REFUSED and err == b""


@pytest.mark.full
def test_a_bar_shows_how_far_a_file_is(server, tmp_path):
    if not hasattr(os, "openpty"):
        pytest.skip("No terminals here.")
    file = tmp_path / "lines.txt"
    file.write_text("cat\n" * 3000)
    terminal, side = pty.openpty()
    asked = "query", "--address", server.address, "--model", toy_model.NAME
    with file.open("rb") as lines:
        done = subprocess.run(
            [sys.executable, "-c", RUN, *asked, "--batch_size=4"],
            stdin=lines,
            stdout=subprocess.PIPE,
            stderr=side,
            timeout=100,
        )
    assert done.returncode == 0
    assert done.stdout == b"chat\n" * 3000
    os.close(side)
    shown = os.read(terminal, 100_000).decode()
    os.close(terminal)
    assert "%  " in shown and "lines, " in shown and "[##" in shown
    assert shown.endswith("\r\033[K")  # and leaves nothing behind


def test_a_bar_is_shown_to_nobody_else(capsys):
    bar = Progress(False, 10)
    bar.add(5, 5)
    bar.clear()
    assert capsys.readouterr().err == ""
