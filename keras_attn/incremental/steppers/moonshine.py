"""The stepper of KerasHub's `MoonshineDecoderBlock`, a whole block."""

from keras import ops

from keras_attn.decoder.past import OwnPast
from keras_attn.incremental.registry import stepper_for
from keras_attn.incremental.stepper import Stepper
from keras_attn.incremental.stepper import masked
from keras_attn.incremental.steppers.attention import require_length
from keras_attn.incremental.steppers.attention import require_no_padding
from keras_attn.incremental.steppers.attention import time_axes_of
from keras_attn.incremental.steppers.heads import ManyHeads
from keras_attn.keras_internals import moonshine_decoder_parts
from keras_attn.keras_internals import producer


@stepper_for("keras_hub>MoonshineDecoderBlock")
class MoonshineStepper(Stepper):
    """Runs the block's parts, as its `call` does.

    In a call the angles by which queries and keys are turned are those of all
    positions. A step asks their layer for those of its position.
    """

    attends = True
    uses_position = True

    def __init__(self, call):
        super().__init__(call)
        given = call.arguments
        names = "encoder_sequence", "encoder_padding_mask"
        self.require_constant(**{name: given.get(name) for name in names})
        if given.get("encoder_attention_mask") is not None:
            self.refuse("has `encoder_attention_mask`; leave it out")
        require_no_padding(self, "decoder_padding_mask")
        self.reads.pop("rotary_embedding", None)  # a step makes its own
        self._angles = producer(given["rotary_embedding"]).operation
        self._cross = ManyHeads(
            moonshine_decoder_parts(self.layer).cross_attention
        )

    def prepare(self, constants):
        memory, mask = masked(
            constants["encoder_sequence"], constants.get("encoder_padding_mask")
        )
        mask = None if mask is None else ops.cast(mask, "bool")
        return self._cross.prepare(memory, value_mask=mask)

    def start(self, prepared, batch, beams, max_length):
        require_length(self.layer, max_length)
        width = self.reads["decoder_sequence"].shape[-1]
        one = ops.zeros((batch, beams, width), self.layer.compute_dtype)
        return self._past(ops.zeros((), "int32")).start(one, max_length)

    def _past(self, position):
        angles = self._angles(ops.reshape(position, (-1,)))
        parts = moonshine_decoder_parts(self.layer)
        return OwnPast(_TurnedHeads(parts.self_attention, angles))

    def step(self, inputs, prepared, state, position):
        parts = moonshine_decoder_parts(self.layer)
        past = self._past(position)
        x = ops.cast(inputs["decoder_sequence"], self.layer.compute_dtype)
        normal = parts.self_attention_norm(x)
        state = past.append(state, normal)
        x = x + past.attend(state, normal)
        attended, _ = self._cross.attend_step(
            parts.cross_attention_norm(x), prepared
        )
        x = x + attended.context
        x = x + parts.feedforward(parts.feedforward_norm(x))
        return x, attended.alignments, state

    def source_mask(self, prepared):
        return prepared.mask

    def time_axes(self, state):
        return time_axes_of(state)


class _TurnedHeads(ManyHeads):
    """Adapter of an attention that turns the first columns of keys.

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
