"""The stepper of layers that treat each position alone.

It runs every layer that has no other stepper.
"""

from inspect import isfunction

import keras
from keras import ops

from keras_attn.graph.calls import takes
from keras_attn.incremental.mixing import refuse_mixing
from keras_attn.incremental.registry import stepper_for
from keras_attn.incremental.stepper import Stepper
from keras_attn.keras_internals import get_keras_mask
from keras_attn.keras_internals import set_keras_mask
from keras_attn.layers.attention.heads import apply_to_rows


@stepper_for(keras.Operation)
class PositionWiseStepper(Stepper):
    """Calls a layer directly, with hypotheses where it expects positions."""

    rows_leave = True
    position_wise = True
    relies_on = ()  # any subclass may be called

    def __init__(self, call):
        super().__init__(call)
        refuse_mixing(call)
        self._takes_vectors = _takes_vectors(call)
        # The arguments, with None in place of those that a step reads.
        self._others = {
            name: keras.tree.map_structure(
                lambda x: None if call.depends(x) else x, argument
            )
            for name, argument in call.arguments.items()
        }
        if takes(self.layer, "training"):
            self._others["training"] = False

    def prepare(self, constants):
        found = tuple(
            value
            for symbol, value in zip(
                keras.tree.flatten(self._others),
                keras.tree.flatten(self._others | constants),
                strict=True,
            )
            if isinstance(symbol, keras.KerasTensor)
        )
        return found, tuple(map(get_keras_mask, found))

    def step(self, inputs, prepared, state, position):
        constants, masks = prepared
        first = next(x for x in keras.tree.flatten(inputs) if x is not None)
        if self._takes_vectors:
            return apply_to_rows(self.layer, first), None, state
        if first.shape[1] is None and not _is_known(self.layer):
            return self._by_rows(inputs, constants, masks), None, state
        for value, mask in zip(constants, masks, strict=True):
            if mask is not None:
                set_keras_mask(value, mask)
        args, kwargs = self.call.as_called(self.filled(inputs, constants))
        return self.layer(*args, **kwargs), None, state

    def _by_rows(self, inputs, constants, masks):
        """Calls a layer with a row of one position for each hypothesis.

        A user's own layer may need to know the number of positions.
        """
        first = next(x for x in keras.tree.flatten(inputs) if x is not None)
        beams = ops.shape(first)[1]
        repeated = [ops.repeat(x, beams, axis=0) for x in constants]
        for value, mask in zip(repeated, masks, strict=True):
            if mask is not None:
                set_keras_mask(value, ops.repeat(mask, beams, axis=0))
        inputs = keras.tree.map_structure(
            lambda x: None if x is None else as_rows(x), inputs
        )
        args, kwargs = self.call.as_called(self.filled(inputs, repeated))
        return keras.tree.map_structure(
            lambda x: as_beams(x, beams), self.layer(*args, **kwargs)
        )

    def filled(self, inputs, constants):
        """Returns the arguments of the call by name, with values.

        Args:
            inputs: The values of the arguments that depend on the target.
            constants: Tuple of the other tensors' values, as `prepare()`
                found them.
        """
        constants = iter(constants)
        found = keras.tree.map_structure(
            lambda x: (
                next(constants) if isinstance(x, keras.KerasTensor) else x
            ),
            self._others,
        )
        for name, given in inputs.items():
            found[name] = keras.tree.map_structure(
                lambda x, other: other if x is None else x, given, found[name]
            )
        return found


def as_rows(x):
    """`(batch, beams, ...)` -> `(batch * beams, 1, ...)`."""
    return ops.reshape(x, (-1, 1, *x.shape[2:]))


def as_beams(x, beams):
    """`(batch * beams, 1, ...)` -> `(batch, beams, ...)`."""
    return ops.reshape(x, (-1, beams, *x.shape[2:]))


# The functions that Keras knows by name
_OF_KERAS = [x for x in vars(keras.activations).values() if isfunction(x)]


def _takes_vectors(call):
    """Whether a call computes the same for `(rows, dim)` as with a third axis.

    With three axes `Dense` runs ten more operations.
    """
    if type(call.layer) is not keras.layers.Dense or "call" in vars(call.layer):
        return False
    (x,) = call.input_tensors
    # Other activations, such as layers, may depend on the number of axes.
    return call.layer.activation in _OF_KERAS and len(x.shape) == 3


def _is_known(operation):
    """Whether an operation takes any number of positions."""
    package = type(operation).__module__.partition(".")[0]
    return package in ("keras", "keras_hub", "keras_attn")
