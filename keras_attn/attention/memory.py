"""What an attention is given and what it gives, as named tuples."""

from typing import NamedTuple


class Memory(NamedTuple):
    """What a source offers to attention, prepared once per source.

    With several heads the keys and values have an axis for them, `(batch,
    heads, source, dim)`.
    """

    keys: object  # (batch, source, dim), as the score projected them
    values: object  # (batch, source, value_dim)
    mask: object = None  # (batch, source), True = real; None = all real


class History(NamedTuple):
    """What an attention remembers of its past steps, one row a query.

    What no part of the attention looks at is not kept: it is `()`. With
    several heads the score is shown the mean of their alignments, and the
    alignment those of the head itself.
    """

    previous: object  # (batch, beams, source), float32, the last alignments
    total: object  # (batch, beams, source), float32, their sum so far
    step: object  # (batch, beams), int32, the number of steps taken
    carried: object = ()  # what the score carries, each (batch, beams, ...)
    by_head: object = ()  # `ByHead`, where the alignment of several looks

    def after(self, attended, carried):
        """The history after a step that got `Attended`."""
        by_head = self.by_head
        if by_head:
            total = by_head.total + attended.by_head
            by_head = ByHead(attended.by_head, total)
        return History(
            attended.alignments,
            self.total + attended.alignments,
            self.step + 1,
            carried,
            by_head,
        )


class ByHead(NamedTuple):
    """Past alignments, each `(batch, beams, heads, source)`."""

    previous: object  # float32, the last
    total: object  # float32, their sum so far


class Attended(NamedTuple):
    """What a number of queries got."""

    context: object  # (batch, target, context_dim)
    alignments: object  # (batch, target, source), float32, the heads' mean
    by_head: object = ()  # (batch, target, heads, source), float32
    log_probability: object = ()  # (batch, target), float32, of a sample
    entropy: object = ()  # (batch, target), float32, of what it is drawn from
