"""Flattens structures of tensors and None, and packs them again.

The signatures of `tf.function` and of exported functions cannot hold None or
empty tuples.
"""

import keras


def flatten(structure) -> list:
    """Returns the tensors of a structure in order, without None."""
    return [x for x in keras.tree.flatten(structure) if x is not None]


def pack(like, tensors):
    """Packs tensors into the structure of `like`; None stays None."""
    tensors = iter(tensors)
    return keras.tree.map_structure(
        lambda x: None if x is None else next(tensors), like
    )


def replace(structure, kind, change):
    """Returns a structure with each part of a type changed by a function.

    Args:
        structure: Nested tuples and lists.
        kind: The type, such as a named tuple.
        change: Function of a part that returns its replacement.
    """
    if isinstance(structure, kind):
        structure = change(structure)
    if not isinstance(structure, (tuple, list)):
        return structure
    parts = [replace(x, kind, change) for x in structure]
    if hasattr(structure, "_fields"):
        return type(structure)(*parts)
    return type(structure)(parts)
