"""The benchmarks still run, and every library in them computes the same."""

import pathlib
import subprocess
import sys

import pytest

RUN = pathlib.Path(__file__).parent / "benchmarks" / "run.py"
DECODING = RUN.with_name("decoding.py")


@pytest.mark.full
def test_the_smallest_benchmark_finds_the_same_net_in_every_library(tmp_path):
    tables = tmp_path / "tables.md"
    command = [sys.executable, RUN, "--smoke", "--markdown", tables]
    done = subprocess.run(
        list(map(str, command)), cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = tables.read_text(encoding="utf-8")
    for peer in ("keras_attn", "Keras", "KerasHub"):
        assert f"| {peer} |" in report


@pytest.mark.full
def test_the_time_of_a_decoding_is_split_and_its_growth_drawn(tmp_path):
    plot = tmp_path / "growth.svg"
    command = [sys.executable, DECODING, "--smoke", "--plot", plot]
    done = subprocess.run(
        list(map(str, command)), cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for row in ("| greedy 2 |", "| beam 2 |", "| target length | 3 | 6 |"):
        assert row in done.stdout
    assert plot.read_text(encoding="utf-8").rstrip().endswith("</svg>")


@pytest.mark.full
def test_a_shortlist_is_measured_beside_the_whole_vocabulary(tmp_path):
    command = [sys.executable, RUN.with_name("shortlist.py"), "--smoke"]
    done = subprocess.run(
        list(map(str, command)), cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| texts | whole vocabulary | shortlist | ratio |" in done.stdout
    assert "| 2 |" in done.stdout


@pytest.mark.full
def test_a_transformer_is_timed(tmp_path):
    """CTranslate2 stands beside it where that is installed."""
    command = [sys.executable, RUN.with_name("transformer.py"), "--smoke"]
    done = subprocess.run(
        list(map(str, command)), cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for row in ("| Translator | 10 |", "| Translator, ids | 10 |", "together"):
        assert row in done.stdout


@pytest.mark.full
@pytest.mark.parametrize(
    ("program", "row"),
    [
        ("clients.py", "| deploy/batching.pbtxt | 8 |"),
        ("endurance.py", "| 2000 | 0 | 0 | 10 | 3 | 11 |"),
        ("hostile.py", "| 50 plain bytes | 50 closed |"),
    ],
)
def test_a_server_is_tried_hard(tmp_path, program, row):
    command = [sys.executable, RUN.with_name(program), "--smoke"]
    done = subprocess.run(
        list(map(str, command)), cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert row in done.stdout
