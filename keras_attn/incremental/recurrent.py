"""Steppers of recurrent layers: `AttentionDecoder` and Keras's own."""

import keras
from keras import ops

from keras_attn import cells
from keras_attn.incremental.refuse import refuse
from keras_attn.incremental.steppers import Stepper
from keras_attn.incremental.steppers import arguments_of
from keras_attn.incremental.steppers import fill
from keras_attn.incremental.steppers import masked
from keras_attn.incremental.steppers import require_constant


class Decoder(Stepper):
    """An `AttentionDecoder` has a step of its own."""

    only_first = "draws samples only in training, and returns them then"

    def __init__(self, node, depends):
        super().__init__(node, depends)
        layer, call = self.operation, arguments_of(node)
        names = "memory", "memory_mask", "condition", "initial_state"
        self._arguments = {name: call.get(name) for name in names}
        require_constant(layer, depends, **self._arguments)
        self._inputs = call["inputs"]
        self.attends = bool(layer.attentions)
        scores = call.get("return_attention_scores", False)
        self.outputs = node.outputs[: 1 + len(layer.attentions) * scores]

    def prepare(self, values):
        memory, mask, condition, state = self._arguments.values()
        memory, mask = masked(memory, mask, values)
        source = self.operation.prepare(memory, mask, fill(condition, values))
        return source, _flat(fill(state, values))

    def start(self, prepared, batch, beams, max_length):
        source, states = prepared
        return self.operation.start(
            source, list(states) or None, beams, max_length, batch
        )

    def step(self, values, prepared, state, position):
        source, _ = prepared
        outputs, alignments, state = self.operation.step(
            values[id(self._inputs)], state, source
        )
        alignments = keras.tree.flatten(alignments)
        dtype = self.operation.compute_dtype
        given = [outputs, *(ops.cast(x, dtype) for x in alignments)]
        first = alignments[0] if alignments else None
        return given[: len(self.outputs)], first, state

    def source_mask(self, prepared):
        source, _ = prepared
        return source.memories[0].mask


class Recurrent(Stepper):
    """A `keras.layers.RNN`, `GRU`, `LSTM` or `SimpleRNN` runs its cell."""

    only_first = (
        "returns its last states, which are those of the whole target; "
        "only its outputs are there at each position"
    )

    def __init__(self, node, depends):
        super().__init__(node, depends)
        layer, call = self.operation, arguments_of(node)
        self._inputs = call["sequences"]
        self._initial_state = call.get("initial_state")
        require_constant(layer, depends, initial_state=self._initial_state)
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
                len(self._inputs.shape) != 3,
                "has inputs whose axes are not (batch, target, dim)",
            ),
        ):
            if wrong:
                refuse(layer, reason)
        self.outputs = node.outputs[:1]

    def prepare(self, values):
        return _flat(fill(self._initial_state, values))

    def start(self, prepared, batch, beams, max_length):
        layer = self.operation
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

    def step(self, values, prepared, state, position):
        layer = self.operation
        inputs = ops.cast(values[id(self._inputs)], layer.compute_dtype)
        output, state = cells.run(layer.cell, inputs, state, training=False)
        return [ops.cast(output, layer.compute_dtype)], None, state


def _flat(states):
    return () if states is None else tuple(keras.tree.flatten(states))
