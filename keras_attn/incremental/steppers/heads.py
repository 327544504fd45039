"""Adapters that give Keras's attention layers the methods of `Attention`.

So they are prepared and stepped like `keras_attn.Attention`.
"""

import math

from keras import layers
from keras import ops

from keras_attn.backend import reshape
from keras_attn.incremental.steppers.projection import project
from keras_attn.keras_internals import get_keras_mask
from keras_attn.keras_internals import masks_weights
from keras_attn.keras_internals import projections
from keras_attn.keras_internals import set_keras_mask
from keras_attn.layers.attention import Attended
from keras_attn.layers.attention import Memory


def stepwise(layer, returns_scores=False):
    """Wraps an attention layer of Keras, adding the methods for steps.

    Args:
        layer: The layer.
        returns_scores: Whether its call returns its weights too.
    """
    if isinstance(layer, layers.Attention):  # and `AdditiveAttention`
        return _OneHead(layer)
    return ManyHeads(layer, returns_scores)


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


class ProjectedHeads:
    """Attention of several heads, with the methods of `Attention` for steps.

    A group of query heads (`r` in einsums) shares a head (`h`) of keys and
    values, which are kept once. A subclass wraps a layer: it defines how the
    layer projects, and what else it does to the scores.

    Attributes:
        heads: Number of query heads.
        masks_weights: Whether the weights of a query that may look at no key
            are 0. Otherwise they are all equal.
    """

    heads: int
    masks_weights = False

    def queries(self, x):
        """Returns queries `(batch, time, query heads, dim)`."""
        raise NotImplementedError

    def keys(self, x):
        """Returns keys `(batch, time, heads, dim)`."""
        raise NotImplementedError

    def values(self, x):
        """Returns values `(batch, time, heads, dim)`."""
        raise NotImplementedError

    def output(self, context, query):
        """Joins the heads of a context `(batch, time, query heads, dim)`.

        Args:
            context: The context.
            query: The query before its projection, `(batch, time, dim)`.
        """
        raise NotImplementedError

    def adjusted(self, scores):
        """Changes scores `(batch, heads, group, time, source)` in float32."""
        return scores

    def prepare(self, value, key=None, value_mask=None, key_mask=None):
        key = value if key is None else key
        if value_mask is not None and key_mask is not None:
            value_mask = ops.logical_and(value_mask, key_mask)
        # (batch, source, heads, dim) -> (batch, heads, source, dim)
        return Memory(
            ops.swapaxes(self.keys(key), 1, 2),
            ops.swapaxes(self.values(value), 1, 2),
            key_mask if value_mask is None else value_mask,
        )

    def initial_history(self, memory, beams=1):
        return ()

    def attend_step(
        self, query, memory, history=(), draws=(), allowed=None, training=False
    ):
        weights = self.weights(self.queries(query), memory, allowed)
        context = self.output(self.context(weights, memory), query)
        return Attended(context, ops.mean(weights, axis=(1, 2))), history

    def weights(self, queries, memory, allowed=None):
        """Returns weights `(batch, heads, group, time, source)` in float32.

        Args:
            queries, memory, allowed: As for `scores()`.
        """
        weights = ops.softmax(self.scores(queries, memory, allowed))
        allowed = _of_heads(allowed, memory)
        if allowed is None or not self.masks_weights:
            return weights
        return ops.where(allowed, weights, 0.0)

    def scores(self, queries, memory, allowed=None):
        """Returns scores `(batch, heads, group, time, source)` in float32.

        Args:
            queries: Result of `queries()`.
            memory: Result of `prepare()`.
            allowed: Which keys each query may look at, `(batch, any time,
                source)`, or `None` for those of the memory's mask.
        """
        allowed = _of_heads(allowed, memory)
        batch, target, count, width = ops.shape(queries)
        heads, group = memory.keys.shape[1], count // memory.keys.shape[1]
        # A step has one position, or one query head for each of the keys. Then
        # a product is faster than an einsum.
        axis = _axis_of_one(target, group)
        if axis is None:
            shape = (batch, target, heads, group, width)
            queries = reshape(queries, shape)
            scores = ops.einsum("bthrd,bhsd->bhrts", queries, memory.keys)
        else:
            if axis == 3:
                queries = reshape(queries, (batch, heads, group, width))
            else:
                queries = ops.swapaxes(queries, 1, 2)
            scores = ops.matmul(queries, ops.swapaxes(memory.keys, 2, 3))
            scores = ops.expand_dims(scores, axis)
        scores = self.adjusted(ops.cast(scores, "float32"))
        if allowed is not None:
            scores = ops.where(allowed, scores, -1e9)
        return scores

    def context(self, weights, memory):
        """Returns the context `(batch, time, query heads, dim)`."""
        batch, heads, groups, target, _ = ops.shape(weights)
        weights = ops.cast(weights, memory.values.dtype)
        axis = _axis_of_one(target, groups)
        if axis is None:
            context = ops.einsum("bhrts,bhsd->bthrd", weights, memory.values)
        else:
            weights = ops.squeeze(weights, axis)
            context = ops.matmul(weights, memory.values)
            if axis == 2:
                context = ops.swapaxes(context, 1, 2)
        shape = (batch, target, heads * groups, memory.values.shape[-1])
        return reshape(context, shape)


def _of_heads(allowed, memory):
    """Returns which keys may be looked at, with axes of heads and groups."""
    if allowed is None and memory.mask is not None:
        allowed = ops.expand_dims(memory.mask, 1)
    if allowed is None:
        return None
    allowed = ops.expand_dims(ops.expand_dims(allowed, 1), 1)
    return ops.cast(allowed, "bool")


def _axis_of_one(target, group):
    """Returns the axis of `(batch, heads, group, target, source)` of size 1.

    The result is `None` if both sizes are larger or unknown.
    """
    for axis, size in ((3, target), (2, group)):
        if isinstance(size, int) and size == 1:
            return axis
    return None


class ManyHeads(ProjectedHeads):
    """Adapter of Keras's `MultiHeadAttention` and `GroupQueryAttention`."""

    def __init__(self, layer, returns_scores=False):
        self._layer = layer
        if isinstance(layer, layers.GroupQueryAttention):
            self._width, self.heads = layer.head_dim, layer.num_query_heads
        else:
            self._width, self.heads = layer.key_dim, layer.num_heads
        self.masks_weights = masks_weights(layer, returns_scores)

    def placed(self, x):
        """Adds positions to keys or queries `(batch, time, heads, dim)`."""
        return x

    def queries(self, x):
        queries = self.placed(project(projections(self._layer).query, x))
        return queries / math.sqrt(self._width)

    def keys(self, x):
        return self.placed(_unmasked(projections(self._layer).key, x))

    def values(self, x):
        return _unmasked(projections(self._layer).value, x)

    def output(self, context, query):
        dense = projections(self._layer)
        if dense.gate is not None:
            context = context * dense.gate(query)
        return project(dense.output, context)


def _unmasked(dense, x):
    """Projects without the input's mask, which would cause a warning."""
    mask = get_keras_mask(x)
    set_keras_mask(x, None)
    projected = project(dense, x)
    set_keras_mask(x, mask)
    return projected
