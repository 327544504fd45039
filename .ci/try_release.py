"""Installs both wheels where there is no checkout, and runs the README's code.

    python try_release.py WHEELS README BILL [VERSION]

It trains the README's tour on a few words, exports it, starts the server by the
README's command, and asks it by the README's clients and the console command.
It writes BILL, a bill of materials of all that was installed, and refuses
wheels of another VERSION.
"""

import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time
import venv

WORDS = """
words = ["attention", "memory", "ten", "tent"] * 16
phones = ["AH T EH N", "M EH M", "T EH N", "T EH N T"] * 16
"""


def main(wheels, readme, bill, version=""):
    wheels = pathlib.Path(wheels)
    require_version(wheels, version)
    text = pathlib.Path(readme).read_text(encoding="utf-8")
    layer, tour, *queries = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    command = re.search(r"^python (-m keras_attn_serving .*)$", text, re.M)[1]
    wheels = wheels.resolve()
    with tempfile.TemporaryDirectory() as folder:
        tools = install(pathlib.Path(folder) / "env", wheels)
        of_environment = "cyclonedx_py", "environment", "--output-reproducible"
        options = "--output-file", bill, tools / "python"
        run(sys.executable, "-m", *of_environment, *options)
        away = pathlib.Path(folder) / "away"
        away.mkdir()
        run(tools / "python", "-c", layer, cwd=away)
        run(tools / "python", "-c", WORDS + tour, cwd=away)
        assert (away / "attention.png").stat().st_size
        with socket.socket() as free:
            free.bind(("localhost", 0))
            port = str(free.getsockname()[1])
        asked = command.replace("8500", port).split()
        server = subprocess.Popen([tools / "python", *asked], cwd=away)
        try:
            wait_for(port, server)
            for query in queries:
                query = query.replace("8500", port)
                run(tools / "python", "-c", query, cwd=away)
            run(
                tools / "keras-attn",
                "query",
                f"--address=localhost:{port}",
                "--model=pronounce",
                "attention",
                cwd=away,
            )
        finally:
            server.terminate()
            server.wait()
    print("The wheels work where there is no checkout.")


def require_version(wheels: pathlib.Path, version: str):
    found = sorted(x.name for x in wheels.glob("*.whl"))
    part = f"-{version}-" if version else "-"
    if len(found) != 2 or any(part not in x for x in found):
        raise SystemExit(
            f"Two wheels of version {version or 'any'} are needed, the version "
            f"of the tag. Received: {found}."
        )


def install(folder: pathlib.Path, wheels: pathlib.Path) -> pathlib.Path:
    """Returns the folder of the programs of a new environment."""
    venv.create(folder, with_pip=True)
    tools = folder / "bin"
    files = [
        f"{next(wheels.glob('keras_attn-*.whl'))}[plot]",
        f"{next(wheels.glob('keras_attn_serving-*.whl'))}[server]",
    ]
    run(tools / "python", "-m", "pip", "install", "--quiet", *files)
    return tools


def run(*command, cwd=None):
    print(">", *(str(x).splitlines()[0] for x in command), flush=True)
    hidden = {"TF_CPP_MIN_LOG_LEVEL": "3"}
    clean = {x: y for x, y in os.environ.items() if x != "PYTHONPATH"}
    subprocess.run(command, cwd=cwd, env=clean | hidden, check=True)


def wait_for(port: str, server: subprocess.Popen):
    """Waits until a server listens."""
    until = time.monotonic() + 120
    while time.monotonic() < until and server.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("localhost", int(port))) == 0:
                return
        time.sleep(0.2)
    raise SystemExit("The server did not start.")


if __name__ == "__main__":
    main(*sys.argv[1:])
