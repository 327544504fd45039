"""`Directory`: the files of one model of Hugging Face."""

import json
import pathlib

_CONFIGURATION = "config.json"


class Directory:
    """The files that `save_pretrained` wrote, or a download of the same.

    Args:
        path: The directory.

    Raises:
        ValueError: If it is not a directory, or has no `config.json`.
    """

    def __init__(self, path: str | pathlib.Path):
        self.path = pathlib.Path(path)
        if not self.path.is_dir():
            raise ValueError(
                "`from_hugging_face` reads a directory and downloads nothing. "
                f"Received: {str(path)!r}, which is none. If it is a name of "
                f"Hugging Face's hub, `hf download {path} --local-dir DIR` "
                "(of the package huggingface_hub) makes a directory."
            )
        found = self.json(_CONFIGURATION)
        if found is None:
            raise ValueError(
                f"`from_hugging_face` needs a `{_CONFIGURATION}`. Received: "
                f"{self.path}, which has {self.listed()}. `save_pretrained` "
                "of transformers writes all that is needed."
            )
        self.configuration = found

    def file(self, name: str) -> pathlib.Path | None:
        """Returns the path of a file, or `None` if there is none."""
        path = self.path / name
        return path if path.is_file() else None

    def needed(self, name: str, why: str) -> pathlib.Path:
        """Returns the path of a file that must be there.

        Args:
            name: Name of the file.
            why: What needs the file, for the error message.
        """
        path = self.file(name)
        if path is None:
            raise ValueError(
                f"{why} needs the file `{name}`. Received: {self.path}, which "
                f"has {self.listed()}. Copy it from where the model came from."
            )
        return path

    def json(self, name: str) -> dict | None:
        """Returns the dictionary in a file of JSON, or `None` without one."""
        path = self.file(name)
        if path is None:
            return None
        try:
            found = json.loads(path.read_text("utf-8"))
        except (ValueError, UnicodeDecodeError) as error:
            raise ValueError(
                f"`{name}` must be JSON. Received: {path}, which is not: "
                f"{error}. Was it cut off, or is it a pointer of Git LFS? Get "
                "it again."
            ) from error
        if not isinstance(found, dict):
            raise ValueError(
                f"`{name}` must be an object of JSON. Received: {path}, with "
                f"a {type(found).__name__}."
            )
        return found

    def listed(self) -> str:
        """Names the files, for error messages."""
        names = sorted(x.name for x in self.path.iterdir())
        shown = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
        return shown or "no files"
