"""Attention with one head, or with several in learned subspaces.

The score and the alignment see each head as a row of the batch, so they need
not know about heads. `B` in shapes is the batch size times the number of
heads.
"""

import keras
from keras import layers
from keras import ops

from keras_attn.backend import reshape


class OneHead:
    """Attends with one head: queries and keys stay as they are.

    Args:
        value_projection: Layer for the values, or `None`.
    """

    count = 1

    def __init__(self, value_projection=None):
        self._value_projection = value_projection

    def split_source(self, key, value):
        """Returns keys for the score to project, and values."""
        if self._value_projection is not None:
            value = apply_to_rows(self._value_projection, value)
        return key, value

    def stored(self, keys, value):
        """Returns projected keys in the shape that a memory holds."""
        return keys

    def rows(self, x):
        """Returns a memory's keys or values as `(B, source, dim)`."""
        return x

    def split_query(self, query):
        """Returns the queries to compare with the keys."""
        return query

    def repeat(self, structure):
        """Repeats tensors `(batch, ...)` for all heads: `(B, ...)`."""
        return structure

    def fold(self, structure):
        """Moves the heads of tensors `(batch, target, ...)` into the batch."""
        return structure

    def unfold(self, structure):
        """Undoes `fold()`."""
        return structure

    def total(self, structure):
        """Sums tensors `(B, target)` over the heads: `(batch, target)`."""
        return structure

    def pool(self, weights):
        """Returns the mean of the heads' weights, and each head's weights."""
        return weights, ()

    def join(self, context):
        """Joins the contexts of the heads into one."""
        return context

    def fused_query(self, query):
        """`(batch, target, dim)` -> `(batch, target, heads, dim)`."""
        return ops.expand_dims(query, 2)

    def fused_source(self, x):
        """Returns a memory's keys or values: `(batch, source, heads, dim)`."""
        return ops.expand_dims(x, 2)

    def fused_join(self, context):
        """`(batch, target, heads, dim)` -> `(batch, target, dim)`."""
        return ops.squeeze(context, 2)


class Heads(keras.layers.Layer):
    """The projections of multi-head attention.

    Args:
        count: Number of heads.
        width: Width of each head's queries, keys and values.
        output_dim: Width of the joined contexts.

    Reference:
        - [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section
          3.2.2
    """

    def __init__(self, count, width, output_dim, **kwargs):
        super().__init__(**kwargs)
        self.count = count
        self.width = width

        def dense(name, units):
            return layers.Dense(
                units, use_bias=False, dtype=self.dtype_policy, name=name
            )

        self.query = dense("query", count * width)
        self.key = dense("key", count * width)
        self.value = dense("value", count * width)
        self.output_projection = dense("output", output_dim)

    def build(self, query_shape, value_shape, key_shape):
        self.query.build(query_shape)
        self.key.build(key_shape)
        self.value.build(value_shape)
        self.output_projection.build((None, None, self.count * self.width))

    def apart(self, projection, x):
        """`(batch, length, dim)` -> `(batch, length, heads, width)`."""
        x = apply_to_rows(projection, x)
        return ops.reshape(x, (*ops.shape(x)[:2], self.count, self.width))

    def join(self, context):
        """`(batch, target, heads, width)` -> `(batch, target, dim)`."""
        batch, target = ops.shape(context)[:2]
        context = reshape(context, (batch, target, self.count * self.width))
        return apply_to_rows(self.output_projection, context)


class SeveralHeads:
    """Attends with several heads; has the same methods as `OneHead`.

    Args:
        projections: A `Heads`.
    """

    def __init__(self, projections):
        self._projections = projections
        self.count = projections.count

    def split_source(self, key, value):
        """Returns keys `(B, source, width)`, and values with a heads axis."""
        key, value = (
            # (batch, source, heads, width) -> (batch, heads, source, width)
            ops.swapaxes(self._projections.apart(projection, x), 1, 2)
            for projection, x in (
                (self._projections.key, key),
                (self._projections.value, value),
            )
        )
        return join_axes(key), value

    def stored(self, keys, value):
        """`(B, source, dim)` -> `(batch, heads, source, dim)`."""
        return ops.reshape(keys, (*ops.shape(value)[:3], keys.shape[-1]))

    def rows(self, x):
        """`(batch, heads, source, dim)` -> `(B, source, dim)`."""
        return join_axes(x)

    def split_query(self, query):
        """`(batch, target, dim)` -> `(B, target, width)`."""
        return fold(self.fused_query(query))

    def repeat(self, structure):
        """`(batch, ...)` -> `(B, ...)`."""
        # Not `ops.repeat`, whose gradient XLA cannot compile in a loop.
        return map_tensors(
            lambda x: join_axes(ops.stack([x] * self.count, axis=1)), structure
        )

    def fold(self, structure):
        """`(batch, target, heads, ...)` -> `(B, target, ...)`."""
        return map_tensors(fold, structure)

    def unfold(self, structure):
        """`(B, target, ...)` -> `(batch, target, heads, ...)`."""
        return map_tensors(self._unfold, structure)

    def total(self, structure):
        """`(B, target)` -> `(batch, target)`."""
        # The heads draw independently, so their log-probabilities add up.
        return map_tensors(
            lambda x: ops.sum(self._unfold(x), axis=2), structure
        )

    def pool(self, weights):
        """`(B, target, source)` -> `(batch, target, source)`, and by head."""
        by_head = self._unfold(weights)
        return ops.mean(by_head, axis=2), by_head

    def join(self, context):
        """`(B, target, width)` -> `(batch, target, dim)`."""
        return self.fused_join(self._unfold(context))

    def fused_query(self, query):
        """`(batch, target, dim)` -> `(batch, target, heads, width)`."""
        return self._projections.apart(self._projections.query, query)

    def fused_source(self, x):
        """`(batch, heads, source, dim)` -> `(batch, source, heads, dim)`."""
        return ops.swapaxes(x, 1, 2)

    def fused_join(self, context):
        """`(batch, target, heads, width)` -> `(batch, target, dim)`."""
        return self._projections.join(context)

    def _unfold(self, x):
        rows, *rest = ops.shape(x)
        x = ops.reshape(x, (rows // self.count, self.count, *rest))
        return ops.swapaxes(x, 1, 2)


def fold(x):
    """`(batch, target, heads, ...)` -> `(batch * heads, target, ...)`."""
    return join_axes(ops.swapaxes(x, 1, 2))


def join_axes(x):
    """Joins the first two axes into one."""
    # Not -1, which cannot be inferred for an empty source.
    rows, columns, *rest = ops.shape(x)
    if isinstance(columns, int) and columns == 1:
        return ops.squeeze(x, 1)
    return ops.reshape(x, (rows * columns, *rest))


def map_tensors(function, structure):
    """Maps the tensors of a structure, and keeps `None` as it is."""
    return keras.tree.map_structure(
        lambda x: None if x is None else function(x), structure
    )


def apply_to_rows(layer, x):
    """Calls a dense layer on `(batch, length, dim)`, reshaped to a matrix.

    Inside a loop, XLA cannot compile the gradient of a product of a tensor
    with three axes.
    """
    batch, length, dim = ops.shape(x)
    rows = layer(ops.reshape(x, (-1, dim)))
    return reshape(rows, (batch, length, rows.shape[-1]))
