"""Prepares recurrent layers, with or without hoisted products."""

from typing import Any
from typing import NamedTuple

import keras
from keras import ops


class Hoisted(NamedTuple):
    """A step of which some products are taken before the loop."""

    step: Any  # function of inputs, ids of their tokens and state
    few: int  # with so many hypotheses of all sources or fewer it does not pay


class Prepared(NamedTuple):
    """The source's part in the steps of a recurrent layer."""

    source: Any  # of an `AttentionDecoder`
    states: tuple  # the first ones, flat; () for the cell's own
    hoisted: Hoisted | tuple = ()


def flat(states):
    """Returns states as a tuple of tensors, () where none are given."""
    return () if states is None else tuple(keras.tree.flatten(states))


def few(table):
    """With how many hypotheses taking products out costs more than it saves.

    As measured, where XLA also copies the parts of the weights.
    """
    return 4 if table is None else table.shape[0] // 16


def faster_of(few, inputs, plain, hoisted):
    """Takes the faster of two steps, which compute the same.

    Args:
        few: With so many hypotheses or fewer the plain one is faster.
        inputs: Tensor of shape `(batch, beams, dim)`.
        plain: Function without arguments.
        hoisted: Another.
    """
    batch, beams = ops.shape(inputs)[:2]
    many = batch * beams > few
    if isinstance(many, bool):  # sizes known, as on JAX
        return hoisted() if many else plain()
    # XLA, which knows them when it compiles, drops the other branch.
    return ops.switch(ops.cast(many, "int32"), [plain, hoisted])
