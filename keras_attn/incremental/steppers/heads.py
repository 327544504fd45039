"""Adapters that give Keras's attention layers the methods of `Attention`.

So they are prepared and stepped like `keras_attn.Attention`.
"""

import math

from keras import layers
from keras import ops

from keras_attn.attention import Attended
from keras_attn.attention import Memory
from keras_attn.keras_internals import get_keras_mask
from keras_attn.keras_internals import projections
from keras_attn.keras_internals import set_keras_mask


def stepwise(layer):
    """Wraps an attention layer of Keras, adding the methods for steps."""
    if isinstance(layer, layers.Attention):  # and `AdditiveAttention`
        return _OneHead(layer)
    return ManyHeads(layer)


class _OneHead:
    """Adapter of `keras.layers.Attention` and `AdditiveAttention`."""

    def __init__(self, layer):
        self._layer = layer

    def prepare(self, value, key=None, value_mask=None, key_mask=None):
        key = value if key is None else key
        dtype = self._layer.compute_dtype
        return Memory(ops.cast(key, dtype), ops.cast(value, dtype), value_mask)

    def initial_history(self, memory, beams=1):
        return ()

    def attend_step(
        self, query, memory, history=(), draws=(), allowed=None, training=False
    ):
        context, weights = self._layer(
            [query, memory.values, memory.keys],
            mask=None if memory.mask is None else [None, memory.mask],
            return_attention_scores=True,
            training=training,
        )
        return Attended(context, ops.cast(weights, "float32")), history


class ManyHeads:
    """Adapter of `keras.layers.MultiHeadAttention` and `GroupQueryAttention`.

    In `GroupQueryAttention` a group of query heads `r` shares a head `h` of
    keys and values.
    """

    def __init__(self, layer):
        self._layer = layer
        if isinstance(layer, layers.GroupQueryAttention):
            self._heads = layer.num_key_value_heads
            self._width = layer.head_dim
        else:
            self._heads = layer.num_heads
            self._width = layer.key_dim

    def prepare(self, value, key=None, value_mask=None, key_mask=None):
        key = value if key is None else key
        if value_mask is not None and key_mask is not None:
            value_mask = ops.logical_and(value_mask, key_mask)
        dense = projections(self._layer)
        # (batch, source, heads, dim) -> (batch, heads, source, dim)
        return Memory(
            ops.swapaxes(self.placed(_unmasked(dense.key, key)), 1, 2),
            ops.swapaxes(_unmasked(dense.value, value), 1, 2),
            key_mask if value_mask is None else value_mask,
        )

    def placed(self, x):
        """Marks keys or queries `(batch, time, heads, dim)` with positions."""
        return x

    def initial_history(self, memory, beams=1):
        return ()

    def attend_step(
        self, query, memory, history=(), draws=(), allowed=None, training=False
    ):
        if allowed is None and memory.mask is not None:
            allowed = ops.expand_dims(memory.mask, 1)
        dense = projections(self._layer)
        head_query = self.placed(dense.query(query))
        batch, target, count, width = ops.shape(head_query)
        groups = count // self._heads
        shape = (batch, target, self._heads, groups, width)
        head_query = ops.reshape(head_query, shape) / math.sqrt(self._width)
        scores = ops.cast(
            ops.einsum("bthrd,bhsd->bhrts", head_query, memory.keys), "float32"
        )
        if allowed is not None:  # (batch, any target, source)
            allowed = ops.expand_dims(ops.expand_dims(allowed, 1), 1)
            scores = ops.where(ops.cast(allowed, "bool"), scores, -1e9)
        weights = ops.softmax(scores)
        context = ops.einsum(
            "bhrts,bhsd->bthrd",
            ops.cast(weights, memory.values.dtype),
            memory.values,
        )
        shape = (batch, target, count, context.shape[-1])
        context = ops.reshape(context, shape)
        if dense.gate is not None:
            context = context * dense.gate(query)
        context = dense.output(context)
        return Attended(context, ops.mean(weights, axis=(1, 2))), history


def _unmasked(dense, x):
    """Calls a layer without the input's mask, of which it would warn."""
    mask = get_keras_mask(x)
    set_keras_mask(x, None)
    projected = dense(x)
    set_keras_mask(x, mask)
    return projected
