"""The buffers of past positions, which may grow during a search."""

from keras import ops

from keras_attn.decoder.state import Past
from keras_attn.structures import replace


def emptied(state):
    """Returns a first state in which each `Past` is empty and grows.

    Args:
        state: Result of `start()`, before any step.
    """

    def empty(buffer):
        *outer, _, dim = ops.shape(buffer)
        # Not 0: a graph shall not take the length for one that stays.
        nothing = 0 * outer[0]
        return ops.zeros((*outer, nothing, dim), dtype=buffer.dtype)

    def grows(past):
        return Past(empty(past.keys), empty(past.values), step=())

    return replace(state, Past, grows)


def growing(state):
    """Returns the tensors of a state that grow by a position each step.

    They have the shape `(batch, beams, ..., time, dim)`.
    """
    found = []

    def note(past):
        if isinstance(past.step, tuple):
            found.extend([past.keys, past.values])
        return past

    replace(state, Past, note)
    return found
