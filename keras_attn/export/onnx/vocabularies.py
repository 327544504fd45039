"""`VocabularyFile`: the file with which clients turn text into ids and back."""

import dataclasses
import json
import pathlib
import shutil
from typing import Any

from keras_attn.text.splitter import Splitter
from keras_attn.text.text import Text


class VocabularyFile:
    """A `Text` as a JSON file, with the files of its splitter beside it.

    Args:
        text: The `Text`.
        file: Name of the JSON file.
        name: Name of the model's input that takes the text's ids, or `None`
            for the target.
    """

    def __init__(self, text: Text, file: str, name: str | None = None):
        self.text, self.file, self.name = text, file, name

    @property
    def split(self) -> str:
        """The name that a `Text` takes as `split`, or the splitter's class."""
        split = self.text.split
        return split if isinstance(split, str) else type(split).__name__

    def write(self, directory: pathlib.Path) -> None:
        """Writes the JSON file and the splitter's files to a directory."""
        text = self.text
        content: dict[str, Any] = {"input": self.name} if self.name else {}
        content |= {
            "tokens": text.tokens,
            "special": dataclasses.asdict(text.special)
            | {"source_end": text.special.ends_source},
            "split": self.split,
            "join": text.splitter.separator,
            "lowercase": text.lowercase,
            "normalization": text.normalization,
            "max_length": text.max_length,
            "too_long": text.too_long,
        }
        if isinstance(text.split, Splitter):
            content |= self._of_splitter(text.split, directory)
        written = json.dumps(content, ensure_ascii=False, indent=1)
        path = directory / self.file
        path.write_text(written + "\n", encoding="utf-8")

    def _of_splitter(self, splitter, directory):
        """Copies a splitter's files; returns their names and its options."""
        config, files = splitter.get_config(), {}
        for argument in splitter.assets:
            path = config.pop(argument, None)
            if path is not None:
                name = f"{pathlib.Path(self.file).stem}.{argument}"
                shutil.copyfile(path, directory / name)
                files[argument] = name
        try:
            json.dumps(config)
        except TypeError:  # options of a user's class that JSON cannot store
            config = {}
        return {"split_files": files, "split_options": config}
