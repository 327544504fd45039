"""Changes how many places the buffers of past positions have."""

from typing import NamedTuple

import keras
from keras import ops

from keras_attn.backend import has_value
from keras_attn.layers.decoder.state import Past
from keras_attn.structures import replace


class Prefix(NamedTuple):
    """The inputs of a layer so far, for each hypothesis."""

    inputs: tuple  # tensors (batch, beams, max_length, dim)
    # (batch, beams), int32, how many positions there are; or () if the tensors
    # hold only these positions, without room for more.
    step: object


_KINDS = Past, Prefix  # their last field is the number of positions


def in_state(state):
    """Returns the buffers of a state, `(batch, beams, ..., time, dim)`."""
    found = []

    def note(past):
        *buffers, _ = past
        found.extend(keras.tree.flatten(buffers))
        return past

    replace(state, _KINDS, note)
    return found


def require_room(state) -> None:
    """Raises `ValueError` if a buffer has no place for the next position.

    In a graph nothing is checked.
    """

    def check(past):
        (buffer, *_), step = keras.tree.flatten(past[:-1]), past[-1]
        if isinstance(step, tuple) or not has_value(step):
            return past
        places = ops.shape(buffer)[-2]
        if ops.max(step, initial=0) >= places:
            raise ValueError(
                "A state has room for `max_length` steps, as given to "
                f"`start()`. Received: a further step after {places}. Pass a "
                "larger `max_length`."
            )
        return past

    replace(state, _KINDS, check)


def with_room(state, room):
    """Returns a first state whose buffers have `room` places.

    Args:
        state: Result of `start()`, before any step.
        room: Number of places. With 0, each step adds one.
    """

    def empty(buffer):
        *outer, _, dim = ops.shape(buffer)
        # Not the constant 0, which a graph would take for a fixed length.
        places = room or 0 * outer[0]
        return ops.zeros((*outer, places, dim), dtype=buffer.dtype)

    return _changed(state, empty, lambda step: step if room else ())


def without(state):
    """Returns a state without its buffers, the only parts that may grow."""
    return replace(state, _KINDS, lambda past: past.step)


def widened(state, count):
    """Returns a state whose buffers have `count` more places."""

    def wider(buffer):
        *outer, _, dim = ops.shape(buffer)
        more = ops.zeros((*outer, count, dim), dtype=buffer.dtype)
        return ops.concatenate([buffer, more], axis=-2)

    return _changed(state, wider)


def _changed(state, change, counted=lambda step: step):
    """Returns a state with other buffers, and other numbers of positions."""

    def changed(past):
        *buffers, step = past
        buffers = keras.tree.map_structure(change, buffers)
        return type(past)(*buffers, counted(step))

    return replace(state, _KINDS, changed)
