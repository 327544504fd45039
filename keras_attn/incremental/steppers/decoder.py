"""`AttentionDecoder`, which has a step of its own."""

import keras
from keras import ops

from keras_attn.decoder import AttentionDecoder
from keras_attn.incremental.registry import stepper_for
from keras_attn.incremental.stepper import TOKENS
from keras_attn.incremental.stepper import Stepper
from keras_attn.incremental.steppers.attention import time_axes_of
from keras_attn.incremental.steppers.hoisted import Hoisted
from keras_attn.incremental.steppers.hoisted import Prepared
from keras_attn.incremental.steppers.hoisted import faster_of
from keras_attn.incremental.steppers.hoisted import few
from keras_attn.incremental.steppers.hoisted import flat


@stepper_for(AttentionDecoder)
class DecoderStepper(Stepper):
    """Runs the decoder's own step."""

    recurrent = True
    hoists = True
    relies_on = "call", "__call__"  # the others are what a step runs
    only_first = "draws samples only in training, and returns them then"

    def __init__(self, call):
        super().__init__(call)
        names = "memory", "memory_mask", "condition", "initial_state"
        given = call.arguments
        self.require_constant(**{name: given.get(name) for name in names})
        attentions = self.layer.attentions
        self.attends = bool(attentions)
        scores = given.get("return_attention_scores", False)
        self.outputs = call.outputs[: 1 + len(attentions) * scores]

    def prepare(self, constants):
        memory, mask = self.with_mask(constants, "memory")
        source = self.layer.prepare(memory, mask, constants.get("condition"))
        return Prepared(source, flat(constants.get("initial_state")))

    def hoist(self, prepared, tables, compiled):
        table = tables.get(id(self.reads["inputs"]))
        hoisted = self.layer.hoist(prepared.source, table)
        if hoisted is None:
            return prepared
        least = few(table if hoisted.looks_up else None) if compiled else 0
        return prepared._replace(hoisted=Hoisted(hoisted.step, least))

    def start(self, prepared, batch, beams, max_length):
        source, states, _ = prepared
        return self.layer.start(
            source, list(states) or None, beams, max_length, batch
        )

    def step(self, inputs, prepared, state, position):
        layer, hoisted = self.layer, prepared.hoisted
        given, tokens = inputs["inputs"], inputs.get(TOKENS)
        if not hoisted:
            found = layer.step(given, state, prepared.source)
        elif not hoisted.few:
            found = hoisted.step(given, tokens, state)
        else:
            found = faster_of(
                hoisted.few,
                given,
                lambda: layer.step(given, state, prepared.source),
                lambda: hoisted.step(given, tokens, state),
            )
        outputs, alignments, state = found
        alignments = keras.tree.flatten(alignments)
        dtype = layer.compute_dtype
        outputs = [outputs, *(ops.cast(x, dtype) for x in alignments)]
        first = alignments[0] if alignments else None
        return outputs[: len(self.outputs)], first, state

    def time_axes(self, state):
        axes = super().time_axes(state)
        if not self.layer.self_attention:
            return axes
        return axes._replace(past=time_axes_of(state.past))

    def source_mask(self, prepared):
        return prepared.source.memories[0].mask
