"""The stepper of functional models inside the model."""

import copy

import keras
from keras import ops

from keras_attn.graph.nodes import given_to
from keras_attn.incremental.path import Path
from keras_attn.incremental.registry import stepper_for
from keras_attn.incremental.stepper import Stepper
from keras_attn.incremental.stepper import masked
from keras_attn.keras_internals import Functional
from keras_attn.keras_internals import set_keras_mask


@stepper_for(Functional, keras.Sequential)
class NestedStepper(Stepper):
    """Steps through the graph of an inner model.

    Attributes:
        given: The symbolic tensors that the model was called with, in the
            order of its inputs.
    """

    relies_on = ("call",)  # without its own `call` it computes its graph
    only_first = (
        "has an output that does not depend on the target; compute that in "
        "another model"
    )

    def __init__(self, call):
        super().__init__(call)
        model = self.layer
        self.given = given_to(model, (), call.arguments)
        follows = [call.depends(x) for x in self.given]
        self.path = Path(model.inputs, model.outputs, follows)
        self.outputs = [
            x
            for x, inner in zip(call.outputs, model.outputs, strict=True)
            if any(inner is y for y in self.path.outputs)
        ]
        self.position_wise = self.path.position_wise
        self.uses_position = self.path.uses_position
        self.attends = self.path.attends
        self.rows_leave = self.path.rows_leave
        self.slow_alone = self.path.slow_alone
        self.longest = self.path.longest

    def with_path(self, path):
        """Returns the stepper with another path."""
        stepper = copy.copy(self)
        stepper.path = path
        return stepper

    def prepare(self, constants):
        given = given_to(self.layer, (), constants)
        masks = constants.get("mask")
        masks = (
            [None] * len(given) if masks is None else keras.tree.flatten(masks)
        )
        found = []
        for x, mask, follows in zip(
            given, masks, self.path.follows, strict=True
        ):
            if not follows:
                value, mask = masked(x, mask)
                set_keras_mask(value, mask)
                found.append(value)
        return self.path.prepare(found)

    def start(self, prepared, batch, beams, max_length):
        return self.path.start(prepared, batch, beams, max_length)

    def step(self, inputs, prepared, state, position):
        given = given_to(self.layer, (), inputs)
        entries = [x for x in given if x is not None]
        entries = [
            ops.cast(x, entry.dtype)
            for x, entry in zip(entries, self.path.entries, strict=True)
        ]
        return self.path.step(entries, prepared, state, position)

    def reorder(self, state, parents):
        return self.path.reorder(state, parents)

    def time_axes(self, state):
        return self.path.time_axes(state)

    def source_mask(self, prepared):
        return self.path.source_mask(prepared)
