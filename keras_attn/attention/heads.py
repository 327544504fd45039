"""Several heads: attention in several learned subspaces at once.

Heads are rows of the batch to the score and the alignment, which so need
not know of them.
"""

import keras
from keras import layers
from keras import ops


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

    def split_query(self, query):
        """`(batch, target, dim)` -> `(batch * heads, target, width)`."""
        query = apply_to_rows(self.query, query)
        shape = (*ops.shape(query)[:2], self.count, self.width)
        return fold(ops.reshape(query, shape))

    def split_source(self, projection, x):
        """`(batch, source, dim)` -> `(batch, heads, source, width)`."""
        x = apply_to_rows(projection, x)
        shape = (*ops.shape(x)[:2], self.count, self.width)
        return ops.swapaxes(ops.reshape(x, shape), 1, 2)

    def join(self, context):
        """`(batch * heads, target, width)` -> `(batch, target, dim)`."""
        context = unfold(context, self.count)
        shape = (-1, ops.shape(context)[1], self.count * self.width)
        context = ops.reshape(context, shape)
        return apply_to_rows(self.output_projection, context)


def fold(x):
    """`(batch, target, heads, ...)` -> `(batch * heads, target, ...)`."""
    return join_axes(ops.swapaxes(x, 1, 2))


def unfold(x, heads):
    """`(batch * heads, target, ...)` -> `(batch, target, heads, ...)`."""
    rows, *rest = ops.shape(x)
    x = ops.reshape(x, (rows // heads, heads, *rest))
    return ops.swapaxes(x, 1, 2)


def join_axes(x):
    """Makes one of the first two axes."""
    # Not -1, which a source without positions would leave open.
    rows, columns, *rest = ops.shape(x)
    return ops.reshape(x, (rows * columns, *rest))


def map_tensors(function, structure):
    """`map_structure` that leaves `None` alone."""
    return keras.tree.map_structure(
        lambda x: None if x is None else function(x), structure
    )


def repeat(structure, heads):
    """A row of the batch for each head, all alike."""
    # Not `ops.repeat`, whose gradient XLA cannot compile in a loop.
    return map_tensors(
        lambda x: join_axes(ops.stack([x] * heads, axis=1)), structure
    )


def apply_to_rows(layer, x):
    """Calls a dense layer on `(batch, length, dim)` as rows.

    XLA cannot compile the gradient of a product of three axes in a loop.
    """
    rows = layer(ops.reshape(x, (-1, x.shape[-1])))
    batch, length = ops.shape(x)[:2]
    if isinstance(length, int) and length:
        batch = -1  # a number less to look up at every step
    return ops.reshape(rows, (batch, length, rows.shape[-1]))
