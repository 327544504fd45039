"""The stepper of KerasHub's `T5TransformerLayer`, a whole block."""

from keras import ops

from keras_attn.incremental.registry import stepper_for
from keras_attn.incremental.steppers.block import BlockStepper
from keras_attn.incremental.steppers.heads import ProjectedHeads
from keras_attn.keras_internals import producer
from keras_attn.keras_internals import t5_relative_bias
from keras_attn.layers.decoder.past import OwnPast


@stepper_for("keras_hub.src.models.t5.t5_transformer_layer.T5TransformerLayer")
class T5Stepper(BlockStepper):
    """Runs the parts of a block of T5.

    A bias that depends on the distance of query and key is added to each score.
    The first block of a stack has the weights of this bias. In a call the other
    blocks get the bias from it. In a step each block computes the bias for one
    query.
    """

    uses_position = True
    slow_alone = False  # it multiplies by `Dense` layers
    only_first = (
        "gives a bias of positions that only the blocks of its own stack may "
        "read; a step returns the hidden states alone"
    )
    target_name, target_mask_name = "hidden_states", "attention_mask"
    source_name = "encoder_hidden_states"
    source_mask_name = "encoder_attention_mask"
    left_out = "self_attention_cache", "cross_attention_cache"

    def __init__(self, call):
        super().__init__(call)
        given, layer = call.arguments, self.layer
        if not layer.is_decoder or not given.get("use_causal_mask"):
            self.refuse(
                "mixes target positions; make it with `is_decoder=True` and "
                "call it with `use_causal_mask=True`"
            )
        self.reads.pop("position_bias", None)  # a step makes its own
        self.outputs = call.outputs[:1]
        self._first = self._first_of_stack()

    def _first_of_stack(self):
        """Returns the attention that has the weights of the bias, or `None`."""
        layer = self.layer
        bias = self.call.arguments.get("position_bias")
        while bias is not None:
            node = producer(bias)
            layer = node.operation
            if type(layer) is not type(self.layer):
                self.refuse(
                    "has a `position_bias` that is not the second output of a "
                    "block like it"
                )
            bias = node.arguments.kwargs.get("position_bias")
        attention = layer.self_attention
        return attention if attention.use_relative_attention_bias else None

    def mask_of_source(self, constants):
        mask = super().mask_of_source(constants)
        return None if mask is None else mask[:, 0]  # the same for all queries

    def source_heads(self):
        return _BiasedHeads(self.layer.cross_attention)

    def past(self, position):
        return OwnPast(
            _BiasedHeads(self.layer.self_attention, self._first, position)
        )

    def step(self, inputs, prepared, state, position):
        layer, past = self.layer, self.past(position)
        x = ops.cast(self.target_of(inputs), layer.compute_dtype)
        normal = layer.self_attention_layer_norm(x)
        state = past.append(state, normal)
        x = x + past.attend(state, normal)
        attended, _ = self.source_heads().attend_step(
            layer.cross_attention_layer_norm(x), prepared
        )
        x = x + attended.context
        x = x + self._feed_forward(layer.layer_norm(x))
        return x, attended.alignments, state

    def _feed_forward(self, x):
        layer = self.layer
        hidden = layer.input_projector(x)
        if layer.use_gated_activation:
            hidden = hidden * layer.gate_projector(x)
        return layer.output_projector(hidden)


class _BiasedHeads(ProjectedHeads):
    """Adapter of `T5MultiHeadAttention`: its scores are not scaled.

    Args:
        layer: The layer.
        first: The layer with the weights of the bias, or `None`.
        position: Position of each query, int32 of any shape.
    """

    def __init__(self, layer, first=None, position=None):
        self._layer, self._first, self._position = layer, first, position

    def queries(self, x):
        return self._by_head(self._layer.query_projector(x))

    def keys(self, x):
        return self._by_head(self._layer.key_projector(x))

    def values(self, x):
        return self._by_head(self._layer.value_projector(x))

    def output(self, context, query):
        shape = (*ops.shape(query)[:2], self._layer.inner_dim)
        return self._layer.output_projector(ops.reshape(context, shape))

    def adjusted(self, scores):
        if self._first is None:
            return scores
        numbers = ops.arange(ops.shape(scores)[-1])
        apart = numbers - ops.reshape(self._position, (-1, 1))
        bias = ops.cast(t5_relative_bias(self._first, apart), "float32")
        # (rows or 1, source, heads) -> (rows or 1, heads, 1, 1, source)
        return scores + ops.swapaxes(bias, 1, 2)[:, :, None, None]

    def _by_head(self, x):
        layer = self._layer
        shape = (*ops.shape(x)[:2], layer.num_heads, layer.key_value_dim)
        return ops.reshape(x, shape)
