"""Sparsemax and entmax: few positions get all weight, the others none."""

import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from keras import ops
from support.differences import assert_gradient_is_that_of_differences
from support.differences import gradient

from keras_attn.layers.alignments import EntmaxAlignment
from keras_attn.layers.alignments import SparsemaxAlignment

# The scale of the scores above the threshold, and the power of the weights.
KINDS = {
    "sparsemax": (SparsemaxAlignment(), 1, 1),
    "entmax": (EntmaxAlignment(), 2, 2),
}
each = pytest.mark.parametrize("name", KINDS)


def weights_of(name, scores, **kwargs):
    align, *_ = KINDS[name]
    return ops.convert_to_numpy(
        align(np.asarray(scores)[None, None], **kwargs)
    )[0, 0]


def by_bisection(name, scores):
    """Returns the weights by definition: at the threshold they sum to 1."""
    _, divisor, power = KINDS[name]
    scores = np.asarray(scores, "float64") / divisor
    low, high = scores.max() - 1, scores.max()
    for _ in range(60):
        middle = (low + high) / 2
        total = (np.maximum(scores - middle, 0) ** power).sum()
        low, high = (middle, high) if total >= 1 else (low, middle)
    return np.maximum(scores - low, 0) ** power


def test_sparsemax_is_that_worked_out_by_hand():
    # Above 1/4 stand 3/4 and 1/4.
    np.testing.assert_allclose(
        weights_of("sparsemax", [1.0, 0.5, -1.0]), [0.75, 0.25, 0], atol=1e-6
    )
    # The best alone, if the next is 1 below.
    np.testing.assert_array_equal(
        weights_of("sparsemax", [1.0, 2.0, 0.9]), [0, 1, 0]
    )


def test_entmax_is_that_worked_out_by_hand():
    # Halves of 0.8 and 0.6 above the threshold 0; 0.64 + 0.36 = 1.
    np.testing.assert_allclose(
        weights_of("entmax", [1.2, 1.6, 0.0, -0.1]),
        [0.36, 0.64, 0, 0],
        atol=1e-6,
    )
    # The best alone, if the next is 2 below.
    np.testing.assert_array_equal(
        weights_of("entmax", [-1.0, 1.0, -1.1]), [0, 1, 0]
    )


@each
@given(
    scores=hnp.arrays(
        "float32",
        st.integers(1, 12),
        elements=st.one_of(
            st.floats(-3, 3, width=16), st.sampled_from([0.0, 1.0, -1000.0])
        ),
    )
)
def test_sorting_finds_the_threshold_that_bisection_finds(name, scores):
    np.testing.assert_allclose(
        weights_of(name, scores), by_bisection(name, scores), atol=2e-6
    )


@each
@pytest.mark.parametrize("spread", [0.0, 1e-3, 0.1, 1.0, 100.0])
def test_thousands_of_scores_keep_their_digits(name, spread):
    random = np.random.default_rng(4)
    scores = (spread * random.normal(size=3000)).astype("float32")
    weights = weights_of(name, scores)
    expected = by_bisection(name, scores)
    np.testing.assert_allclose(weights.sum(), 1, rtol=1e-4)
    np.testing.assert_allclose(weights, expected, rtol=1e-2, atol=1e-5)


@each
def test_the_gradient_is_that_of_differences(name):
    align, *_ = KINDS[name]
    scores = np.array([[[1.0, 0.6, 0.35, -3.0], [0.3, 0.1, 0.2, 0.15]]])
    factors = np.array([3.0, -5.0, 2.0, 7.0], "float32")
    assert_gradient_is_that_of_differences(
        lambda x: ops.sum(ops.multiply(ops.square(align(x)), factors)), scores
    )


def test_sparsemax_s_gradient_is_the_paper_s():
    # 1 - 1/2 and -1/2 where two share the weight, nothing for the third.
    found = gradient(
        lambda x: SparsemaxAlignment()(x)[0, 0, 0], [[[1.0, 0.5, -1.0]]]
    )
    np.testing.assert_allclose(found, [[[0.5, -0.5, 0]]], atol=1e-6)


def test_entmax_s_gradient_is_the_paper_s():
    # diag(s) - s sᵀ / sum(s), s being the weights' roots: 0.6, 0.8, 0.
    found = gradient(
        lambda x: EntmaxAlignment()(x)[0, 0, 0], [[[1.2, 1.6, -0.1]]]
    )
    expected = [0.6 - 0.36 / 1.4, -0.48 / 1.4, 0]
    np.testing.assert_allclose(found, [[expected]], atol=1e-6)


@each
def test_what_got_no_weight_gets_no_gradient(name):
    # Several scores far below, at which the inner scores are cut.
    align, *_ = KINDS[name]
    scores = [[[4.0, 0.0, -5.0, 2.0, -1.0, 0.0, 1.0]]]
    found = gradient(
        lambda x: ops.sum(
            ops.multiply(align(x), np.arange(7, dtype="float32"))
        ),
        scores,
    )
    np.testing.assert_array_equal(found, np.zeros((1, 1, 7)))


@each
def test_scores_far_apart_make_no_nan(name):
    scores = np.array([3e38, -3e38, 0.0, 3e38], "float32")
    np.testing.assert_allclose(weights_of(name, scores), [0.5, 0, 0, 0.5])


@pytest.mark.full
@each
def test_a_model_learns_through_it(name):
    align, *_ = KINDS[name]
    inputs = keras.Input((5,))
    # From equal scores: a position that starts without weight never gets any.
    scores = keras.layers.Dense(4, kernel_initializer="zeros")(inputs)
    outputs = align(keras.layers.Reshape((1, 4))(scores))
    model = keras.Model(inputs, keras.layers.Flatten()(outputs))
    model.compile(keras.optimizers.Adam(0.01), "mse", jit_compile=False)
    target = np.array([[0.7, 0.3, 0, 0]])
    model.fit(np.ones((1, 5)), target, epochs=60, verbose=0)
    np.testing.assert_allclose(
        model.predict(np.ones((1, 5)), verbose=0), target, atol=0.02
    )
