"""Attention to one's own past (intra-attention, causal self-attention).

What was decoded differs between hypotheses, so the past has a beam axis and
a search gathers it with the rest of the state. Its buffers have the length of
the longest output, which XLA needs.
"""

from keras import ops

from keras_attn.attention import Memory
from keras_attn.attention.heads import join_axes
from keras_attn.decoder.state import Past


def empty(attention, state, max_length, key=None):
    """The past before the first step.

    Args:
        attention: The `Attention` that reads it.
        state: A state like those it will hold, `(batch, beams, dim)`.
        max_length: How many it must have room for.
        key: What it compares with queries, `(batch, beams, key_dim)`, or
            `None` for the state itself.
    """
    batch, beams = ops.shape(state)[:2]

    def buffer(x):
        # (batch * beams, [heads,] 1, dim)
        shape = (batch, beams, *ops.shape(x)[1:-2], max_length, x.shape[-1])
        return ops.zeros(shape, dtype=x.dtype)

    one = attention.prepare(_row_each(state), _row_each(key))
    step = ops.zeros((batch, beams), dtype="int32")
    return Past(buffer(one.keys), buffer(one.values), step)


def append(past, attention, state, key=None):
    """The past with one more state `(batch, beams, dim)`, and its key."""
    one = attention.prepare(_row_each(state), _row_each(key))

    def write(buffer, x):
        shape = (*ops.shape(buffer)[:-2], 1, x.shape[-1])
        length = ops.shape(buffer)[-2]
        trailing = (1,) * (len(buffer.shape) - 2)
        step = ops.reshape(past.step, (*ops.shape(past.step), *trailing))
        here = ops.expand_dims(ops.arange(length, dtype="int32"), -1) == step
        return ops.where(here, ops.reshape(x, shape), buffer)

    return Past(
        write(past.keys, one.keys),
        write(past.values, one.values),
        past.step + 1,
    )


def attend(past, attention, query, draws=(), training=False, window=None):
    """What each hypothesis finds in its own past.

    Args:
        query: Tensor of shape `(batch, beams, dim)`.
        window: How many of the last states it may look at, or `None` for
            all.

    Returns:
        The contexts `(batch, beams, dim)`; zeros before the first step.
    """
    batch, beams = ops.shape(query)[:2]
    length = ops.shape(past.keys)[-2]
    step = ops.reshape(past.step, (-1, 1))
    there = ops.arange(length, dtype="int32") < step
    if window is not None:
        there = there & (ops.arange(length, dtype="int32") >= step - window)
    memory = Memory(join_axes(past.keys), join_axes(past.values), there)
    # Every hypothesis is a row of the batch, with one query.
    attended, _ = attention.attend_step(
        _row_each(query),
        memory,
        draws=draws,
        training=training,
    )
    context = attended.context
    return ops.reshape(context, (batch, beams, context.shape[-1]))


def _row_each(x):
    """`(batch, beams, dim)` -> `(batch * beams, 1, dim)`."""
    return None if x is None else ops.reshape(x, (-1, 1, x.shape[-1]))
