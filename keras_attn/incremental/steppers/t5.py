"""The stepper of KerasHub's `T5TransformerLayer`, a whole block."""

from keras import ops

from keras_attn.attention import Attended
from keras_attn.attention import Memory
from keras_attn.decoder.past import OwnPast
from keras_attn.incremental.registry import stepper_for
from keras_attn.incremental.stepper import Stepper
from keras_attn.incremental.steppers.attention import require_length
from keras_attn.incremental.steppers.attention import require_no_padding
from keras_attn.incremental.steppers.attention import time_axes_of
from keras_attn.keras_internals import producer
from keras_attn.keras_internals import t5_relative_bias


@stepper_for("keras_hub.src.models.t5.t5_transformer_layer.T5TransformerLayer")
class T5Stepper(Stepper):
    """Runs the block's parts, as its `call` does.

    A score grows by a bias that depends on the distance of query and key.
    The first block of a stack has its weights; in a call the others get the
    bias from it. In a step each block computes it for one query.
    """

    attends = True
    uses_position = True
    only_first = (
        "gives a bias of positions that only the blocks of its own stack may "
        "read; a step returns the hidden states alone"
    )

    def __init__(self, call):
        super().__init__(call)
        given, layer = call.arguments, self.layer
        names = "encoder_hidden_states", "encoder_attention_mask"
        self.require_constant(**{name: given.get(name) for name in names})
        if not layer.is_decoder or not given.get("use_causal_mask"):
            self.refuse(
                "mixes target positions; make it with `is_decoder=True` and "
                "call it with `use_causal_mask=True`"
            )
        require_no_padding(self, "attention_mask")
        self.reads.pop("position_bias", None)  # a step makes its own
        self.outputs = call.outputs[:1]
        self._first = _first_of_stack(self)

    def prepare(self, constants):
        mask = constants.get("encoder_attention_mask")
        mask = None if mask is None else ops.cast(mask, "bool")[:, 0]
        attention = _BiasedHeads(self.layer.cross_attention)
        return attention.prepare(
            constants["encoder_hidden_states"], value_mask=mask
        )

    def start(self, prepared, batch, beams, max_length):
        require_length(self.layer, max_length)
        width = self.reads["hidden_states"].shape[-1]
        one = ops.zeros((batch, beams, width), self.layer.compute_dtype)
        past = OwnPast(_BiasedHeads(self.layer.self_attention))
        return past.start(one, max_length)

    def step(self, inputs, prepared, state, position):
        layer = self.layer
        x = ops.cast(inputs["hidden_states"], layer.compute_dtype)
        normal = layer.self_attention_layer_norm(x)
        attention = layer.self_attention
        state = OwnPast(_BiasedHeads(attention)).append(state, normal)
        bias = self._bias(position, ops.shape(state.keys)[-2])
        past = OwnPast(_BiasedHeads(attention, bias))
        x = x + past.attend(state, normal)
        attended, _ = _BiasedHeads(layer.cross_attention).attend_step(
            layer.cross_attention_layer_norm(x), prepared
        )
        x = x + attended.context
        x = x + self._feed_forward(layer.layer_norm(x))
        return x, attended.alignments, state

    def _bias(self, position, length):
        """Returns the bias of each key, `(rows or 1, heads, 1, length)`."""
        if self._first is None:
            return None
        apart = ops.arange(length) - ops.reshape(position, (-1, 1))
        bias = t5_relative_bias(self._first, apart)
        return ops.expand_dims(ops.swapaxes(bias, 1, 2), 2)

    def _feed_forward(self, x):
        layer = self.layer
        hidden = layer.input_projector(x)
        if layer.use_gated_activation:
            hidden = hidden * layer.gate_projector(x)
        return layer.output_projector(hidden)

    def source_mask(self, prepared):
        return prepared.mask

    def time_axes(self, state):
        return time_axes_of(state)


def _first_of_stack(stepper):
    """Returns the attention that has the weights of the bias, or `None`."""
    layer = stepper.layer
    bias = stepper.call.arguments.get("position_bias")
    while bias is not None:
        node = producer(bias)
        layer = node.operation
        if type(layer) is not type(stepper.layer):
            stepper.refuse(
                "has a `position_bias` that is not the second output of a "
                "block like it"
            )
        bias = node.arguments.kwargs.get("position_bias")
    attention = layer.self_attention
    return attention if attention.use_relative_attention_bias else None


class _BiasedHeads:
    """Adapter of `T5MultiHeadAttention`: its scores are not scaled.

    Args:
        layer: The layer.
        bias: What is added to the scores, `(rows or 1, heads, 1, keys)`.
    """

    def __init__(self, layer, bias=None):
        self._layer, self._bias = layer, bias

    def prepare(self, value, key=None, value_mask=None, key_mask=None):
        layer = self._layer
        return Memory(
            ops.swapaxes(self._by_head(layer.key_projector(value)), 1, 2),
            ops.swapaxes(self._by_head(layer.value_projector(value)), 1, 2),
            value_mask,
        )

    def attend_step(
        self, query, memory, history=(), draws=(), allowed=None, training=False
    ):
        layer = self._layer
        head_query = self._by_head(layer.query_projector(query))
        scores = ops.einsum("bthd,bhsd->bhts", head_query, memory.keys)
        scores = ops.cast(scores, "float32")
        if self._bias is not None:
            scores = scores + ops.cast(self._bias, "float32")
        if memory.mask is not None:
            there = ops.expand_dims(ops.expand_dims(memory.mask, 1), 1)
            scores = ops.where(there, scores, -1e9)
        weights = ops.softmax(scores)
        context = ops.einsum(
            "bhts,bhsd->bthd",
            ops.cast(weights, memory.values.dtype),
            memory.values,
        )
        shape = (*ops.shape(query)[:2], layer.inner_dim)
        context = layer.output_projector(ops.reshape(context, shape))
        return Attended(context, ops.mean(weights, axis=1)), history

    def _by_head(self, x):
        layer = self._layer
        shape = (*ops.shape(x)[:2], layer.num_heads, layer.key_value_dim)
        return ops.reshape(x, shape)
