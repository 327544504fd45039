"""The stepper of layers that take the number of a target position."""

import keras
from keras import ops

from keras_attn.graph.calls import takes
from keras_attn.incremental.registry import stepper_for
from keras_attn.incremental.stepper import POSITIONS
from keras_attn.incremental.stepper import positions_of
from keras_attn.incremental.steppers.position_wise import PositionWiseStepper
from keras_attn.incremental.steppers.position_wise import as_beams
from keras_attn.incremental.steppers.position_wise import as_rows


@stepper_for(keras.Operation)
class PositionedStepper(PositionWiseStepper):
    """Passes the number of the position as the argument `start_index`.

    The position embeddings of KerasHub and of this package take this argument.
    In the call, each hypothesis is a row of the batch, with one position.
    """

    uses_position = True

    @classmethod
    def accepts(cls, call):
        return takes(call.layer, "start_index")

    def __init__(self, call):
        super().__init__(call)
        first = call.arguments.get("start_index")
        self.longest = positions_of(self.layer, first)

    def start(self, prepared, batch, beams, max_length):
        layer, longest = self.layer, self.longest
        if max_length and longest and max_length > longest:
            name = next(x for x in POSITIONS if getattr(layer, x, None))
            raise ValueError(
                f"'{layer.name}' ({type(layer).__name__}) knows {longest} "
                "positions, so a target must not be longer. Received: "
                f"max_length={max_length}, {name}={getattr(layer, name)}. "
                "Search with a lower `max_length`, or train with a higher "
                f"`{name}`."
            )
        return ()

    def step(self, inputs, prepared, state, position):
        constants, _ = prepared
        dependent = [x for x in keras.tree.flatten(inputs) if x is not None]
        beams = ops.shape(dependent[0])[1]
        rows = [
            *map(as_rows, dependent),
            *(ops.repeat(x, beams, axis=0) for x in constants),
        ]
        shared = len(getattr(position, "shape", ())) == 0
        call = self._call_at if shared else self._call_apart
        outputs = call(inputs, rows, position)
        return [as_beams(x, beams) for x in outputs], None, state

    def _call_at(self, inputs, rows, position):
        """Calls the layer for rows that are all at one position.

        Args:
            inputs: Structure of the arguments that depend on the target.
            rows: The values for this structure, then the constants.
        """
        rows = iter(rows)
        inputs = keras.tree.map_structure(
            lambda x: None if x is None else next(rows), inputs
        )
        arguments = self.filled(inputs, rows)
        arguments["start_index"] = position + arguments.get("start_index", 0)
        args, kwargs = self.call.as_called(arguments)
        return keras.tree.flatten(self.layer(*args, **kwargs))

    def _call_apart(self, inputs, rows, position):
        """Calls the layer once if all positions are equal, else row by row."""
        position = ops.reshape(position, (-1,))
        first = ops.max(position, initial=0)

        def call_one(given):
            values, number = given
            one = [ops.expand_dims(x, 0) for x in values]
            outputs = self._call_at(inputs, one, number)
            return [ops.squeeze(x, 0) for x in outputs]

        return ops.cond(
            ops.all(position == first),
            lambda: self._call_at(inputs, rows, first),
            lambda: ops.map(call_one, (rows, position)),
        )
