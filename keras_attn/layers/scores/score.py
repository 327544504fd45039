"""The base class of scores, and functions that scores share."""

import keras
from keras import ops

from keras_attn.backend import reshape
from keras_attn.layers.parts import Part


class Score(Part):
    """Base class of all scores; subclasses write `call`, often `build`.

    A score is a part of an `Attention`, which builds it for queries and keys
    of known width, calls `project()` once per source and `call()` once per
    step. So any computation on the key alone belongs in `project()`.

    Attributes:
        by_position: Whether `project()` depends on the position of a key. It
            then needs the whole source at once.

    Call arguments:
        query: Tensor of shape `(batch, target, query_dim)`.
        keys: Result of `project(key)`, of shape `(batch, source, dim)`.

    `call` may name further arguments: see `Part`.

    Output shape:
        `(batch, target, source)`: one score per pair, not yet normalized.
    """

    by_position = False
    example = "call(self, query, keys)"

    def build(self, query_shape, key_shape):
        """Creates the weights for queries and keys of these shapes."""

    def project(self, key):
        """Projects keys `(batch, source, key_dim)` to `(batch, source, dim)`.

        By default returns them as they are.
        """
        return key

    def initial_carry(self, keys, beams):
        """Returns the score's own state before the first step.

        Args:
            keys: Result of `project()`, of shape `(batch, source, dim)`.
            beams: Number of queries per source.

        Returns:
            A structure of tensors `(batch, beams, ...)`; `()` for no state.
            `call` receives it as `history.carried`.
        """
        return ()

    def carry(self, carried, query, keys, alignments):
        """Returns the score's own state after a step, in the same structure.

        Args:
            carried: The state before the step.
            query: Tensor of shape `(batch, beams, query_dim)`.
            keys: Result of `project()`, of shape `(batch, source, dim)`.
            alignments: The step's weights, `(batch, beams, source)`,
                float32.
        """
        return carried


def linear(inputs, kernel, bias=None):
    """Multiplies `(batch, ..., dim)` by `(dim, units)` in one product."""
    if inputs.shape[-1] != kernel.shape[0]:
        raise ValueError(
            f"This score was built for vectors of width {kernel.shape[0]}. "
            f"Received: a tensor of shape {tuple(inputs.shape)}. The weights "
            "of an attention fit one width of queries and one of keys. Make "
            "another attention for another width."
        )
    flat = ops.matmul(ops.reshape(inputs, (-1, kernel.shape[0])), kernel)
    flat = flat if bias is None else flat + bias
    return reshape(flat, (*ops.shape(inputs)[:-1], kernel.shape[1]))


def length(x):
    """Returns the size of axis 1: a number if it is known, else a tensor."""
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
