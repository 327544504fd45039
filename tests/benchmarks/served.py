"""`Served`: the development server in a process of its own."""

import pathlib
import socket
import subprocess
import sys

import attacks
import watch


class Served:
    """A server of one model, while a `with` block runs.

    Args:
        base: Directory of the model's versions.
        name: Name of the model.
        flags: Further flags of `python -m keras_attn_serving`.

    Attributes:
        address: `host:port` of its gRPC port.
        port: That port.
        rest: Its port for REST.
    """

    def __init__(self, base, name, *flags):
        self.port, self.rest = _free_port(), _free_port()
        self.address = f"localhost:{self.port}"
        self.base = pathlib.Path(base)
        self._command = [
            sys.executable,
            "-m",
            "keras_attn_serving",
            f"--model_base_path={base}",
            f"--model_name={name}",
            f"--port={self.port}",
            f"--rest_api_port={self.rest}",
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

    @property
    def alive(self):
        """Whether it still runs."""
        return self._process.poll() is None

    def memory(self, kind="VmRSS"):
        """Returns the resident memory in MB; its peak for `"VmHWM"`."""
        return watch.memory(self._process.pid, kind)

    def target(self, model):
        """Returns it as a target of attacks."""
        return attacks.Target(self._process.pid, self.port, self.rest, model)

    def forget_peak(self):
        """Lets the peak of the memory begin anew."""
        pathlib.Path(f"/proc/{self._process.pid}/clear_refs").write_text("5")

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *error):
        self.kill()


def _free_port():
    with socket.create_server(("localhost", 0)) as other:
        return other.getsockname()[1]
