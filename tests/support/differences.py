"""Gradients of functions of arrays, on every backend, and a check."""

import keras
import numpy as np
import pytest
from keras import ops


def gradient(function, x):
    """The gradient of a scalar function at the array `x`."""
    backend = keras.backend.backend()
    x = ops.convert_to_tensor(np.asarray(x, "float32"))
    if backend == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape() as tape:
            tape.watch(x)
            result = function(x)
        found = tape.gradient(
            result, x, unconnected_gradients=tf.UnconnectedGradients.ZERO
        )
        return ops.convert_to_numpy(found)
    if backend == "jax":
        import jax

        return np.asarray(jax.grad(function)(x))
    result = function(x.requires_grad_())
    if not result.requires_grad:  # as of a constant
        return np.zeros(x.shape, "float32")
    result.backward()
    return ops.convert_to_numpy(ops.zeros_like(x) if x.grad is None else x.grad)


def assert_gradient_is_that_of_differences(function, x, step=1e-2, atol=2e-3):
    """Compares with central differences, which need no calculus."""
    x = np.asarray(x, "float32")
    expected = np.zeros_like(x)
    for index in np.ndindex(x.shape):
        moved = np.zeros_like(x)
        moved[index] = step
        up, down = (
            ops.convert_to_numpy(function(x + s * moved)) for s in (1, -1)
        )
        expected[index] = (up - down) / (2 * step)
    np.testing.assert_allclose(gradient(function, x), expected, atol=atol)


def compiled_with_gradient(function, *specs):
    """Weights of scores and their gradient, compiled by XLA on TensorFlow.

    Args:
        function: From scores and other arrays to weights.
        specs: Shape and dtype of each, `None` where a size is not known.
    """
    if keras.backend.backend() != "tensorflow":
        pytest.skip("Other backends compile by themselves.")
    import tensorflow as tf

    @tf.function(
        jit_compile=True,
        autograph=False,
        input_signature=[tf.TensorSpec(*spec) for spec in specs],
    )
    def run(scores, *others):
        with tf.GradientTape() as tape:
            tape.watch(scores)
            weights = function(scores, *others)
            # Some weights of the weights, lest their sum be constant.
            size = tf.cast(tf.shape(weights)[-1], tf.float32)
            loss = tf.reduce_sum(weights * tf.sin(tf.range(size)))
        return weights, tape.gradient(loss, scores)

    return run
