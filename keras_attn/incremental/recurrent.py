"""Steppers of recurrent layers: `AttentionDecoder` and Keras's own."""

from typing import Any
from typing import NamedTuple

import keras
from keras import layers
from keras import ops

from keras_attn import cells
from keras_attn.incremental.refuse import refuse
from keras_attn.incremental.steppers import Stepper
from keras_attn.incremental.steppers import arguments_of
from keras_attn.incremental.steppers import fill
from keras_attn.incremental.steppers import masked
from keras_attn.incremental.steppers import require_constant

RECURRENT = layers.RNN, layers.GRU, layers.LSTM, layers.SimpleRNN


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
        return _Prepared(source, _flat(fill(state, values)))

    def hoist(self, prepared, tokens, compiled):
        table = tokens and tokens.values.get(id(self._inputs))
        hoisted = self.operation.hoist(prepared.source, table)
        if hoisted is None:
            return prepared
        ids = id(tokens.ids) if hoisted.looks_up else None
        few = _few(table if hoisted.looks_up else None) if compiled else 0
        return prepared._replace(hoisted=_Hoisted(hoisted.step, ids, few))

    def start(self, prepared, batch, beams, max_length):
        source, states, _ = prepared
        return self.operation.start(
            source, list(states) or None, beams, max_length, batch
        )

    def step(self, values, prepared, state, position):
        inputs = values[id(self._inputs)]
        outputs, alignments, state = _step(
            prepared.hoisted,
            lambda: self.operation.step(inputs, state, prepared.source),
            values,
            inputs,
            state,
        )
        alignments = keras.tree.flatten(alignments)
        dtype = self.operation.compute_dtype
        given = [outputs, *(ops.cast(x, dtype) for x in alignments)]
        first = alignments[0] if alignments else None
        return given[: len(self.outputs)], first, state

    def source_mask(self, prepared):
        return prepared.source.memories[0].mask


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
        return _Prepared((), _flat(fill(self._initial_state, values)))

    def hoist(self, prepared, tokens, compiled):
        table = tokens and tokens.values.get(id(self._inputs))
        cell = self.operation.cell
        if table is None or not cells.is_tabulable(cell):
            return prepared
        looked_up = cells.TabulatedCell(cell, table)

        def step(inputs, ids, state):
            return looked_up.run(ids, None, state)

        few = _few(table) if compiled else 0
        return prepared._replace(hoisted=_Hoisted(step, id(tokens.ids), few))

    def start(self, prepared, batch, beams, max_length):
        layer = self.operation
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

    def step(self, values, prepared, state, position):
        layer = self.operation
        inputs = ops.cast(values[id(self._inputs)], layer.compute_dtype)
        output, state = _step(
            prepared.hoisted,
            lambda: cells.run(layer.cell, inputs, state, training=False),
            values,
            inputs,
            state,
        )
        return [ops.cast(output, layer.compute_dtype)], None, state


def _flat(states):
    return () if states is None else tuple(keras.tree.flatten(states))


class _Hoisted(NamedTuple):
    """A step of which some products are taken before the loop."""

    step: Any  # function of inputs, ids of their tokens and state
    ids: Any  # `id` of the tensor of these, None where they are not used
    few: int  # with so many hypotheses of all sources or fewer it does not pay


class _Prepared(NamedTuple):
    """What a recurrent layer needs of the source."""

    source: Any  # of an `AttentionDecoder`
    states: tuple  # the first ones, flat; () for the cell's own
    hoisted: _Hoisted | tuple = ()


def _few(table):
    """With how many hypotheses taking products out costs more than it saves.

    As measured, where XLA also copies the parts of the weights.
    """
    return 4 if table is None else table.shape[0] // 16


def _step(hoisted, plain, values, inputs, state):
    """Takes the faster of two steps, which compute the same."""
    if not hoisted:
        return plain()

    def faster():
        return hoisted.step(inputs, values.get(hoisted.ids), state)

    if not hoisted.few:
        return faster()
    batch, beams = ops.shape(inputs)[:2]
    many = batch * beams > hoisted.few
    if isinstance(many, bool):  # sizes known, as on JAX
        return faster() if many else plain()
    # XLA, which knows them when it compiles, drops the other branch.
    return ops.switch(ops.cast(many, "int32"), [plain, faster])
