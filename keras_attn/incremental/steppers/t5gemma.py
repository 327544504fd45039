"""The stepper of KerasHub's `T5GemmaDecoderLayer`, a whole block."""

from keras import ops

from keras_attn.incremental.registry import stepper_for
from keras_attn.incremental.steppers.block import BlockStepper
from keras_attn.incremental.steppers.heads import ProjectedHeads
from keras_attn.layers.decoder.past import OwnPast


@stepper_for("keras_hub.src.models.t5gemma.t5gemma_decoder.T5GemmaDecoderLayer")
class T5GemmaStepper(BlockStepper):
    """Runs the parts of a block of T5Gemma.

    Queries and keys of the target are rotated by their position. In a call the
    block also returns keys and values as caches; a step keeps its own.
    """

    uses_position = True
    only_first = (
        "returns caches beside the hidden states; a step returns the hidden "
        "states alone"
    )
    target_name, source_name = "inputs[0]", "inputs[1]"
    target_mask_name = "self_attention_padding_mask"
    source_mask_name = "cross_attention_padding_mask"
    left_out = ("cache", "cache_update_index")

    def __init__(self, call):
        super().__init__(call)
        self.outputs = call.outputs[:1]

    def target_of(self, arguments):
        return arguments["inputs"][0]

    def source_of(self, arguments):
        return arguments["inputs"][1]

    def source_heads(self):
        return GemmaHeads(self.layer.cross_attn)

    def past(self, position):
        layer = self.layer
        # The block looks back this many positions, and at its own.
        slides = layer.layer_type == "sliding_attention"
        window = layer.sliding_window + 1 if slides else None
        return OwnPast(GemmaHeads(layer.self_attn, position), window)

    def step(self, inputs, prepared, state, position):
        layer, past = self.layer, self.past(position)
        x = ops.cast(self.target_of(inputs), layer.compute_dtype)
        normal = layer.pre_self_attn_layernorm(x)
        state = past.append(state, normal)
        context = past.attend(state, normal)
        x = x + layer.post_self_attn_layernorm(context)
        attended, _ = self.source_heads().attend_step(
            layer.pre_cross_attn_layernorm(x), prepared
        )
        x = x + layer.post_cross_attn_layernorm(attended.context)
        fed = layer.mlp(layer.pre_feedforward_layernorm(x))
        x = x + layer.post_feedforward_layernorm(fed)
        return x, attended.alignments, state


class GemmaHeads(ProjectedHeads):
    """Adapter of `T5GemmaAttention`.

    Args:
        layer: The layer.
        position: Position of each row, int32 of any shape, or `None` if queries
            and keys are not rotated.
    """

    def __init__(self, layer, position=None):
        self._layer, self._position = layer, position

    def queries(self, x):
        return self.turned(self._layer.query_dense(x))

    def keys(self, x):
        return self.turned(self._layer.key_dense(x))

    def values(self, x):
        return self._layer.value_dense(x)

    def output(self, context, query):
        return self._layer.output_dense(context)

    def adjusted(self, scores):
        scores, cap = scores * self._layer.scaling, self._layer.logit_soft_cap
        return scores if cap is None else ops.tanh(scores / cap) * cap

    def turned(self, x):
        """Rotates queries or keys `(batch, time, heads, dim)` by position."""
        if self._position is None:
            return x
        # A position per row, or one for all rows.
        positions = ops.reshape(self._position, (-1, 1))
        return self._layer.rotary_embedding(x, positions=positions)
