"""The loop over time, with and without padding."""

import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_attn.layers import loops

NUMBERS = np.array([[1, 2, 4, 8], [1, 2, 4, 8], [1, 2, 4, 8]], "float32")
PADDINGS = {
    "at the end": ["1111", "1110", "1000"],
    "in front": ["1111", "0111", "0001"],
    "anywhere": ["1011", "0110", "0101"],
    "all": ["0000", "0000", "0000"],
}


def mask_of(name):
    return np.array([[c == "1" for c in row] for row in PADDINGS[name]])


def sum_up(numbers, mask=None):
    """Running sums, and a second output that may stay unused."""

    def step(number, total):
        return (total + number, number), total + number

    numbers = ops.convert_to_tensor(numbers)[..., None]
    start = ops.zeros((3, 1))
    sums, seen = loops.unroll(
        step, numbers, start, ("float32", "float32"), mask
    )
    return sums[..., 0], seen[..., 0]


def test_the_state_goes_from_step_to_step():
    sums, seen = sum_up(NUMBERS)
    np.testing.assert_array_equal(sums, [[1, 3, 7, 15]] * 3)
    np.testing.assert_array_equal(seen, NUMBERS)


@pytest.mark.parametrize("name", PADDINGS)
def test_padding_does_not_touch_the_state(name):
    mask = mask_of(name)
    sums, seen = sum_up(NUMBERS, ops.convert_to_tensor(mask))
    expected = np.cumsum(NUMBERS * mask, axis=1)
    np.testing.assert_array_equal(np.array(sums)[mask], expected[mask])
    np.testing.assert_array_equal(np.array(seen)[mask], NUMBERS[mask])


@pytest.mark.sample_cases(1)
@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("name", PADDINGS)
def test_gradients_pass_padding_by(name, jit_compile):
    # The last real sum has all real numbers and no other.
    mask = mask_of(name)
    last = mask & (np.cumsum(mask[:, ::-1], axis=1)[:, ::-1] == 1)

    @tf.function(jit_compile=jit_compile, autograph=False)
    def gradient(numbers, mask):
        with tf.GradientTape() as tape:
            tape.watch(numbers)
            sums, _ = sum_up(numbers, mask)
            total = tf.reduce_sum(tf.where(last, sums, 0.0))
        return tape.gradient(total, numbers)

    np.testing.assert_array_equal(
        gradient(tf.constant(NUMBERS), tf.constant(mask)), mask.astype(float)
    )
