"""The stepper of layers that treat each position alone.

It runs every layer that has no other stepper.
"""

import keras

from keras_attn.graph.calls import takes
from keras_attn.incremental.mixing import refuse_mixing
from keras_attn.incremental.registry import stepper_for
from keras_attn.incremental.stepper import Stepper
from keras_attn.keras_internals import get_keras_mask
from keras_attn.keras_internals import set_keras_mask


@stepper_for(keras.Operation)
class PositionWiseStepper(Stepper):
    """Calls a layer directly, with hypotheses where it expects positions."""

    rows_leave = True
    position_wise = True
    relies_on = ()  # any subclass may be called

    def __init__(self, call):
        super().__init__(call)
        refuse_mixing(call)
        # The arguments with None in the place of what a step reads.
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
        for value, mask in zip(constants, masks, strict=True):
            if mask is not None:
                set_keras_mask(value, mask)
        args, kwargs = self.call.as_called(self.filled(inputs, constants))
        return self.layer(*args, **kwargs), None, state

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
