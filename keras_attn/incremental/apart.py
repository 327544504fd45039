"""Steps of hypotheses that do not belong together, as of several clients.

Their sources may differ in width, and they in position. What is told of a
structure here holds for those of `Incremental` and of `Ensemble` alike.
"""

from keras import ops

from keras_attn.attention import Memory
from keras_attn.decoder.state import Past
from keras_attn.incremental.base import State


def with_masks(encoded):
    """Gives memories without a mask one, of `True`.

    So that nothing is seen of what a wider neighbour adds. A memory whose
    length is fixed has no such neighbours.

    Args:
        encoded: What `encode()` returned.
    """

    def masked(memory):
        if memory.mask is not None or memory.keys.shape[-2] is not None:
            return memory
        batch, source = ops.shape(memory.keys)[0], ops.shape(memory.keys)[-2]
        return memory._replace(mask=ops.ones((batch, source), dtype="bool"))

    return _replace(encoded, Memory, masked)


def steps_left(state, max_length):
    """How many steps a state has room for, or `None` where there is no end.

    Args:
        state: What `start()` or a step returned.
        max_length: What `start()` was told.

    Returns:
        int32 tensor `(batch, beams)`: what its buffers of the past and
        vectors of positions leave.
    """
    left = []

    def look(kind, of):
        def note(found):
            if not isinstance(of(found), tuple):
                left.append(max_length - of(found))
            return found

        _replace(state, kind, note)

    look(State, lambda x: x.position)
    look(Past, lambda x: x.step)
    if not left:
        return None
    return ops.min(ops.stack(left), axis=0)


def with_positions(state, change):
    """A state whose positions a function has changed."""

    def changed(found):
        if isinstance(found.position, tuple):
            return found
        return found._replace(position=change(found.position))

    return _replace(state, State, changed)


def _replace(structure, kind, change):
    """The structure with another in the place of each of a kind."""
    if isinstance(structure, kind):
        structure = change(structure)
    if not isinstance(structure, (tuple, list)):
        return structure
    parts = [_replace(x, kind, change) for x in structure]
    if hasattr(structure, "_fields"):
        return type(structure)(*parts)
    return type(structure)(parts)
