"""`TextFile`: how an ONNX export turns text into ids, and ids into text."""

import json
import pathlib
import re
import unicodedata
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from keras_attn_serving.onnx.splitters import Splitter
from keras_attn_serving.onnx.splitters import splitter_of


class TooLong(ValueError):
    """A text has more tokens than an export reads."""


class TextFile:
    """A `Text` of keras_attn, read from the JSON file of an export.

    Args:
        path: The file.
        splitters: Splitters for classes of the caller's own, by their names.

    Attributes:
        input: Name of the model's input that takes the ids, or `None` for the
            target.
        pad: The id that pads rows.
        end: The id of the end token.
    """

    def __init__(
        self, path: pathlib.Path, splitters: Mapping[str, Splitter] = {}
    ):
        content = _read(path)
        self._content: dict[str, Any] = content
        special = content["special"]
        self.input: str | None = content.get("input")
        self.pad: int = special["pad"]
        self.end: int = special["end"]
        self._splitter = splitter_of(content, path.parent, dict(splitters))
        self._unknown = special["unknown"]
        spelled = special.get("spelled_tokens", [])
        prompt = special.get("prompt_tokens", [])
        source = [*special["source_start"], *special["source_end"]]
        around = {self.pad, special["end"], *special["start"], *source}
        self._not_read = around - {*spelled, -1}
        self._not_written = {*around, *prompt}
        tokens = content["tokens"]
        self._whole = {tokens[i]: i for i in (*prompt, *spelled)}
        longest_first = sorted(self._whole, key=len, reverse=True)
        pattern = "|".join(map(re.escape, longest_first))
        self._pattern = re.compile(f"({pattern})") if pattern else None

    @property
    def around(self) -> int:
        """Number of ids that a source has before and after its text."""
        special = self._content["special"]
        return len(special["source_start"]) + len(special["source_end"])

    def source_ids(self, line: str) -> list[int]:
        """Returns the ids of a source, cut at the export's maximum length.

        Raises:
            TooLong: If it is longer, and the export refuses longer texts.
        """
        special, most = self._content["special"], self._content["max_length"]
        ids = self._ids(self._normalized(line))
        if most is not None and len(ids) > most:
            if self._content["too_long"] == "error":
                raise TooLong(
                    f"A text may have at most {most} tokens in this export. "
                    f"Received: {line!r:.80} with {len(ids)}. Split it."
                )
            ids = ids[:most]
        return [*special["source_start"], *ids, *special["source_end"]]

    def text(self, ids: Sequence[int]) -> str:
        """Returns the text of ids, which may be padded."""
        size, instead = len(self._content["tokens"]), self._unknown
        if instead < 0:
            instead = self.pad
        known = (i if 0 <= i < size else instead for i in map(int, ids))
        kept = [i for i in known if i not in self._not_written]
        return self._splitter.text(kept)

    def _normalized(self, line):
        line = line.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
        line = line.replace("\0", "\ufffd")
        line = re.sub("[\t-\r]", " ", line)
        form = self._content["normalization"]
        if form is not None:
            line = unicodedata.normalize(form, line)
        if self._content["lowercase"]:
            line = line.lower()
            if form == "NFC":
                line = unicodedata.normalize(form, line)
        return line

    def _ids(self, line):
        parts = [line] if self._pattern is None else self._pattern.split(line)
        found = []
        for part in parts:
            if part in self._whole:
                found.append(self._whole[part])
            elif part:
                found += self._of_part(part)
        return found

    def _of_part(self, part):
        ids = [
            -1 if i in self._not_read else i for i in self._splitter.ids(part)
        ]
        if self._unknown < 0:
            return [i for i in ids if i >= 0]
        return [self._unknown if i < 0 else i for i in ids]


def _read(path):
    """Returns the content of a file; checks that it has the needed fields."""
    needed = "tokens special split join lowercase normalization max_length"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        lacking = {*needed.split(), "too_long"} - {*content}
    except ValueError as error:
        raise ValueError(
            f"{path} must be a text of an ONNX export. Received: a file that "
            f"is no JSON ({error}). Export again."
        ) from error
    if lacking or not isinstance(content, dict):
        raise ValueError(
            f"{path} must be a text of an ONNX export. Received: a file "
            f"without {sorted(lacking)}. Export again."
        )
    return content
