"""Runs the development server of keras-attn-serving on an exported model."""

import os
import shlex
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path


def serve(folder: Path, port: int):
    """Turns this process into the server. It never returns."""
    os.execv(sys.executable, _command(folder, port))


@contextmanager
def running_server(folder: Path, *flags: str):
    """Runs a server on a free port, and yields its address once it answers."""
    with subprocess.Popen(
        [*_command(folder, port=0), *flags], stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            ready = server.stdout.readline()  # "serving model ... at HOST:PORT"
            if not ready:
                raise SystemExit("The server did not start; it says why above.")
            print(ready, end="")
            yield ready.split()[-1]
        finally:
            server.terminate()


def print_command(folder: Path):
    """Prints the command that runs a server."""
    print("\nTo serve it:\n  " + shlex.join(_command(folder, 8500)))


def ask(folder: Path, lines: list[str], signature: str = "serving_default"):
    """Runs a server, and returns what it answers to a client."""
    from keras_attn_serving import Client

    with running_server(folder) as address:
        with Client(address, model=folder.name) as client:
            return client.predict(lines, signature)


@contextmanager
def plain_errors():
    """Ends the program with a server's message in place of a traceback."""
    from keras_attn_serving import ServingError

    try:
        yield
    except ServingError as error:
        raise SystemExit(str(error)) from None


def _command(folder: Path, port: int) -> list[str]:
    # The model's name is the folder's.
    return [
        *(sys.executable, "-m", "keras_attn_serving"),
        f"--model_base_path={folder}",
        f"--model_name={folder.name}",
        f"--port={port}",
    ]
