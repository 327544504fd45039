"""Alignments: the softmax, and promises that all alignments keep."""

import math

import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from keras import ops
from support.differences import compiled_with_gradient
from support.differences import gradient

from keras_attn.layers.alignments import Alignment
from keras_attn.layers.alignments import EntmaxAlignment
from keras_attn.layers.alignments import HardAlignment
from keras_attn.layers.alignments import SigmoidAlignment
from keras_attn.layers.alignments import SoftmaxAlignment
from keras_attn.layers.alignments import SparsemaxAlignment

LN2, LN3 = math.log(2), math.log(3)

# All alignments that need nothing but scores.
GLOBAL = {
    "softmax": SoftmaxAlignment(),
    "sharp": SoftmaxAlignment(temperature=0.25),
    "sigmoid": SigmoidAlignment(),
    "sparsemax": SparsemaxAlignment(),
    "entmax": EntmaxAlignment(),
    "hard": HardAlignment(),
}
each = pytest.mark.parametrize("name", GLOBAL)


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
    scores = np.array([[[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]]], "float32")
    allowed = np.array([[[True, True, False], [False, False, False]]])
    factors = np.array([5.0, 7.0, 11.0], "float32")
    found = gradient(
        lambda x: ops.sum(
            ops.multiply(SoftmaxAlignment()(x, allowed=allowed), factors)
        ),
        scores,
    )[0]
    assert found[0, 0] != 0 and found[0, 1] != 0
    np.testing.assert_array_equal(found[0, 2], 0)
    np.testing.assert_array_equal(found[1], [0, 0, 0])


def test_temperature_sharpens():
    # (1 : 2) squared is 1 : 4.
    weights = SoftmaxAlignment(temperature=0.5)(np.array([[[0, LN2]]]))
    np.testing.assert_allclose(weights, [[[1 / 5, 4 / 5]]], rtol=1e-6)


@pytest.mark.parametrize("temperature", [0, -1.0, math.inf, math.nan])
@pytest.mark.parametrize("kind", [SoftmaxAlignment, HardAlignment])
def test_a_temperature_must_be_above_zero(kind, temperature):
    with pytest.raises(ValueError, match="must be above 0 and finite"):
        kind(temperature=temperature)


def test_smoothed_weights_are_those_worked_out_by_hand():
    # The sigmoids of 0 and ln 3 are 1/2 and 3/4.
    align = SigmoidAlignment()
    weights = align(np.array([[[0, LN3]]]))
    np.testing.assert_allclose(weights, [[[2 / 5, 3 / 5]]], rtol=1e-6)
    # High scores share the weight, where a softmax would give it to one.
    np.testing.assert_allclose(
        align(np.array([[[50.0, 99.0]]])), [[[0.5, 0.5]]]
    )


def test_smoothing_scores_far_below_zero_still_sums_to_one():
    weights = SigmoidAlignment()(np.array([[[-300.0, -300.0 + LN2]]]))
    np.testing.assert_allclose(weights, [[[1 / 3, 2 / 3]]], rtol=1e-4)


@pytest.mark.sample_cases(2)
@each
@given(data=st.data())
def test_weights_are_shares_of_one_among_what_is_allowed(name, data):
    shape = data.draw(st.tuples(*[st.integers(1, n) for n in (2, 3, 7)]))
    numbers = st.floats(-60000, 60000, width=16)
    scores = data.draw(hnp.arrays("float32", shape, elements=numbers))
    allowed = data.draw(hnp.arrays("bool", shape))
    weights = values(GLOBAL[name](scores, allowed=allowed))
    assert weights.dtype == "float32"
    assert (weights >= 0).all()
    assert not weights[~allowed].any()
    np.testing.assert_allclose(weights.sum(-1), allowed.any(-1), atol=1e-5)


@each
@given(data=st.data())
def test_a_higher_score_never_has_less_weight(name, data):
    numbers = st.floats(-20, 20, width=16)
    scores = data.draw(
        hnp.arrays("float32", st.integers(1, 9), elements=numbers)
    )
    weights = values(GLOBAL[name](scores[None, None]))[0, 0]
    in_order = weights[np.argsort(scores, kind="stable")]
    if name == "hard":  # in a tie one position gets all the weight
        assert scores[np.argmax(weights)] == scores.max()
    else:
        assert (np.diff(in_order) >= -1e-6).all()


@each
def test_padding_changes_nothing_even_if_it_holds_the_highest_scores(name):
    scores = np.array([[[1.0, 0.5, -1.0, 0.8]]], "float32")
    padded = np.concatenate([[[[9e4]]], scores, [[[7.0, np.nan]]]], axis=-1)
    allowed = np.array([[[False, True, True, True, True, False, False]]])
    expected = values(GLOBAL[name](scores))
    weights = values(GLOBAL[name](padded, allowed=allowed))
    np.testing.assert_allclose(weights[..., 1:5], expected, atol=1e-6)
    assert not weights[~allowed].any()


@each
def test_gradients_are_finite_also_of_rows_that_may_look_nowhere(name):
    scores = np.array([[[1.0, 0.5, 3.0], [2.0, 2.0, 2.0], [3.0, 1.0, 9.0]]])
    allowed = np.array([[[1, 1, 0], [1, 1, 1], [0, 0, 0]]], bool)

    def some_sum(scores):
        weights = GLOBAL[name](scores, allowed=allowed)
        return ops.sum(
            ops.multiply(weights, np.array([5.0, 7.0, 11.0], "float32"))
        )

    found = gradient(some_sum, scores)[0]
    assert np.isfinite(found).all()
    np.testing.assert_array_equal(found[0, 2], 0)
    np.testing.assert_array_equal(found[2], [0, 0, 0])
    assert name == "hard" or found[1].any()


@each
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_scores_in_half_precision_make_weights_in_full(name, dtype):
    scores = np.random.default_rng(3).normal(size=(2, 3, 6)).astype("float32")
    scores = ops.cast(scores, dtype)
    weights = GLOBAL[name](scores)
    assert keras.backend.standardize_dtype(weights.dtype) == "float32"
    expected = GLOBAL[name](ops.cast(scores, "float32"))
    np.testing.assert_array_equal(values(weights), values(expected))


@pytest.mark.sample_cases(4)
@each
@pytest.mark.parametrize("source", [None, 6])
def test_xla_compiles_weights_and_gradients(name, source):
    random = np.random.default_rng(5)
    scores = random.normal(size=(2, 3, 6)).astype("float32")
    allowed = random.random((2, 3, 6)) < 0.7
    allowed[0, 1] = False
    align = GLOBAL[name]
    run = compiled_with_gradient(
        lambda scores, allowed: align(scores, allowed=allowed) + 0 * scores,
        ((None, None, source), "float32"),
        ((None, None, source), "bool"),
    )
    weights, found = run(scores, allowed)
    np.testing.assert_allclose(
        weights, align(scores, allowed=allowed), atol=1e-6
    )
    factors = np.sin(np.arange(6, dtype="float32"))
    expected = gradient(
        lambda x: ops.sum(ops.multiply(align(x, allowed=allowed), factors)),
        scores,
    )
    np.testing.assert_allclose(found, expected, atol=1e-5)


@each
def test_an_alignment_is_its_config(name):
    config = keras.saving.serialize_keras_object(GLOBAL[name])
    again = keras.saving.deserialize_keras_object(config)
    assert again.get_config() == GLOBAL[name].get_config()
    scores = np.array([[[1.0, 0.5, -1.0]]])
    np.testing.assert_array_equal(again(scores), GLOBAL[name](scores))


def test_an_alignment_of_ones_own_may_hold_layers_and_weights():
    # Keras warns when it builds a layer with parts that has no `build`.
    class Sharpened(Alignment):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.softmax = SoftmaxAlignment()

        def build(self, scores_shape, query_shape):
            self.sharpness = self.add_weight(shape=(), initializer="ones")

        def call(self, scores, allowed=None):
            return self.softmax(scores * self.sharpness, allowed=allowed)

    align = Sharpened()
    align.build((None, None, None), (None, None, 4))  # like `Attention`
    scores = np.array([[[0, LN2]]], "float32")
    np.testing.assert_allclose(
        values(align(scores)), [[[1 / 3, 2 / 3]]], rtol=1e-6
    )
    align.set_weights([np.array(2.0)])
    np.testing.assert_allclose(
        values(align(scores)), [[[1 / 5, 4 / 5]]], rtol=1e-6
    )


def values(tensor):
    return ops.convert_to_numpy(tensor)
