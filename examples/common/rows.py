"""A table of results that is kept in a file, a row at a time."""

import json
import os
from collections.abc import Callable
from pathlib import Path


class Rows:
    """Rows of results, each a line of JSON in a file.

    A row that the file has is not computed again, so a program that was
    stopped goes on where it was.

    Args:
        file: The file. It is made if it does not exist.
        condition: What all rows have in common, such as sizes. Rows of other
            conditions may be in the same file; they are left alone.
    """

    def __init__(self, file: Path, condition: dict):
        self.file = file
        self._condition = condition
        file.parent.mkdir(parents=True, exist_ok=True)
        lines = file.read_text("utf-8").split("\n") if file.exists() else []
        *whole, _ = lines or [""]  # the last is empty, or was cut off
        self._all = list(map(json.loads, whole))
        if lines and lines[-1]:
            file.write_text("".join(f"{line}\n" for line in whole), "utf-8")

    def add(self, key: dict, measure: Callable[[], dict]):
        """Computes a row and keeps it, unless it is there.

        Args:
            key: What tells the row from the others.
            measure: Function that returns the results of the row.
        """
        wanted = self._condition | key
        if any(wanted.items() <= row.items() for row in self._all):
            return
        print(f"\n{', '.join(map(str, key.values()))}", flush=True)
        row = wanted | measure()
        self._all.append(row)
        with self.file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
            file.flush()
            os.fsync(file.fileno())
        print(self._line(self._shown(row).values()), flush=True)

    def shown(self) -> list[dict]:
        """Returns the rows of this condition, without the condition."""
        return [
            self._shown(row)
            for row in self._all
            if self._condition.items() <= row.items()
        ]

    def table(self) -> str:
        """Returns the rows of this condition as a table in Markdown."""
        rows = self.shown()
        if not rows:
            return "no rows"
        names = list(dict.fromkeys(name for row in rows for name in row))
        lines = [[row.get(name, "") for name in names] for row in rows]
        head = [self._line(names), "|---" * len(names) + "|"]
        return "\n".join([*head, *map(self._line, lines)])

    def _shown(self, row: dict) -> dict:
        return {k: v for k, v in row.items() if k not in self._condition}

    def _line(self, cells) -> str:
        return f"| {' | '.join(map(str, cells))} |"
