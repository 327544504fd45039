"""A finding, and the list that grows while a model is looked at."""

import warnings
from typing import NamedTuple


class Finding(NamedTuple):
    """A mistake, or what may be one.

    Attributes:
        kind: A short word that stays the same, such as `"leak"`. See `check`.
        layer: Name of the layer where it lies, or `None`.
        text: What is the matter, and what to change.
    """

    kind: str
    layer: str | None
    text: str


class Findings:
    """Findings, certain and doubtful ones apart."""

    def __init__(self):
        self._wrong = []
        self._doubtful = []

    def wrong(self, kind, layer, text):
        """Adds what can only be wrong."""
        self._add(self._wrong, Finding(kind, layer, text))

    def doubtful(self, kind, layer, text):
        """Adds what may be meant."""
        self._add(self._doubtful, Finding(kind, layer, text))

    def has_wrong(self, *kinds) -> bool:
        """Whether something of these kinds is wrong."""
        return any(x.kind in kinds for x in self._wrong)

    def report(self, stacklevel) -> list[Finding]:
        """Warns, raises, and returns what it warned of."""
        for finding in self._doubtful:
            warnings.warn(_line(finding), stacklevel=stacklevel + 1)
        if self._wrong:
            raise ValueError(
                "This cannot be trained as it is meant:\n"
                + "\n".join(f"- {_line(finding)}" for finding in self._wrong)
            )
        return list(self._doubtful)

    @staticmethod
    def _add(findings, finding):
        if finding not in findings:
            findings.append(finding)


def _line(finding):
    return f"{finding.kind}: {finding.text}"
