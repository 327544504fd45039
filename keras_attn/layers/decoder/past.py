"""Attention to the decoder's own past (intra-attention, self-attention).

The past differs between hypotheses, so it has a beam axis, and a search
gathers it with the rest of the state. XLA needs fixed shapes, so the buffers
have the length of the longest output. If shapes may change, the buffers grow by
one position per step, and the cost of a step grows with them.
"""

from keras import ops

from keras_attn.backend import reshape
from keras_attn.layers.attention import Memory
from keras_attn.layers.attention.heads import join_axes
from keras_attn.layers.decoder.state import Past


class OwnPast:
    """Reads and writes the past of each hypothesis.

    Args:
        attention: A `keras_attn.Attention` that reads the past, or another
            object with the same methods.
        window: The number of most recent states that may be looked at, or
            `None` for all.
    """

    def __init__(self, attention, window=None):
        self._attention = attention
        self._window = window

    def start(self, state, max_length, key=None):
        """Returns the `Past` before the first step.

        Args:
            state: A state `(batch, beams, dim)` of the shape and dtype to
                store.
            max_length: Number of states that the buffers can hold.
            key: The state's key, `(batch, beams, key_dim)`, or `None` to use
                the state as its own key.
        """
        batch, beams = ops.shape(state)[:2]

        def buffer(x):
            # (batch * beams, [heads,] 1, dim)
            shape = *ops.shape(x)[1:-2], max_length, x.shape[-1]
            return ops.zeros((batch, beams, *shape), dtype=x.dtype)

        one = self._prepare(state, key)
        step = ops.zeros((batch, beams), dtype="int32")
        return Past(buffer(one.keys), buffer(one.values), step)

    def append(self, past, state, key=None):
        """Returns the past with one more state `(batch, beams, dim)`."""
        one, step = self._prepare(state, key), past.step
        return Past(
            written(past.keys, one.keys, step),
            written(past.values, one.values, step),
            () if isinstance(step, tuple) else step + 1,
        )

    def attend(self, past, query, draws=(), training=False):
        """Returns the context of each hypothesis, `(batch, beams, dim)`.

        The context is zero before the first step.

        Args:
            past: A `Past`.
            query: Tensor of shape `(batch, beams, dim)`.
            draws: The attention's random draws for this step.
            training: Whether the model trains.
        """
        batch, beams = ops.shape(query)[:2]
        memory = self.memory(past)
        # Every hypothesis is a row of the batch, with one query.
        attended, _ = self._attention.attend_step(
            _row_each(query), memory, draws=draws, training=training
        )
        context = attended.context
        return reshape(context, (batch, beams, context.shape[-1]))

    def memory(self, past):
        """Returns the states that may be looked at, as a `Memory`.

        Its tensors have a row for each hypothesis, `(batch * beams, ...)`.
        """
        keys, values, step = past
        if isinstance(step, tuple):
            if self._window is not None:
                keys = keys[..., -self._window :, :]
                values = values[..., -self._window :, :]
            there = None
        else:
            number = ops.arange(ops.shape(keys)[-2], dtype="int32")
            step = ops.reshape(step, (-1, 1))
            there = number < step
            if self._window is not None:
                there = there & (number >= step - self._window)
        return Memory(join_axes(keys), join_axes(values), there)

    def _prepare(self, state, key):
        key = None if key is None else _row_each(key)
        return self._attention.prepare(_row_each(state), key)


def written(buffer, x, step):
    """Returns a buffer of past positions with one more written.

    Args:
        buffer: Tensor `(batch, beams, ..., time, dim)`.
        x: The new position, with as many elements as one position of the
            buffer.
        step: Number of positions written so far, int32 `(batch, beams)`; or
            `()` for a buffer that grows.
    """
    x = reshape(x, (*ops.shape(buffer)[:-2], 1, buffer.shape[-1]))
    if isinstance(step, tuple):
        return ops.concatenate([buffer, x], axis=-2)
    length = ops.shape(buffer)[-2]
    trailing = (1,) * (len(buffer.shape) - 2)
    step = ops.reshape(step, (*ops.shape(step), *trailing))
    number = ops.expand_dims(ops.arange(length, dtype="int32"), -1)
    return ops.where(number == step, x, buffer)


def _row_each(x):
    """`(batch, beams, dim)` -> `(batch * beams, 1, dim)`."""
    return ops.reshape(x, (-1, 1, x.shape[-1]))
