"""Recurrent layers of Keras, which run their cells."""

import keras
from keras import layers
from keras import ops

from keras_attn import cells
from keras_attn.incremental.registry import stepper_for
from keras_attn.incremental.stepper import TOKENS
from keras_attn.incremental.stepper import Stepper
from keras_attn.incremental.steppers.hoisted import Hoisted
from keras_attn.incremental.steppers.hoisted import Prepared
from keras_attn.incremental.steppers.hoisted import faster_of
from keras_attn.incremental.steppers.hoisted import few
from keras_attn.incremental.steppers.hoisted import flat


@stepper_for(layers.RNN, layers.GRU, layers.LSTM, layers.SimpleRNN)
class RecurrentStepper(Stepper):
    """A `keras.layers.RNN`, `GRU`, `LSTM` or `SimpleRNN` runs its cell."""

    recurrent = True
    hoists = True
    only_first = (
        "returns its last states, which are those of the whole target; "
        "only its outputs are there at each position"
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
                "has `go_backwards=True`, so it begins with tokens still to "
                "come; leave it out",
            ),
            (
                layer.stateful,
                "has `stateful=True`, so it remembers other batches; leave "
                "it out",
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
        return Prepared((), flat(constants.get("initial_state")))

    def hoist(self, prepared, tables, compiled):
        table = tables.get(id(self.reads["sequences"]))
        cell = self.layer.cell
        if table is None or not cells.is_tabulable(cell):
            return prepared
        looked_up = cells.TabulatedCell(cell, table)

        def step(inputs, ids, state):
            return looked_up.run(ids, None, state)

        least = few(table) if compiled else 0
        return prepared._replace(hoisted=Hoisted(step, least))

    def start(self, prepared, batch, beams, max_length):
        layer = self.layer
        states = prepared.states or keras.tree.flatten(
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
        layer, hoisted = self.layer, prepared.hoisted
        given = ops.cast(inputs["sequences"], layer.compute_dtype)
        tokens = inputs.get(TOKENS)
        if not hoisted:
            found = cells.run(layer.cell, given, state, training=False)
        elif not hoisted.few:
            found = hoisted.step(given, tokens, state)
        else:
            found = faster_of(
                hoisted.few,
                given,
                lambda: cells.run(layer.cell, given, state, training=False),
                lambda: hoisted.step(given, tokens, state),
            )
        output, state = found
        return ops.cast(output, layer.compute_dtype), None, state
