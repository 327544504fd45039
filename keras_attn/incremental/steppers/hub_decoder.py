"""The stepper of KerasHub's `TransformerDecoder`, a whole block."""

from keras import ops

from keras_attn.incremental.registry import stepper_for
from keras_attn.incremental.steppers.block import BlockStepper
from keras_attn.incremental.steppers.heads import stepwise
from keras_attn.keras_internals import hub_decoder_parts
from keras_attn.layers.decoder.past import OwnPast


@stepper_for("keras_hub>TransformerDecoder")
class HubDecoderStepper(BlockStepper):
    """Runs the parts of a `TransformerDecoder`, with a source or without."""

    takes_attached_mask = True
    left_out = (
        "decoder_attention_mask",
        "encoder_attention_mask",
        "self_attention_cache",
        "cross_attention_cache",
    )

    def __init__(self, call):
        super().__init__(call)
        if not call.arguments.get("use_causal_mask", True):
            self.refuse(
                "mixes target positions; leave `use_causal_mask=False` out"
            )
        self.attends = self.source_of(call.arguments) is not None

    def source_heads(self):
        return stepwise(hub_decoder_parts(self.layer).cross_attention)

    def past(self, position):
        return OwnPast(stepwise(hub_decoder_parts(self.layer).self_attention))

    def step(self, inputs, prepared, state, position):
        layer, past, alignments = self.layer, self.past(position), None
        parts = hub_decoder_parts(layer)

        def attend_to_past(x):
            nonlocal state
            state = past.append(state, x)
            return past.attend(state, x)

        def attend_to_source(x):
            nonlocal alignments
            attended, _ = self.source_heads().attend_step(x, prepared)
            alignments = attended.alignments
            return attended.context

        def feed_forward(x):
            return parts.output_dense(parts.intermediate_dense(x))

        x = ops.cast(self.target_of(inputs), layer.compute_dtype)
        x = self._residual(x, attend_to_past, parts.self_attention_norm)
        if self.attends:
            x = self._residual(x, attend_to_source, parts.cross_attention_norm)
        x = self._residual(x, feed_forward, parts.feedforward_norm)
        return x, alignments, state

    def _residual(self, x, part, norm):
        if self.layer.normalize_first:
            return x + part(norm(x))
        return norm(x + part(x))
