"""Luong's local attention: the window of each query, and its weights."""

import keras
import numpy as np
import pytest
from keras import ops
from support.differences import assert_gradient_is_that_of_differences
from support.differences import compiled_with_gradient
from support.differences import gradient

from keras_attn import Attention
from keras_attn import DotScore
from keras_attn import LocalMonotonicAlignment
from keras_attn import LocalPredictiveAlignment
from keras_attn import LuongAttention
from keras_attn.layers.alignments import Window

LN2, LN3 = np.log(2), np.log(3)


def window(first, center):
    """The window of one query."""
    return Window(
        ops.convert_to_tensor([[first]], "int32"),
        ops.convert_to_tensor([[center]], "float32"),
    )


def predictive(size, query_dim=1, **kwargs):
    align = LocalPredictiveAlignment(size, **kwargs)
    align.build((None, None, None), (None, None, query_dim))
    return align


def choose(align, query, begin, length):
    """The window of each of the queries in one sentence."""
    query = np.asarray(query, "float32").reshape((1, -1, 1))
    position = np.arange(query.shape[1], dtype="int32")[None]
    chosen = align.choose(
        ops.convert_to_tensor(query),
        ops.convert_to_tensor(position),
        ops.convert_to_tensor([[begin]], "int32"),
        ops.convert_to_tensor([[length]], "int32"),
    )
    assert keras.backend.standardize_dtype(chosen.first.dtype) == "int32"
    assert keras.backend.standardize_dtype(chosen.center.dtype) == "float32"
    return ops.convert_to_numpy(chosen.first)[0], ops.convert_to_numpy(
        chosen.center
    )[0]


def test_the_window_of_local_m_goes_along_with_the_queries():
    align = LocalMonotonicAlignment(2)
    assert align.window_width == 5
    first, center = choose(align, [9.0, 9.0, 9.0], begin=0, length=4)
    assert first.tolist() == [-2, -1, 0] and center.tolist() == [0, 1, 2]
    # Padding on the left moves the window.
    first, center = choose(align, [9.0, 9.0, 9.0], begin=3, length=4)
    assert first.tolist() == [1, 2, 3] and center.tolist() == [3, 4, 5]


def test_local_m_is_a_softmax_in_the_window():
    align = LocalMonotonicAlignment(1)
    scores = np.array([[[0.0, LN2, LN3]]])
    weights = align(scores, window=window(4, 5.0))
    np.testing.assert_allclose(weights, [[[1 / 6, 2 / 6, 3 / 6]]], rtol=1e-6)
    at_the_edge = align(
        scores,
        allowed=np.array([[[False, True, True]]]),
        window=window(-1, 0.0),
    )
    np.testing.assert_allclose(at_the_edge, [[[0, 2 / 5, 3 / 5]]], rtol=1e-6)


def test_local_p_aims_at_a_share_of_the_length():
    align = predictive(2, units=1)
    align.set_weights([np.array([[1.0]]), np.array([[1.0]])])
    # sigmoid(v · tanh(h)) with tanh(h) = ln 3 / 2 twice is 3/4.
    align.set_weights([np.array([[1.0]]), np.array([[2.0]])])
    query = np.arctanh(LN3 / 2)
    first, center = choose(align, [query, -query, 0.0], begin=0, length=9)
    np.testing.assert_allclose(center, [6.75, 2.25, 4.5], rtol=1e-6)
    # The window begins at the least whole number that is not below p - 2.
    assert first.tolist() == [5, 1, 3]
    first, center = choose(align, [query], begin=10, length=9)
    np.testing.assert_allclose(center, [16.75], rtol=1e-6)
    assert first.tolist() == [15]


def test_local_p_weighs_the_softmax_by_the_gaussian():
    align = predictive(2)
    # All scores equal. Of 5 slots from 5 the last, at 9, is beyond 6.75 + 2.
    weights = align(np.zeros((1, 1, 5)), window=window(5, 6.75))
    distance = np.array([5, 6, 7, 8]) - 6.75
    expected = np.exp(-(distance**2) / (2 * 1.0**2)) / 4
    np.testing.assert_allclose(weights[0, 0], [*expected, 0], rtol=1e-5)
    # Around a whole number all five slots count, the middle one in full.
    weights = align(np.zeros((1, 1, 5)), window=window(4, 6.0))
    edge, near = np.exp(-2) / 5, np.exp(-0.5) / 5
    np.testing.assert_allclose(
        weights[0, 0], [edge, near, 1 / 5, near, edge], rtol=1e-5
    )


def test_the_prediction_learns_through_the_gaussian_alone():
    align = predictive(2)
    factors = np.array([5.0, 7.0, 11.0, 2.0, 3.0], "float32")
    scores = np.array([[[0.1, 0.5, -0.2, 0.4, 0.3]]], "float32")
    first = ops.convert_to_tensor([[5]], "int32")

    def some_sum(center):
        return ops.sum(
            ops.multiply(align(scores, window=Window(first, center)), factors)
        )

    soft = np.exp(scores[0, 0, :4]) / np.exp(scores[0, 0, :4]).sum()
    distance = np.array([5, 6, 7, 8]) - 6.75
    # d/dp exp(-(s - p)² / 2σ²) = exp(...) · (s - p) / σ², here σ = 1.
    slope = soft * np.exp(-(distance**2) / 2) * distance
    np.testing.assert_allclose(
        gradient(some_sum, [[6.75]]),
        [[(slope * factors[:4]).sum()]],
        rtol=1e-4,
    )


def test_the_gradient_of_query_and_scores_is_that_of_differences():
    # At queries where so small a change does not move the window.
    align = predictive(2)
    align.set_weights([np.array([[0.7]]), np.array([[0.9]])])
    position = ops.convert_to_tensor([[0]], "int32")
    edges = ops.convert_to_tensor([[0]]), ops.convert_to_tensor([[9]])
    factors = np.array([5.0, 7.0, 11.0, 2.0, 3.0], "float32")

    def of_query(query):
        scores = ops.sin(ops.multiply(query, np.arange(5, dtype="float32")))
        chosen = align.choose(query, position, *edges)
        return ops.sum(ops.multiply(align(scores, window=chosen), factors))

    assert_gradient_is_that_of_differences(of_query, [[[0.4]]], atol=1e-2)


@pytest.mark.parametrize("dtype", ["mixed_float16", "mixed_bfloat16"])
def test_half_precision_aims_at_the_right_token_of_a_long_source(dtype):
    # Steps of 1/2 at 1000 in float16 and of 4 in bfloat16 would miss it.
    align = LocalPredictiveAlignment(2, units=1, dtype=dtype)
    align.build((None, None, None), (None, None, 1))
    align.set_weights([np.array([[1.0]]), np.array([[2.0]])])
    with keras.src.backend.AutocastScope(align.compute_dtype):
        _, center = choose(align, [0.5, 0.501953125], begin=0, length=4001)
    expected = 4001 / (1 + np.exp(-2 * np.tanh([0.5, 0.501953125])))
    np.testing.assert_allclose(center, expected, rtol=1e-5)


def attend(align, query, value, mask=None):
    """Weights of an attention by dot product."""
    _, weights = Attention(DotScore(), align)(
        query, value, value_mask=mask, return_attention_scores=True
    )
    return ops.convert_to_numpy(weights)


def test_an_attention_by_local_m_looks_no_further_than_the_window():
    random = np.random.default_rng(0)
    query, value = random.normal(size=(2, 2, 6, 3)).astype("float32")
    weights = attend(LocalMonotonicAlignment(1), query, value)
    scores = np.einsum("btd,bsd->bts", query, value)
    near = np.abs(np.subtract.outer(np.arange(6), np.arange(6))) <= 1
    expected = np.exp(scores) * near
    expected /= expected.sum(-1, keepdims=True)
    np.testing.assert_allclose(weights, expected, rtol=1e-4, atol=1e-6)


def test_a_query_past_the_source_looks_nowhere():
    weights = attend(
        LocalMonotonicAlignment(1), np.ones((1, 5, 2)), np.ones((1, 3, 2))
    )
    np.testing.assert_allclose(weights[0, 3], [0, 0, 1])
    assert not weights[0, 4].any()


def test_an_attention_by_local_p_minds_lengths_and_left_padding():
    query = np.zeros((2, 1, 2), "float32")  # aims at the middle
    value = np.zeros((2, 8, 2), "float32")
    mask = np.array([[1, 1, 1, 1, 0, 0, 0, 0], [0, 0, 1, 1, 1, 1, 0, 0]], bool)
    weights = attend(LocalPredictiveAlignment(1), query, value, mask)
    # p is 2 in the first and 2 + 2 in the second; D = 1, σ = 1/2.
    part = np.array([np.exp(-2), 1, np.exp(-2)]) / 3
    np.testing.assert_allclose(weights[0, 0, 1:4], part, rtol=1e-5)
    np.testing.assert_allclose(weights[1, 0, 3:6], part, rtol=1e-5)
    np.testing.assert_allclose(weights.sum(), 2 * part.sum(), rtol=1e-5)


@pytest.mark.parametrize("kind", ["m", "p"])
def test_xla_compiles_weights_and_gradients(kind):
    random = np.random.default_rng(1)
    query, value = random.normal(size=(2, 3, 5, 4)).astype("float32")
    made = LocalMonotonicAlignment(1) if kind == "m" else predictive(1, 4)
    attention = Attention(DotScore(), made)

    def weights_of(query, value):
        return attention(query, value, return_attention_scores=True)[1]

    expected = weights_of(query, value)
    run = compiled_with_gradient(
        weights_of, ((None, None, 4), "float32"), ((None, None, 4), "float32")
    )
    weights, found = run(query, value)
    np.testing.assert_allclose(weights, expected, atol=1e-5)
    factors = np.sin(np.arange(5, dtype="float32"))
    np.testing.assert_allclose(
        found,
        gradient(
            lambda x: ops.sum(ops.multiply(weights_of(x, value), factors)),
            query,
        ),
        atol=1e-4,
    )


@pytest.mark.parametrize(
    "align",
    [LocalMonotonicAlignment(3), LocalPredictiveAlignment(2, units=5)],
)
def test_a_local_alignment_is_its_config(align):
    config = keras.saving.serialize_keras_object(align)
    again = keras.saving.deserialize_keras_object(config)
    assert again.get_config() == align.get_config()
    assert again.window_width == align.window_width


@pytest.mark.parametrize("size", [0, -1, 2.0, True, None])
def test_a_window_is_a_positive_whole_number(size):
    for kind in (LocalMonotonicAlignment, LocalPredictiveAlignment):
        with pytest.raises(ValueError, match="`window` must be a positive"):
            kind(size)
    if size is not None:
        with pytest.raises(ValueError, match="`window` must be a positive"):
            LuongAttention("dot", alignment="local-m", window=size)
    with pytest.raises(ValueError, match="`units` must be a positive"):
        LocalPredictiveAlignment(1, units=0)


def test_the_hidden_layer_is_as_wide_as_the_query_or_as_told():
    shapes = [w.shape for w in predictive(1, query_dim=4).get_weights()]
    assert shapes == [(4, 4), (4, 1)]
    told = predictive(1, query_dim=4, units=7)
    assert [w.shape for w in told.get_weights()] == [(4, 7), (7, 1)]
