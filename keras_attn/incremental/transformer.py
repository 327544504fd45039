"""Stepper of KerasHub's `TransformerDecoder`, a block in one layer."""

import sys

from keras import ops

from keras_attn.decoder import past
from keras_attn.incremental.attending import require_length
from keras_attn.incremental.heads import stepwise
from keras_attn.incremental.kinds import is_plain
from keras_attn.incremental.refuse import refuse
from keras_attn.incremental.steppers import Stepper
from keras_attn.incremental.steppers import arguments_of
from keras_attn.incremental.steppers import fill
from keras_attn.incremental.steppers import require_constant
from keras_attn.keras_internals import get_keras_mask
from keras_attn.keras_internals import hub_decoder_parts


class TransformerDecoder(Stepper):
    """Runs the block's parts, as its `call` does.

    Its own caches would hold the source once per hypothesis.
    """

    def __init__(self, node, depends):
        super().__init__(node, depends)
        layer, call = self.operation, arguments_of(node)
        self._sequence = call["decoder_sequence"]
        self._memory = call.get("encoder_sequence")
        self._mask = call.get("encoder_padding_mask")
        require_constant(
            layer,
            depends,
            encoder_sequence=self._memory,
            encoder_padding_mask=self._mask,
        )
        if not call.get("use_causal_mask", True):
            refuse(
                layer,
                "mixes target positions; leave `use_causal_mask=False` out",
            )
        for name in ("decoder_attention_mask", "encoder_attention_mask"):
            if call.get(name) is not None:
                refuse(layer, f"has `{name}`; leave it out")
        parts = hub_decoder_parts(layer)
        self._own = stepwise(parts.self_attention)
        self.attends = self._memory is not None
        if self.attends:
            self._cross = stepwise(parts.cross_attention)

    def prepare(self, values):
        if not self.attends:
            return ()
        memory = fill(self._memory, values)
        mask = fill(self._mask, values)
        if mask is None:
            mask = get_keras_mask(memory)
        mask = None if mask is None else ops.cast(mask, "bool")
        return self._cross.prepare(memory, value_mask=mask)

    def start(self, prepared, batch, beams, max_length):
        layer = self.operation
        require_length(layer, max_length)
        one = ops.zeros(
            (batch, beams, self._sequence.shape[-1]), layer.compute_dtype
        )
        return past.empty(self._own, one, max_length)

    def step(self, values, prepared, state, position):
        layer, alignments = self.operation, None
        parts = hub_decoder_parts(layer)

        def attend_to_past(x):
            nonlocal state
            state = past.append(state, self._own, x)
            return past.attend(state, self._own, x)

        def attend_to_source(x):
            nonlocal alignments
            attended, _ = self._cross.attend_step(x, prepared)
            alignments = attended.alignments
            return attended.context

        def feed_forward(x):
            return parts.output_dense(parts.intermediate_dense(x))

        x = ops.cast(values[id(self._sequence)], layer.compute_dtype)
        x = self._residual(x, attend_to_past, parts.self_attention_norm)
        if self.attends:
            x = self._residual(x, attend_to_source, parts.cross_attention_norm)
        x = self._residual(x, feed_forward, parts.feedforward_norm)
        return [x], alignments, state

    def _residual(self, x, part, norm):
        if self.operation.normalize_first:
            return x + part(norm(x))
        return norm(x + part(x))

    def source_mask(self, prepared):
        return prepared.mask


def is_transformer_decoder(operation):
    """Whether it is KerasHub's, which need not be installed."""
    hub = sys.modules.get("keras_hub")
    return hub is not None and is_plain(
        operation, hub.layers.TransformerDecoder
    )
