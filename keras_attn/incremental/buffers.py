"""The buffers of past positions: how many places they have in a search."""

from keras import ops

from keras_attn.layers.decoder.state import Past
from keras_attn.structures import replace


def in_state(state):
    """Returns the buffers of a state, `(batch, beams, ..., time, dim)`."""
    found = []

    def note(past):
        found.extend([past.keys, past.values])
        return past

    replace(state, Past, note)
    return found


def with_room(state, room):
    """Returns a first state whose buffers have `room` places.

    Args:
        state: Result of `start()`, before any step.
        room: Number of places. With 0, each step adds one.
    """

    def empty(buffer):
        *outer, _, dim = ops.shape(buffer)
        # Not 0: a graph shall not take the length for one that stays.
        places = room or 0 * outer[0]
        return ops.zeros((*outer, places, dim), dtype=buffer.dtype)

    def changed(past):
        step = past.step if room else ()
        return Past(empty(past.keys), empty(past.values), step)

    return replace(state, Past, changed)


def without(state):
    """Returns a state without its buffers, which alone may grow."""
    return replace(state, Past, lambda past: past.step)


def widened(state, count):
    """Returns a state whose buffers have `count` more places."""

    def wider(buffer):
        *outer, _, dim = ops.shape(buffer)
        more = ops.zeros((*outer, count, dim), dtype=buffer.dtype)
        return ops.concatenate([buffer, more], axis=-2)

    def changed(past):
        return Past(wider(past.keys), wider(past.values), past.step)

    return replace(state, Past, changed)
