"""The named tuples that an attention takes and returns."""

from typing import NamedTuple


class Memory(NamedTuple):
    """The keys, values and mask of a source, prepared once per source.

    With several heads the keys and values have the shape `(batch, heads,
    source, dim)`.
    """

    keys: object  # (batch, source, dim), as the score projected them
    values: object  # (batch, source, value_dim)
    mask: object = None  # (batch, source), True = real; None = all real


class History(NamedTuple):
    """The past steps of an attention, with one row per query.

    A field that neither score nor alignment reads is `()`. With several heads
    the score sees the mean of the heads' alignments, and the alignment sees
    those of its own head.

    Attributes:
        previous: The last alignments, float32 `(batch, beams, source)`.
        total: The sum of all past alignments, of the same shape.
        step: The number of steps taken, int32 `(batch, beams)`.
        carried: The score's own state, tensors `(batch, beams, ...)`.
        by_head: A `ByHead`, if there are several heads and the alignment
            takes the history.
    """

    previous: object
    total: object
    step: object
    carried: object = ()
    by_head: object = ()

    def after(self, attended, carried):
        """Returns the history after a step with these results."""
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
    total: object  # float32, the sum of all


class Attended(NamedTuple):
    """The results of an attention for one or more queries."""

    context: object  # (batch, target, context_dim)
    alignments: object  # (batch, target, source), float32, the heads' mean
    by_head: object = ()  # (batch, target, heads, source), float32
    log_probability: object = ()  # (batch, target), float32, of a sample
    entropy: object = ()  # (batch, target), float32, of its distribution
