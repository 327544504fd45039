"""One loop over time for every backend.

`keras.layers.RNN` cannot carry a memory, and `keras.ops.scan` cannot be
compiled by XLA on TensorFlow, so TensorFlow gets a `tf.while_loop` with
buffers of fixed size. JAX scans; PyTorch loops in Python.
"""

import keras
from keras import ops


def unroll(step, inputs, state, output_dtypes, mask=None):
    """Runs `step` over axis 1 of the inputs and stacks what it returns.

    Args:
        step: Function from `(inputs_t, state)` to `(outputs_t, state)`. The
            returned state has the structure, shapes and dtypes of the one
            that came in; outputs are a structure of tensors.
        inputs: Structure of tensors of shape `(batch, time, ...)`. A step
            receives the same structure with tensors `(batch, ...)`.
        state: Structure of tensors whose first axis is the batch, possibly
            empty: what the first step receives.
        output_dtypes: Structure of dtype names, that of a step's outputs.
        mask: Boolean tensor of shape `(batch, time)`, or `None`. Where it
            is False the state stays as it was.

    Returns:
        Outputs, stacked along axis 1 to `(batch, time, ...)`, and the state
        after the last step.
    """
    if mask is not None:
        step, inputs = _hold_state_where_masked(step), (inputs, mask)
    inputs = keras.tree.map_structure(_time_major, inputs)
    loops = {"tensorflow": _while_loop, "jax": _scan}
    loop = loops.get(keras.backend.backend(), _python_loop)
    outputs, state = loop(step, inputs, state, output_dtypes)
    return keras.tree.map_structure(_time_major, outputs), state


def _time_major(x):
    """Swaps axes 0 and 1, either way."""
    return ops.swapaxes(x, 0, 1)


def _hold_state_where_masked(step):
    def masked_step(inputs, state):
        inputs, mask = inputs
        outputs, new_state = step(inputs, state)

        def hold(new, old):
            # (batch,) -> (batch, 1, ...), to broadcast over the state
            keep = ops.reshape(mask, (-1,) + (1,) * (len(new.shape) - 1))
            return ops.where(keep, new, old)

        return outputs, keras.tree.map_structure(hold, new_state, state)

    return masked_step


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
    _, flat_state, writers = tf.while_loop(
        lambda t, *_: t < steps,
        body,
        (tf.constant(0), flat_state, writers),
        maximum_iterations=steps,
    )
    outputs = [writer.stack() for writer in writers]
    for output in outputs:
        static_steps = flat_inputs[0].shape[:1]
        output.set_shape(static_steps.concatenate(output.shape[1:]))
    return (
        tree.pack_sequence_as(output_dtypes, outputs),
        tree.pack_sequence_as(state, flat_state),
    )


def _scan(step, inputs, state, output_dtypes):
    def carry_first(state, inputs):
        outputs, state = step(inputs, state)
        return state, outputs

    state, outputs = ops.scan(carry_first, state, inputs)
    return outputs, state


def _python_loop(step, inputs, state, output_dtypes):
    steps = keras.tree.flatten(inputs)[0].shape[0]
    outputs = []
    for t in range(steps):
        step_inputs = keras.tree.map_structure(lambda x, t=t: x[t], inputs)
        step_outputs, state = step(step_inputs, state)
        outputs.append(step_outputs)
    return keras.tree.map_structure(lambda *x: ops.stack(x), *outputs), state
