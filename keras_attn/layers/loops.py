"""One loop over time for every backend.

`keras.layers.RNN` cannot pass a memory to its cell, and XLA cannot compile
`keras.ops.scan` on TensorFlow. So TensorFlow runs a `tf.while_loop` with
buffers of fixed size, JAX a scan, and PyTorch a loop in Python.
"""

import keras
from keras import ops

from keras_attn.backend import never_empty
from keras_attn.backend import take_rows


def unroll(step, inputs, state, output_dtypes, mask=None):
    """Runs `step` over axis 1 of the inputs and stacks its outputs.

    Args:
        step: Function from `(inputs_t, state)` to `(outputs_t, state)`. The
            returned state has the structure, shapes and dtypes of the given
            state. The outputs are a structure of tensors.
        inputs: Structure of tensors of shape `(batch, time, ...)`. A step
            receives the same structure with tensors `(batch, ...)`.
        state: The state for the first step, a structure of tensors whose
            first axis is the batch, possibly empty.
        output_dtypes: Dtype names in the structure of a step's outputs.
        mask: Boolean tensor of shape `(batch, time)`, True = real, or
            `None`. Masked positions do not change the state of real ones,
            and their outputs are arbitrary.

    Returns:
        Outputs, stacked along axis 1 to `(batch, time, ...)`.
    """
    time = ops.shape(keras.tree.flatten(inputs)[0])[1]
    # A loop without a step would not know the shapes of its outputs.
    inputs = keras.tree.map_structure(lambda x: never_empty(x, 1), inputs)
    order = Order(None if mask is None else never_empty(mask, 1))
    inputs = order.real_first(inputs)
    inputs = keras.tree.map_structure(_time_major, inputs)
    loops = {"tensorflow": _while_loop, "jax": _scan}
    loop = loops.get(keras.backend.backend(), _python_loop)
    outputs = loop(step, inputs, state, output_dtypes)
    outputs = keras.tree.map_structure(_time_major, outputs)
    outputs = order.as_before(outputs)
    if isinstance(time, int) and time:
        return outputs
    return keras.tree.map_structure(lambda x: x[:, :time], outputs)


def _time_major(x):
    """Swaps axes 0 and 1, in either direction."""
    return ops.swapaxes(x, 0, 1)


class Order:
    """Moves real positions before padding, and back.

    Padding at the end cannot change the state of a real position. So the loop
    need not keep the old state at padding, which would copy the state at every
    step. In most batches all padding is at the end already, and nothing
    moves.

    Args:
        mask: Boolean tensor of shape `(batch, time)`, or `None`.
    """

    def __init__(self, mask):
        self._mask = mask
        if mask is None:
            return
        mask = ops.cast(mask, "int32")
        time = ops.shape(mask)[1]
        self._padded_last = ops.all(mask[:, 1:] <= mask[:, :-1])
        # The new place of each position, and the position at each new place.
        real = ops.cumsum(mask, axis=1)
        padding = ops.cumsum(1 - mask, axis=1) + real[:, -1:]
        goes_to = ops.where(mask == 1, real, padding) - 1
        position = ops.arange(time, dtype="int32")
        comes_from = ops.argsort(
            ops.where(mask == 1, position, position + time), axis=1
        )
        self._goes_to, self._comes_from = goes_to, comes_from

    def real_first(self, structure):
        """Moves the real positions of tensors `(batch, time, ...)` first."""
        if self._mask is None:
            return structure
        return self._take(structure, self._comes_from)

    def as_before(self, structure):
        """Moves the positions of tensors back to their old places."""
        if self._mask is None:
            return structure
        return self._take(structure, self._goes_to)

    def _take(self, structure, positions):
        return ops.cond(
            self._padded_last,
            lambda: structure,
            lambda: keras.tree.map_structure(
                lambda x: take_rows(x, positions), structure
            ),
        )


def _while_loop(step, inputs, state, output_dtypes):
    import tensorflow as tf

    tree = keras.tree
    flat_state = [tf.convert_to_tensor(x) for x in tree.flatten(state)]
    flat_inputs = tree.flatten(inputs)
    steps = tf.shape(flat_inputs[0])[0]
    readers = [
        tf.TensorArray(x.dtype, steps, element_shape=x.shape[1:]).unstack(x)
        for x in flat_inputs
    ]
    writers = [
        tf.TensorArray(dtype, steps) for dtype in tree.flatten(output_dtypes)
    ]

    def body(t, flat_state, writers):
        outputs, new_state = step(
            tree.pack_sequence_as(inputs, [r.read(t) for r in readers]),
            tree.pack_sequence_as(state, flat_state),
        )
        writers = [
            writer.write(t, output)
            for writer, output in zip(
                writers, tree.flatten(outputs), strict=True
            )
        ]
        new_state = [
            tf.ensure_shape(new, old.shape)
            for new, old in zip(
                tree.flatten(new_state), flat_state, strict=True
            )
        ]
        return t + 1, new_state, writers

    # XLA needs `maximum_iterations` to size the buffers of the gradient.
    _, _, writers = tf.while_loop(
        lambda t, *_: t < steps,
        body,
        (tf.constant(0), flat_state, writers),
        maximum_iterations=steps,
    )
    outputs = [writer.stack() for writer in writers]
    for output in outputs:
        static_steps = flat_inputs[0].shape[:1]
        output.set_shape(static_steps.concatenate(output.shape[1:]))
    return tree.pack_sequence_as(output_dtypes, outputs)


def _scan(step, inputs, state, output_dtypes):
    def carry_first(state, inputs):
        outputs, state = step(inputs, state)
        return state, outputs

    _, outputs = ops.scan(carry_first, state, inputs)
    return outputs


def _python_loop(step, inputs, state, output_dtypes):
    steps = keras.tree.flatten(inputs)[0].shape[0]
    outputs = []
    for t in range(steps):
        step_inputs = keras.tree.map_structure(lambda x, t=t: x[t], inputs)
        step_outputs, state = step(step_inputs, state)
        outputs.append(step_outputs)
    return keras.tree.map_structure(lambda *x: ops.stack(x), *outputs)
