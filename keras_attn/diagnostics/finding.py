"""A finding, and the list that collects findings during a check."""

from typing import NamedTuple

from keras_attn.caller import warn


class Finding(NamedTuple):
    """A certain or possible mistake in a model or its data.

    Attributes:
        kind: A short word for the kind of mistake, such as `"leak"`; see
            `check`. These words stay the same in later versions.
        layer: Name of the layer that causes the mistake, or `None`.
        text: A description of the mistake, and what to change.
    """

    kind: str
    layer: str | None
    text: str


class Findings:
    """Collects the certain and the doubtful findings of a check."""

    def __init__(self):
        self._wrong = []
        self._doubtful = []

    def wrong(self, kind, layer, text):
        """Adds a certain mistake."""
        self._add(self._wrong, Finding(kind, layer, text))

    def doubtful(self, kind, layer, text):
        """Adds a possible mistake, which may also be intended."""
        self._add(self._doubtful, Finding(kind, layer, text))

    def has_wrong(self, *kinds) -> bool:
        """Whether there is a certain mistake of these kinds."""
        return any(x.kind in kinds for x in self._wrong)

    def report(self) -> list[Finding]:
        """Warns of doubtful findings and returns them, or raises.

        Raises:
            ValueError: If there are certain mistakes; it lists them all.
        """
        for finding in self._doubtful:
            warn(_line(finding))
        if self._wrong:
            raise ValueError(
                "The model cannot be trained as intended:\n"
                + "\n".join(f"- {_line(finding)}" for finding in self._wrong)
            )
        return list(self._doubtful)

    @staticmethod
    def _add(findings, finding):
        if finding not in findings:
            findings.append(finding)


def _line(finding):
    return f"{finding.kind}: {finding.text}"
