"""Gradients, graphs and XLA: the scores on TensorFlow."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from support.histories import LONGER
from support.histories import array
from support.histories import attention_and_inputs
from support.histories import each_score
from support.histories import history

import keras_attn
from keras_attn.layers.scores import AdditiveScore
from keras_attn.layers.scores import CosineScore
from keras_attn.layers.scores import CoverageScore
from keras_attn.layers.scores import LocationScore

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="tf.GradientTape"
)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_cosines_are_sound_at_zero_and_at_the_ends_of_float16(dtype):
    score = CosineScore(dtype=dtype)
    score.build((1, 3, 2), (1, 3, 2))
    # 300 squared is beyond float16, and so is 0.0002 squared.
    x = tf.constant([[[0, 0], [300, 400], [0.003, 0.004]]], dtype)
    with tf.GradientTape() as tape:
        tape.watch(x)
        scores = score(x, score.project(x))
    np.testing.assert_allclose(
        tf.cast(scores, "float32"),
        [[[0, 0, 0], [0, 1, 1], [0, 1, 1]]],
        rtol=1e-5 if dtype == "float32" else 1e-2,
    )
    assert np.isfinite(tf.cast(tape.gradient(scores, x), "float32")).all()


def test_a_v_of_zeros_is_normalized_to_zeros():
    score = AdditiveScore(2, normalize=True, kernel_initializer="zeros")
    one = np.ones((1, 1, 1), "float32")
    score.build(one.shape, one.shape)
    with tf.GradientTape() as tape:
        scores = score(one, score.project(one))
    np.testing.assert_array_equal(scores, [[[0]]])
    gradient = tape.gradient(scores, score.v.value)
    np.testing.assert_array_equal(gradient, [[0], [0]])


def test_a_source_of_unknown_length_is_refused_when_the_graph_runs():
    attention = keras_attn.Attention(LocationScore(3))
    attention.build((None, None, 4), (None, None, 4))
    spec = tf.TensorSpec((None, None, 4))
    graph = tf.function(attention, input_signature=[spec, spec])
    assert graph(tf.ones((1, 2, 4)), tf.ones((1, 3, 4))).shape == (1, 2, 4)
    with pytest.raises(tf.errors.InvalidArgumentError, match=LONGER.format("")):
        graph(tf.ones((1, 2, 4)), tf.ones((1, 4, 4)))


def test_xla_which_cannot_refuse_gives_no_numbers_for_a_longer_source():
    attention = keras_attn.Attention(LocationScore(3))
    attention.build((None, None, 4), (None, None, 4))
    spec = tf.TensorSpec((None, None, 4))
    graph = tf.function(
        attention, input_signature=[spec, spec], jit_compile=True
    )
    assert np.isfinite(graph(tf.ones((1, 2, 4)), tf.ones((1, 3, 4)))).all()
    assert np.isnan(graph(tf.ones((1, 2, 4)), tf.ones((1, 6, 4)))).all()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_fertility_of_nothing_leaves_scores_and_gradients_finite(dtype):
    score = CoverageScore(1, "fertility", dtype=dtype)
    query = tf.ones((1, 1, 1), dtype)
    key = tf.constant([[[-1.0], [1.0], [0.0]]], dtype)
    score.build(query.shape, key.shape)
    score.set_weights([array(x) for x in ([[1]], [[1]], [[1]], [[1]], [[99]])])
    past = history([0, 0, 1], total=[9, 9, 0])
    with tf.GradientTape() as tape:
        tape.watch(key)
        scores = score(query, score.project(key), history=past)
    assert np.isfinite(tf.cast(scores, "float32")).all()
    assert np.isfinite(tf.cast(tape.gradient(scores, key), "float32")).all()


@pytest.mark.sample_cases(1)
@each_score
def test_gradients_under_xla_in_a_loop_are_those_of_eager_execution(name):
    attention, *inputs = attention_and_inputs(name)
    query, value, mask = (tf.constant(x) for x in inputs)

    def gradients(query, value, mask):
        with tf.GradientTape() as tape:
            tape.watch([query, value])
            context = attention(query, value, value_mask=mask)
            loss = tf.reduce_sum(context**2)
        weights = [w.value for w in attention.trainable_weights]
        return tape.gradient(loss, [query, value, *weights])

    eager = gradients(query, value, mask)
    for jit_compile in (False, True):
        graph = tf.function(
            gradients,
            input_signature=[
                tf.TensorSpec((None, None, 4)),
                tf.TensorSpec((None, None, 4)),
                tf.TensorSpec((None, None), "bool"),
            ],
            jit_compile=jit_compile,
        )
        for x, expected in zip(graph(query, value, mask), eager, strict=True):
            np.testing.assert_allclose(x, expected, rtol=1e-3, atol=1e-5)
            assert np.asarray(expected).any()


def test_a_fertility_in_float16_has_finite_gradients():
    # A sum of 150 divided by the least fertility is beyond float16.
    score = CoverageScore(4, "fertility", dtype="mixed_float16")
    attention = keras_attn.Attention(score, dtype="mixed_float16")
    query, value = np.zeros((1, 300, 5)), np.ones((1, 2, 7))
    attention.build(query.shape, value.shape)
    score.fertility_kernel.assign(np.full((7, 1), -5.0))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.cast(attention(query, value), "float32") ** 2)
    weights = attention.trainable_weights
    for weight, gradient in zip(
        weights, tape.gradient(loss, weights), strict=True
    ):
        assert np.isfinite(gradient).all(), weight.path
