"""Steps of unrelated hypotheses, such as those of several clients.

Their sources may differ in length, and the hypotheses in position. Each
function takes the structures of an `Incremental` or an `Ensemble`.
"""

from keras import ops

from keras_attn.incremental.buffers import Prefix
from keras_attn.incremental.incremental import State
from keras_attn.layers.attention import Memory
from keras_attn.layers.decoder.state import Past
from keras_attn.structures import replace


def with_masks(encoded):
    """Gives each memory without a mask a mask of `True`.

    A longer source in the same batch pads the memory, and the mask hides
    this padding. A memory of fixed length is never padded and gets no mask.

    Args:
        encoded: Result of `encode()`.
    """

    def masked(memory):
        if memory.mask is not None or memory.keys.shape[-2] is not None:
            return memory
        batch, source = ops.shape(memory.keys)[0], ops.shape(memory.keys)[-2]
        return memory._replace(mask=ops.ones((batch, source), dtype="bool"))

    return replace(encoded, Memory, masked)


def steps_left(state, max_length):
    """Returns the number of steps that fit a state, `None` for any number.

    Args:
        state: Result of `start()` or of a step.
        max_length: The `max_length` that `start()` got.

    Returns:
        int32 tensor `(batch, beams)`, limited by the state's buffers of past
        positions and by its position; or `None`.
    """
    left = []

    def look(kind, of):
        def note(found):
            if not isinstance(of(found), tuple):
                left.append(max_length - of(found))
            return found

        replace(state, kind, note)

    look(State, lambda x: x.position)
    look((Past, Prefix), lambda x: x.step)
    if not left:
        return None
    return ops.min(ops.stack(left), axis=0)


def with_positions(state, change):
    """Returns a state whose positions are mapped by a function."""

    def changed(found):
        if isinstance(found.position, tuple):
            return found
        return found._replace(position=change(found.position))

    return replace(state, State, changed)
