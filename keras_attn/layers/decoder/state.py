"""The source and the state of a decoder, as named tuples."""

from typing import NamedTuple


class Source(NamedTuple):
    """The memories and the condition of a source, prepared once per source."""

    memories: tuple  # the `Memory` of each attention
    condition: object = ()  # (batch, dim), or ()


class Past(NamedTuple):
    """A decoder's own states so far, as its self-attention prepared them."""

    keys: object  # (batch, beams, [heads,] max_length, dim)
    values: object  # (batch, beams, [heads,] max_length, dim)
    # (batch, beams), int32, the number of states so far; or () if keys and
    # values hold exactly these states and grow at every step.
    step: object


class DecoderState(NamedTuple):
    """The state that a decoder carries from one step to the next."""

    cell: tuple  # the cell's states, each (batch, beams, width)
    histories: tuple = ()  # each attention's `History`, or ()
    fed: object = ()  # last output (batch, beams, dim) with input feeding
    context: object = ()  # last context (batch, beams, dim) if queried
    past: object = ()  # `Past` with self-attention
