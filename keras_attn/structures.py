"""Flattens structures of tensors and None, and packs them again.

Signatures of functions cannot hold None or empty tuples.
"""

import keras


def flatten(structure) -> list:
    """Returns the tensors of a structure, in order."""
    return [x for x in keras.tree.flatten(structure) if x is not None]


def pack(like, tensors):
    """Packs tensors into the structure of `like`, whose None stay None."""
    tensors = iter(tensors)
    return keras.tree.map_structure(
        lambda x: None if x is None else next(tensors), like
    )


def replace(structure, kind, change):
    """Returns a structure with each part of a kind replaced by `change`."""
    if isinstance(structure, kind):
        structure = change(structure)
    if not isinstance(structure, (tuple, list)):
        return structure
    parts = [replace(x, kind, change) for x in structure]
    if hasattr(structure, "_fields"):
        return type(structure)(*parts)
    return type(structure)(parts)
