"""`Timestamps`: the tokens with which a speech model writes times."""

import dataclasses
from collections.abc import Sequence

from keras_attn.decoding import PairedTimestamps

_SECONDS = 0.02  # from one to the next


@dataclasses.dataclass(frozen=True)
class Timestamps:
    """The last tokens of a vocabulary, `<|0.00|>`, `<|0.02|>` and so on.

    Attributes:
        none: Id of the token before them, `<|notimestamps|>`.
        latest: Number of the latest timestamp that may begin a text, or `None`
            for any.
    """

    none: int
    latest: int | None

    @property
    def first(self) -> int:
        """Id of the first one."""
        return self.none + 1

    def named(self, names: Sequence[str]) -> list[str]:
        """Returns the tokens of a vocabulary, with the timestamps named.

        Files may leave them out, since their names follow from their ids.
        """
        count = len(names) - self.first
        return [
            *names[: self.first],
            *(f"<|{i * _SECONDS:.2f}|>" for i in range(count)),
        ]

    def rule(self, end: int) -> PairedTimestamps:
        """Returns the rule that their order follows.

        Args:
            end: Id of the token that ends a text.
        """
        return PairedTimestamps(self.first, end, self.latest)
