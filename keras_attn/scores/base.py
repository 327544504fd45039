"""The base class of scores and what they share."""

import keras
from keras import ops

from keras_attn.parts import Part


class Score(Part):
    """Base class of all scores; subclasses write `call`, often `build`.

    A score is a part of an `Attention` and is not called by itself: that
    builds it for queries and keys of known width, calls `project()` once per
    source and `call()` once per step. So whatever depends on the key alone
    belongs in `project()`.

    Attributes:
        by_position: Whether `project()` tells keys apart by where they are,
            so that it must be given all of a source at once.

    Call arguments:
        query: Tensor of shape `(batch, target, query_dim)`.
        keys: Result of `project(key)`, of shape `(batch, source, dim)`.

    It is given any other that it names: see `Part`.

    Output shape:
        `(batch, target, source)`: one score per pair, not yet normalised.
    """

    by_position = False

    def build(self, query_shape, key_shape):
        """Creates the weights for queries and keys of these shapes."""

    def project(self, key):
        """Carries keys `(batch, source, key_dim)` into the score's space."""
        return key

    def initial_carry(self, keys, beams):
        """What the score remembers beside the alignments, before any step.

        Args:
            keys: Result of `project()`, of shape `(batch, source, dim)`.
            beams: Number of queries a source.

        Returns:
            A structure of tensors `(batch, beams, ...)`; `()` for nothing. It
            reaches `call` as `history.carried`.
        """
        return ()

    def carry(self, carried, query, keys, alignments):
        """What it remembers after a step, in the structure that came in.

        Args:
            carried: What it remembered before the step.
            query: Tensor of shape `(batch, beams, query_dim)`.
            keys: Result of `project()`, of shape `(batch, source, dim)`.
            alignments: The step's weights, `(batch, beams, source)`.
        """
        return carried


def linear(inputs, kernel, bias=None):
    """`(batch, ..., dim)` times `(dim, units)` as one matrix product."""
    if inputs.shape[-1] != kernel.shape[0]:
        raise ValueError(
            f"This score was built for vectors of width {kernel.shape[0]}. "
            f"Received: a tensor of shape {tuple(inputs.shape)}. An attention "
            "has weights for one width of queries and one of keys; make "
            "another for another width."
        )
    flat = ops.matmul(ops.reshape(inputs, (-1, kernel.shape[0])), kernel)
    flat = flat if bias is None else flat + bias
    return ops.reshape(flat, (-1, *ops.shape(inputs)[1:-1], kernel.shape[1]))


def length(x):
    """Size of axis 1: a number where it is known, else a tensor."""
    return ops.shape(x)[1]


def clone(initializer):
    if isinstance(initializer, keras.initializers.Initializer):
        return initializer.clone()
    return initializer


def positive_number(value, name, example):
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (number and 0 < value < float("inf")):
        raise ValueError(
            f"`{name}` must be a positive number. Received: {name}={value!r}. "
            f"Pass for example `{name}={example}`."
        )
    return value
