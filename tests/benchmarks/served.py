"""`Served`: the development server in a process of its own."""

import pathlib
import socket
import subprocess
import sys


class Served:
    """A server of one model, while a `with` block runs.

    Args:
        base: Directory of the model's versions.
        name: Name of the model.
        flags: Further flags of `python -m keras_attn_serving`.
    """

    def __init__(self, base, name, *flags):
        with socket.create_server(("localhost", 0)) as other:
            port = other.getsockname()[1]
        self.address = f"localhost:{port}"
        self.base = pathlib.Path(base)
        self._command = [
            sys.executable,
            "-m",
            "keras_attn_serving",
            f"--model_base_path={base}",
            f"--model_name={name}",
            f"--port={port}",
            *flags,
        ]

    def start(self):
        """Starts it, and returns when it answers."""
        self._process = subprocess.Popen(
            self._command,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        line = self._process.stdout.readline()
        assert line.startswith("serving"), line

    def kill(self):
        """Ends it at once, whatever it is doing."""
        self._process.kill()
        self._process.wait()

    def memory(self, kind="VmRSS"):
        """Returns the resident memory in MB; its peak for `"VmHWM"`."""
        status = pathlib.Path(f"/proc/{self._process.pid}/status").read_text()
        line = next(x for x in status.splitlines() if x.startswith(kind))
        return int(line.split()[1]) / 1024

    def forget_peak(self):
        """Lets the peak of the memory begin anew."""
        pathlib.Path(f"/proc/{self._process.pid}/clear_refs").write_text("5")

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *error):
        self.kill()
