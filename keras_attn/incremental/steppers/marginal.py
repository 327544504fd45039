"""The stepper of `MarginalDecoder`, which has its own step."""

from typing import Any
from typing import NamedTuple

from keras import ops

from keras_attn.incremental.registry import stepper_for
from keras_attn.incremental.stepper import Stepper
from keras_attn.incremental.steppers.recurrent import flat
from keras_attn.layers.marginal import MarginalDecoder


class PreparedMarginal(NamedTuple):
    """The constants of a decoder's steps, prepared once per source."""

    source: Any  # result of the layer's `prepare()`
    states: tuple  # the first states, flat; () for the cell's own


@stepper_for(MarginalDecoder)
class MarginalStepper(Stepper):
    """Runs the decoder's own step."""

    rows_leave = True
    attends = True

    def __init__(self, call):
        super().__init__(call)
        names = "memory", "memory_mask", "initial_state"
        self.require_constant(
            **{name: call.arguments.get(name) for name in names}
        )
        for name in ("inputs", "ids"):
            if name not in self.reads:
                self.refuse(
                    f"has `{name}` that do not depend on the target; call it "
                    "as `decoder(embed(target), memory, target)`"
                )

    def prepare(self, constants):
        memory, mask = self.with_mask(constants, "memory")
        source = self.layer.prepare(memory, mask)
        return PreparedMarginal(source, flat(constants.get("initial_state")))

    def start(self, prepared, batch, beams, max_length):
        states = list(prepared.states) or None
        return self.layer.start(prepared.source, states, beams)

    def step(self, inputs, prepared, state, position):
        logits, alignments, state = self.layer.step(
            inputs["inputs"], inputs["ids"], state, prepared.source
        )
        outputs = [logits, ops.cast(alignments, self.layer.compute_dtype)]
        found = outputs[: len(self.outputs)]
        return found, ops.cast(alignments, "float32"), state

    def source_mask(self, prepared):
        return prepared.source.mask
