"""The stepper of KerasHub's `TransformerDecoder`, a whole block."""

from keras import ops

from keras_attn.decoder.past import OwnPast
from keras_attn.incremental.registry import stepper_for
from keras_attn.incremental.stepper import Stepper
from keras_attn.incremental.stepper import masked
from keras_attn.incremental.steppers.attention import require_length
from keras_attn.incremental.steppers.attention import require_no_padding
from keras_attn.incremental.steppers.attention import time_axes_of
from keras_attn.incremental.steppers.heads import stepwise
from keras_attn.keras_internals import hub_decoder_parts


@stepper_for("keras_hub>TransformerDecoder")
class HubDecoderStepper(Stepper):
    """Runs the block's parts, as its `call` does.

    The layer's own caches are not used, because they would hold the source
    once per hypothesis.
    """

    def __init__(self, call):
        super().__init__(call)
        given = call.arguments
        names = "encoder_sequence", "encoder_padding_mask"
        self.require_constant(**{name: given.get(name) for name in names})
        if not given.get("use_causal_mask", True):
            self.refuse(
                "mixes target positions; leave `use_causal_mask=False` out"
            )
        for name in ("decoder_attention_mask", "encoder_attention_mask"):
            if given.get(name) is not None:
                self.refuse(f"has `{name}`; leave it out")
        require_no_padding(self, "decoder_padding_mask")
        parts = hub_decoder_parts(self.layer)
        self._past = OwnPast(stepwise(parts.self_attention))
        self.attends = given.get("encoder_sequence") is not None
        if self.attends:
            self._cross = stepwise(parts.cross_attention)

    def prepare(self, constants):
        if not self.attends:
            return ()
        memory, mask = masked(
            constants["encoder_sequence"], constants.get("encoder_padding_mask")
        )
        mask = None if mask is None else ops.cast(mask, "bool")
        return self._cross.prepare(memory, value_mask=mask)

    def start(self, prepared, batch, beams, max_length):
        require_length(self.layer, max_length)
        width = self.reads["decoder_sequence"].shape[-1]
        one = ops.zeros((batch, beams, width), self.layer.compute_dtype)
        return self._past.start(one, max_length)

    def step(self, inputs, prepared, state, position):
        layer, alignments = self.layer, None
        parts = hub_decoder_parts(layer)

        def attend_to_past(x):
            nonlocal state
            state = self._past.append(state, x)
            return self._past.attend(state, x)

        def attend_to_source(x):
            nonlocal alignments
            attended, _ = self._cross.attend_step(x, prepared)
            alignments = attended.alignments
            return attended.context

        def feed_forward(x):
            return parts.output_dense(parts.intermediate_dense(x))

        x = ops.cast(inputs["decoder_sequence"], layer.compute_dtype)
        x = self._residual(x, attend_to_past, parts.self_attention_norm)
        if self.attends:
            x = self._residual(x, attend_to_source, parts.cross_attention_norm)
        x = self._residual(x, feed_forward, parts.feedforward_norm)
        return x, alignments, state

    def _residual(self, x, part, norm):
        if self.layer.normalize_first:
            return x + part(norm(x))
        return norm(x + part(x))

    def source_mask(self, prepared):
        return prepared.mask

    def time_axes(self, state):
        return time_axes_of(state)
