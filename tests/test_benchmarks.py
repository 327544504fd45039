"""The benchmarks still run, and every library in them computes the same."""

import pathlib
import subprocess
import sys

RUN = pathlib.Path(__file__).parent / "benchmarks" / "run.py"


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
