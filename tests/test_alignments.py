"""How scores become weights."""

import math

import keras
import numpy as np
import pytest
from keras import ops

from keras_attn.alignments import Alignment
from keras_attn.alignments import SoftmaxAlignment

LN2, LN3 = math.log(2), math.log(3)


def test_softmax_weights_are_those_worked_out_by_hand():
    # e^0, e^ln2 and e^ln3 are 1, 2 and 3 of 6.
    weights = SoftmaxAlignment()(np.array([[[0, LN2, LN3]]]))
    np.testing.assert_allclose(weights, [[[1 / 6, 2 / 6, 3 / 6]]], rtol=1e-6)


def test_what_is_not_allowed_gets_nothing_and_the_others_share_all():
    weights = SoftmaxAlignment()(
        np.array([[[0, LN2, LN3]]]), allowed=np.array([[[True, False, True]]])
    )
    np.testing.assert_allclose(weights, [[[1 / 4, 0, 3 / 4]]], rtol=1e-6)
    assert values(weights)[0, 0, 1] == 0


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_row_that_may_look_nowhere_is_zero(dtype):
    scores = ops.cast(np.array([[[5.0, -5.0], [LN2, 0.0]]]), dtype)
    allowed = np.array([[[False, False], [True, True]]])
    weights = SoftmaxAlignment()(scores, allowed=allowed)
    assert not values(weights)[0, 0].any()
    np.testing.assert_allclose(weights[0, 1], [2 / 3, 1 / 3], atol=1e-2)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_weights_are_float32_and_keep_their_tail(dtype):
    # Among 5000 equal scores a weight is 2e-4; in half precision their sum
    # is off by a lot more than this.
    weights = SoftmaxAlignment(dtype=dtype)(ops.zeros((1, 1, 5000), dtype))
    assert keras.backend.standardize_dtype(weights.dtype) == "float32"
    np.testing.assert_allclose(values(weights).sum(), 1, rtol=1e-5)
    np.testing.assert_allclose(weights[0, 0, :3], [1 / 5000] * 3, rtol=1e-5)


def test_large_scores_make_no_nan():
    weights = SoftmaxAlignment()(np.array([[[3e4, -3e4, 3e4]]], "float32"))
    np.testing.assert_allclose(weights, [[[0.5, 0, 0.5]]])


@pytest.mark.parametrize("allowed", [None, True, False])
def test_a_source_of_one_token_has_weight_one_or_none(allowed):
    mask = None if allowed is None else np.array([[[allowed]]])
    weights = SoftmaxAlignment()(np.array([[[-7.0]]]), allowed=mask)
    np.testing.assert_array_equal(weights, [[[0 if allowed is False else 1]]])


def test_a_mask_of_any_query_and_one_a_query_are_both_taken():
    scores = np.zeros((1, 2, 2))
    one_for_all = SoftmaxAlignment()(
        scores, allowed=np.array([[[True, False]]])
    )
    np.testing.assert_array_equal(one_for_all, [[[1, 0], [1, 0]]])
    one_each = SoftmaxAlignment()(
        scores, allowed=np.array([[[True, False], [True, True]]])
    )
    np.testing.assert_array_equal(one_each, [[[1, 0], [0.5, 0.5]]])


def test_no_gradient_comes_from_masked_scores_nor_nan_from_empty_rows():
    tf = pytest.importorskip("tensorflow")
    scores = tf.constant([[[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]]])
    allowed = np.array([[[True, True, False], [False, False, False]]])
    with tf.GradientTape() as tape:
        tape.watch(scores)
        weights = SoftmaxAlignment()(scores, allowed=allowed)
        loss = tf.reduce_sum(weights * [5.0, 7.0, 11.0])
    gradient = tape.gradient(loss, scores)[0]
    assert gradient[0, 0] != 0 and gradient[0, 1] != 0
    np.testing.assert_array_equal(gradient[0, 2], 0)
    np.testing.assert_array_equal(gradient[1], [0, 0, 0])


def test_an_alignment_of_ones_own_may_hold_layers_and_weights():
    # Keras warns when it builds a layer with parts that has no `build`.
    class Sharpened(Alignment):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.softmax = SoftmaxAlignment()

        def build(self, scores_shape):
            self.sharpness = self.add_weight(shape=(), initializer="ones")

        def call(self, scores, allowed=None):
            return self.softmax(scores * self.sharpness, allowed=allowed)

    align = Sharpened()
    scores = np.array([[[0, LN2]]], "float32")
    np.testing.assert_allclose(align(scores), [[[1 / 3, 2 / 3]]], rtol=1e-6)
    align.set_weights([np.array(2.0)])
    np.testing.assert_allclose(align(scores), [[[1 / 5, 4 / 5]]], rtol=1e-6)


def values(tensor):
    return ops.convert_to_numpy(tensor)
