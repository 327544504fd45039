"""The stepper of KerasHub's `MoonshineDecoderBlock`, a whole block."""

import keras
from keras import ops

from keras_attn.incremental.registry import stepper_for
from keras_attn.incremental.steppers.block import BlockStepper
from keras_attn.incremental.steppers.heads import ManyHeads
from keras_attn.keras_internals import producer
from keras_attn.layers.decoder.past import OwnPast


@stepper_for("keras_hub>MoonshineDecoderBlock")
class MoonshineStepper(BlockStepper):
    """Runs the parts of a block of Moonshine.

    A call computes the rotation angles of queries and keys for all positions. A
    step computes those of its own position, with the same layer.
    """

    uses_position = True
    takes_attached_mask = True
    left_out = (
        "encoder_attention_mask",
        "self_attention_cache",
        "cross_attention_cache",
    )

    def __init__(self, call):
        super().__init__(call)
        self.reads.pop("rotary_embedding", None)  # a step makes its own
        self._angles = self._layer_of_angles()

    def _layer_of_angles(self):
        angles = self.call.arguments["rotary_embedding"]
        layer = None
        if isinstance(angles, keras.KerasTensor):
            layer = producer(angles).operation
        if type(layer).__name__ != "MoonshineRotaryEmbedding":
            self.refuse(
                "has a `rotary_embedding` that is not the output of a "
                "`MoonshineRotaryEmbedding`, so the angles of one position "
                "are unknown; pass that layer's output for the numbers of the "
                "positions, `ops.arange(ops.shape(target)[1])`"
            )
        return layer

    def source_heads(self):
        return ManyHeads(self.layer.cross_attention)

    def past(self, position):
        angles = self._angles(ops.reshape(position, (-1,)))
        return OwnPast(_TurnedHeads(self.layer.self_attention, angles))

    def step(self, inputs, prepared, state, position):
        layer, past = self.layer, self.past(position)
        x = ops.cast(self.target_of(inputs), layer.compute_dtype)
        normal = layer.norm1(x)
        state = past.append(state, normal)
        x = x + past.attend(state, normal)
        attended, _ = self.source_heads().attend_step(layer.norm2(x), prepared)
        x = x + attended.context
        x = x + layer.ff(layer.norm3(x))
        return x, attended.alignments, state


class _TurnedHeads(ManyHeads):
    """Adapter of an attention that rotates the first columns of keys.

    Rotary position embedding: Su et al., 2021, https://arxiv.org/abs/2104.09864,
    equation 34.

    Args:
        layer: The layer.
        angles: Angle of each column to turn, two equal ones for each pair,
            `(rows or 1, columns)`.
    """

    def __init__(self, layer, angles):
        super().__init__(layer)
        self._angles = angles

    def placed(self, x):
        angles = ops.cast(self._angles, x.dtype)[:, None, None]
        count = angles.shape[-1]
        turned, rest = x[..., :count], x[..., count:]
        # Of each pair (a, b) makes (-b, a).
        across = ops.stack([-turned[..., 1::2], turned[..., ::2]], axis=-1)
        across = ops.reshape(across, ops.shape(turned))
        turned = turned * ops.cos(angles) + across * ops.sin(angles)
        return ops.concatenate([turned, rest], axis=-1)
