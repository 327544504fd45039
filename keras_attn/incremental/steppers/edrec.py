"""The stepper of KerasHub's `EdRecDecoderBlock`, a whole block."""

from keras import ops

from keras_attn.incremental.registry import stepper_for
from keras_attn.incremental.steppers.block import BlockStepper
from keras_attn.incremental.steppers.heads import ManyHeads
from keras_attn.layers.decoder.past import OwnPast


@stepper_for("keras_hub.src.models.edrec.edrec_layers.EdRecDecoderBlock")
class EdRecStepper(BlockStepper):
    """Runs the parts of a block of EdRec.

    When called, the block also returns two empty tensors instead of caches.
    """

    only_first = (
        "returns caches beside the hidden states; a step returns the hidden "
        "states alone"
    )
    target_name, source_name = "x", "encoder_outputs"
    left_out = "self_attention_cache", "cross_attention_cache"

    def __init__(self, call):
        super().__init__(call)
        if not call.arguments.get("use_causal_mask", True):
            self.refuse(
                "mixes target positions; leave `use_causal_mask=False` out"
            )
        self.outputs = call.outputs[:1]

    def source_heads(self):
        return ManyHeads(self.layer.cross_attention)

    def past(self, position):
        return OwnPast(ManyHeads(self.layer.self_attention))

    def step(self, inputs, prepared, state, position):
        layer, past = self.layer, self.past(position)
        x = ops.cast(self.target_of(inputs), layer.compute_dtype)
        normal = layer.pre_self_attn_norm(x)
        state = past.append(state, normal)
        x = x + past.attend(state, normal)
        attended, _ = self.source_heads().attend_step(
            layer.pre_cross_attn_norm(x), prepared
        )
        x = x + attended.context
        x = x + layer.mlp(layer.pre_ffw_norm(x))
        return x, attended.alignments, state
