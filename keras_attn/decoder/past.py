"""Attention of a decoder to its own past states (intra-attention).

What was decoded differs between hypotheses, so the past has a beam axis and
a search gathers it with the rest of the state. Its buffers have the length of
the longest output, which XLA needs.
"""

from keras import ops

from keras_attn.attention import Memory
from keras_attn.attention.heads import join_axes
from keras_attn.decoder.state import Past


def empty(attention, state, max_length):
    """The past before the first step.

    Args:
        attention: The `Attention` that reads it.
        state: A state like those it will hold, `(batch, beams, dim)`.
        max_length: How many it must have room for.
    """
    batch, beams = ops.shape(state)[:2]

    def buffer(x):
        # (batch * beams, [heads,] 1, dim)
        shape = (batch, beams, *ops.shape(x)[1:-2], max_length, x.shape[-1])
        return ops.zeros(shape, dtype=x.dtype)

    one = attention.prepare(ops.reshape(state, (-1, 1, state.shape[-1])))
    step = ops.zeros((batch, beams), dtype="int32")
    return Past(buffer(one.keys), buffer(one.values), step)


def append(past, attention, state):
    """The past with one more state `(batch, beams, dim)`."""
    one = attention.prepare(ops.reshape(state, (-1, 1, state.shape[-1])))

    def write(buffer, x):
        shape = (*ops.shape(buffer)[:-2], 1, x.shape[-1])
        length = ops.shape(buffer)[-2]
        trailing = (1,) * (len(buffer.shape) - 2)
        step = ops.reshape(past.step, (*ops.shape(past.step), *trailing))
        here = ops.expand_dims(ops.arange(length), -1) == step
        return ops.where(here, ops.reshape(x, shape), buffer)

    return Past(
        write(past.keys, one.keys),
        write(past.values, one.values),
        past.step + 1,
    )


def attend(past, attention, query, draws, training):
    """What each hypothesis finds in its own past.

    Args:
        query: Tensor of shape `(batch, beams, dim)`.

    Returns:
        The contexts `(batch, beams, dim)`; zeros before the first step.
    """
    batch, beams = ops.shape(query)[:2]
    length = ops.shape(past.keys)[-2]
    step = ops.reshape(past.step, (-1, 1))
    memory = Memory(
        join_axes(past.keys), join_axes(past.values), ops.arange(length) < step
    )
    # Every hypothesis is a row of the batch, with one query.
    attended, _ = attention.attend_step(
        ops.reshape(query, (-1, 1, query.shape[-1])),
        memory,
        draws=draws,
        training=training,
    )
    context = attended.context
    return ops.reshape(context, (batch, beams, context.shape[-1]))
