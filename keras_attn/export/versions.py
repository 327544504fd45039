"""Writes a version of an export, complete or not at all."""

import os
import pathlib
import shutil
import tempfile
from collections.abc import Callable


def write_version(
    directory, version: int | None, write: Callable[[pathlib.Path], None]
) -> pathlib.Path:
    """Writes a version under a temporary name, and renames it when complete.

    A server that polls the directory never loads half of a version, and a
    failure leaves nothing behind.

    Args:
        directory: Path of the directory of all versions.
        version: Number of the version, or `None` for the next one.
        write: A function that writes the version's files to the empty
            directory whose path it takes.

    Returns:
        The path of the version, `directory/version`.

    Raises:
        FileExistsError: If this version exists already.
        ValueError: If the version is not an integer of at least 0.
    """
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    if version is None:
        version = 1 + max(_versions(directory), default=0)
    if isinstance(version, bool) or not isinstance(version, int) or version < 0:
        raise ValueError(
            "`version` must be an integer, at least 0: TF Serving reads only "
            f"directories with such names. Received: version={version!r}"
        )
    path = directory / str(version)
    if path.exists():
        raise FileExistsError(
            "`version` must be the number of a new version. Received: "
            f"version={version}. There is a version {version} in {directory} "
            "already. Leave `version` out to write the next one, or pass "
            "another number."
        )
    # Servers ignore directories whose names are not numbers.
    unfinished = pathlib.Path(
        tempfile.mkdtemp(prefix=f".{version}-unfinished-", dir=directory)
    )
    try:
        write(unfinished)
        os.chmod(unfinished, 0o755)
        unfinished.rename(path)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    return path


def _versions(directory):
    return [
        int(x.name)
        for x in directory.iterdir()
        if x.name.isascii() and x.name.isdecimal()
    ]
