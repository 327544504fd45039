"""Dynamic time warping and medians, beside loops over all cells."""

import numpy as np
import pytest
import tensorflow as tf
from support.time_warping import warped

from keras_attn.decoding.time_warping import entries
from keras_attn.decoding.time_warping import median_filtered


@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (7, 1), (5, 5), (12, 40)])
def test_the_best_path(shape):
    random = np.random.default_rng(0)
    for _ in range(5):
        gains = random.normal(size=shape).astype("float32")
        assert entries(gains).numpy().tolist() == warped(gains)


def test_in_a_graph_of_any_size():
    any_size = tf.TensorSpec([None, None], tf.float32)
    run = tf.function(entries, input_signature=[any_size])
    random = np.random.default_rng(1)
    for shape in [(3, 8), (9, 4)]:
        gains = random.normal(size=shape).astype("float32")
        assert run(gains).numpy().tolist() == warped(gains)


@pytest.mark.parametrize("width", [1, 3, 7])
def test_medians(width):
    x = np.random.default_rng(0).normal(size=(2, 3, 11)).astype("float32")
    half = width // 2
    around = np.pad(x, [(0, 0), (0, 0), (half, half)], "reflect")
    windows = np.lib.stride_tricks.sliding_window_view(around, width, axis=-1)
    found = median_filtered(tf.constant(x), width)
    np.testing.assert_array_equal(found, np.median(windows, axis=-1))


def test_too_few_numbers_stay():
    x = tf.constant([[3.0, 1.0, 2.0]])
    np.testing.assert_array_equal(median_filtered(x, 7), x)
