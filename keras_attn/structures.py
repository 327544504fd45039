"""Structures of tensors and None, as flat tensors and back.

None and empty tuples do not cross the border of a function's signature.
"""

import keras


def flatten(structure) -> list:
    """The tensors of a structure, in order."""
    return [x for x in keras.tree.flatten(structure) if x is not None]


def pack(like, tensors):
    """The structure again; what is None in `like` has no tensor."""
    tensors = iter(tensors)
    return keras.tree.map_structure(
        lambda x: None if x is None else next(tensors), like
    )
