"""Reads the files of serving/deploy."""

import json
import pathlib
import re

DEPLOY = pathlib.Path(__file__).parents[3] / "serving" / "deploy"


def read(name):
    return (DEPLOY / name).read_text()


def entry_point():
    """Returns the Dockerfile's entry point: a script and flags for it."""
    (command,) = re.findall(
        r"^ENTRYPOINT (\[.*?\])$", read("Dockerfile"), re.DOTALL | re.MULTILINE
    )
    return json.loads(command.replace("\\\n", ""))


def flags():
    _, *found = entry_point()
    return dict(each.removeprefix("--").split("=", 1) for each in found)
