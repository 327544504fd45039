"""The stepper of `AttentionDecoder`, which has its own step."""

from typing import Any
from typing import NamedTuple

import keras
from keras import ops

from keras_attn.incremental.registry import stepper_for
from keras_attn.incremental.stepper import Stepper
from keras_attn.incremental.steppers.attention import time_axes_of
from keras_attn.incremental.steppers.recurrent import flat
from keras_attn.layers.decoder import AttentionDecoder


class PreparedDecoder(NamedTuple):
    """The constants of a decoder's steps, prepared once per source."""

    source: Any  # the decoder's `Source`
    states: tuple  # the first states, flat; () for the cell's own


@stepper_for(AttentionDecoder)
class DecoderStepper(Stepper):
    """Runs the decoder's own step."""

    rows_leave = True
    relies_on = "call", "__call__"  # a step runs the other methods
    only_first = "returns samples, which it draws only in training"

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
        return PreparedDecoder(source, flat(constants.get("initial_state")))

    def start(self, prepared, batch, beams, max_length):
        source, states = prepared
        return self.layer.start(
            source, list(states) or None, beams, max_length, batch
        )

    def step(self, inputs, prepared, state, position):
        return self.returned(
            self.layer.step(inputs["inputs"], state, prepared.source)
        )

    def returned(self, found):
        """Turns the result of the decoder's step into that of `step()`."""
        outputs, alignments, state = found
        alignments = keras.tree.flatten(alignments)
        dtype = self.layer.compute_dtype
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
