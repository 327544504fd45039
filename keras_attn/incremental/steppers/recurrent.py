"""The stepper of Keras's recurrent layers, which runs their cells."""

import keras
from keras import layers
from keras import ops

from keras_attn.incremental.registry import stepper_for
from keras_attn.incremental.stepper import Stepper
from keras_attn.layers import cells


@stepper_for(layers.RNN, layers.GRU, layers.LSTM, layers.SimpleRNN)
class RecurrentStepper(Stepper):
    """Runs the cell of a `keras.layers.RNN`, `GRU`, `LSTM` or `SimpleRNN`."""

    rows_leave = True
    only_first = (
        "returns its last states, which need the whole target; a step "
        "returns only its outputs"
    )

    def __init__(self, call):
        super().__init__(call)
        layer, given = self.layer, call.arguments
        self.require_constant(initial_state=given.get("initial_state"))
        for wrong, reason in (
            (
                not layer.return_sequences,
                "gives only its last output; pass `return_sequences=True`",
            ),
            (
                layer.go_backwards,
                "has `go_backwards=True`, so it begins with later tokens; "
                "leave it out",
            ),
            (
                layer.stateful,
                "has `stateful=True`, so it remembers other batches; build the "
                "model without it, and copy the weights with `set_weights`",
            ),
            (
                len(given["sequences"].shape) != 3,
                "has inputs whose axes are not (batch, target, dim)",
            ),
        ):
            if wrong:
                self.refuse(reason)
        self.outputs = call.outputs[:1]

    def prepare(self, constants):
        return flat(constants.get("initial_state"))

    def start(self, prepared, batch, beams, max_length):
        layer = self.layer
        states = prepared or keras.tree.flatten(
            cells.initial_state(layer.cell, batch, layer.cell.compute_dtype)
        )
        return tuple(
            ops.repeat(
                ops.expand_dims(ops.cast(x, layer.cell.compute_dtype), 1),
                beams,
                axis=1,
            )
            for x in states
        )

    def step(self, inputs, prepared, state, position):
        layer = self.layer
        given = ops.cast(inputs["sequences"], layer.compute_dtype)
        return self.returned(
            cells.run(layer.cell, given, state, training=False)
        )

    def returned(self, found):
        """Turns the cell's output and states into the result of `step()`."""
        output, state = found
        return ops.cast(output, self.layer.compute_dtype), None, state


def flat(states):
    """Returns states as a tuple of tensors, `()` if there are none."""
    return () if states is None else tuple(keras.tree.flatten(states))
