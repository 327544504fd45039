"""The server's process writes lines of its own, and none of TensorFlow's."""

import os
import signal
import subprocess
import sys

import pytest

SERVE = sys.executable, "-m", "keras_attn_serving"


def environment(**changes):
    """That of a user who set nothing about logs."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("TF_")}
    return clean | changes


@pytest.mark.full
@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGTERM to send.")
def test_the_server_writes_only_its_own_lines(toy_path):
    process = subprocess.Popen(
        [*SERVE, f"--model_base_path={toy_path.parent}", "--port=0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    try:
        ready = process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()
    assert ready.startswith("serving model"), errors
    lines = errors.splitlines()
    assert any("GPUs found: " in line for line in lines)
    assert [line for line in lines if " level=INFO " not in line] == []


@pytest.mark.full
def test_who_asks_for_tensorflow_s_notes_sees_them():
    done = subprocess.run(
        [*SERVE, "--version"],
        capture_output=True,
        text=True,
        timeout=100,
        env=environment(TF_CPP_MIN_LOG_LEVEL="0"),
    )
    assert done.returncode == 0 and "oneDNN" in done.stderr


@pytest.mark.parametrize(
    "ending, shown",
    [
        ("pass", b"after"),
        ("raise SystemExit('failed')", b"held back\nfailed\n"),
        ("ctypes.string_at(0)", b"Fatal Python error: "),
    ],
)
def test_what_was_held_back_is_shown_where_the_start_fails(ending, shown):
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import ctypes, os, sys\n"
            "from keras_attn_serving import quiet\n"
            "with quiet._held_back():\n"
            "    os.write(2, b'held back\\n')\n"
            f"    {ending}\n"
            "sys.stderr.write('after')",
        ],
        capture_output=True,
        timeout=60,
    )
    assert done.stderr.startswith(shown)
    assert (done.returncode == 0) == (ending == "pass")
