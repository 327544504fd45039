"""Every score against numbers computed by hand."""

import math

import keras
import numpy as np
import pytest
from support.mechanisms import values

import keras_attn
from keras_attn.layers.scores import AdditiveScore
from keras_attn.layers.scores import ConcatScore
from keras_attn.layers.scores import CosineScore
from keras_attn.layers.scores import DotScore
from keras_attn.layers.scores import GeneralScore
from keras_attn.layers.scores import ScaledDotScore

LN2 = math.log(2)


def weights_of(score, query, key, kernels=()):
    """The attention of one query, with the score's weights set."""
    attention = keras_attn.Attention(score)
    query, key = np.array([query], "float32"), np.array([key], "float32")
    attention.build(query.shape, key.shape)
    attention.set_weights([np.array(x, "float32") for x in kernels])
    context, weights = values(
        attention(query, key, return_attention_scores=True)
    )
    np.testing.assert_allclose(context, np.matmul(weights, key), rtol=1e-5)
    return weights[0]


def test_dot_scores_become_the_weights_worked_out_by_hand():
    # The scores are [0, ln 2], so the weights must be 1/3 and 2/3.
    weights = weights_of(DotScore(), [[LN2]], [[0], [1]])
    np.testing.assert_allclose(weights, [[1 / 3, 2 / 3]], rtol=1e-6)


def test_scaled_dot_scores_are_divided_by_the_root_of_the_width():
    # The products are [0, 2 ln 2] and the root of 4 is 2.
    query = [[LN2, LN2, 0, 0]]
    weights = weights_of(ScaledDotScore(), query, [[0] * 4, [1] * 4])
    np.testing.assert_allclose(weights, [[1 / 3, 2 / 3]], rtol=1e-6)


def test_a_learned_scale_starts_at_one_over_the_root_of_the_width():
    query, key = np.ones((1, 3, 4), "float32"), np.ones((1, 2, 4), "float32")
    learned = ScaledDotScore(learned_scale=True)
    learned.build(query.shape, key.shape)
    np.testing.assert_allclose(
        values(learned(query, key)), np.full((1, 3, 2), 2.0)
    )
    learned.set_weights([np.array(0.75)])
    np.testing.assert_allclose(
        values(learned(query, key)), np.full((1, 3, 2), 3.0)
    )
    assert not ScaledDotScore().weights


def test_cosines_are_of_the_directions_alone_times_the_sharpness():
    # The cosines are [1, 0, -1] and softplus(ln 2) is ln 3, so the weights
    # go as 3 : 1 : 1 / 3.
    weights = weights_of(
        CosineScore(),
        [[3, 4], [0.3, 0.4]],
        [[60, 80], [-4, 3], [-0.3, -0.4]],
        [LN2],
    )
    expected = np.array([9, 3, 1]) / 13
    np.testing.assert_allclose(weights, [expected, expected], rtol=1e-5)


@pytest.mark.parametrize("sharpness", [1e-3, 1, 20.0, 1000])
def test_the_sharpness_starts_as_asked_and_stays_positive(sharpness):
    score = CosineScore(initial_sharpness=sharpness)
    score.build((1, 1, 2), (1, 1, 2))
    alike = np.array([[[1.0, 0.0]]], "float32")
    np.testing.assert_allclose(
        values(score(alike, alike)), [[[sharpness]]], rtol=1e-4
    )
    score.set_weights([np.array(-5.0)])
    scores = values(score(alike, alike))
    assert (0 < scores).all() and (scores < 0.01).all()


def test_general_scores_carry_keys_into_the_space_of_the_query():
    # The kernel takes the key's second number, times ln 3: [0, ln 3].
    weights = weights_of(
        GeneralScore(), [[1]], [[7, 0], [-5, 1]], [[[0], [math.log(3)]]]
    )
    np.testing.assert_allclose(weights, [[1 / 4, 3 / 4]], rtol=1e-6)


def test_general_scores_with_the_identity_are_dot_products():
    query, key = [[1, 2], [0, 3]], [[0.5, -1], [2, 0], [0.1, 0.2]]
    np.testing.assert_allclose(
        weights_of(GeneralScore(), query, key, [np.eye(2)]),
        weights_of(DotScore(), query, key),
        rtol=1e-5,
    )


def test_additive_scores_add_query_and_key_under_the_tanh():
    # tanh(1 + [-1, 0]) = [0, tanh 1], and v makes ln 2 of the latter.
    weights = weights_of(
        AdditiveScore(1),
        [[0.5]],
        [[-1], [0]],
        [[[2]], [[1]], [[LN2 / math.tanh(1)]]],
    )
    np.testing.assert_allclose(weights, [[1 / 3, 2 / 3]], rtol=1e-6)


def test_additive_scores_sum_over_the_units():
    # The first unit sees the query alone, the second the key alone:
    # a tanh 1 + b tanh [0, 1], with a any number and b = ln 2 / tanh 1.
    weights = weights_of(
        AdditiveScore(2),
        [[1]],
        [[0], [1]],
        [[[1, 0]], [[0, 1]], [[9], [LN2 / math.tanh(1)]]],
    )
    np.testing.assert_allclose(weights, [[1 / 3, 2 / 3]], rtol=1e-6)


@pytest.mark.parametrize(
    "make, kernels",
    [(AdditiveScore, [[[1]], [[1]]]), (ConcatScore, [[[1], [1]]])],
)
def test_the_bias_is_added_inside_the_tanh(make, kernels):
    # tanh(1 + [-3, -2] + 2) = [0, tanh 1]
    score = make(1, use_bias=True)
    v, bias = [[LN2 / math.tanh(1)]], [2]
    weights = weights_of(score, [[1]], [[-3], [-2]], [*kernels, v, bias])
    np.testing.assert_allclose(weights, [[1 / 3, 2 / 3]], rtol=1e-6)


def test_a_normalized_v_has_the_length_g():
    # v / |v| = [0.6, 0.8]: 5 * (0.6 tanh 1 + 0.8 tanh 2)
    score = AdditiveScore(2, normalize=True)
    one = np.ones((1, 1, 1), "float32")
    score.build(one.shape, one.shape)
    kernels = [np.array([[1.0, 2.0]]), np.zeros((1, 2))]
    expected = 0.6 * math.tanh(1) + 0.8 * math.tanh(2)
    for v in ([[3.0], [4.0]], [[0.03], [0.04]]):
        score.set_weights([*kernels, np.array(v), np.array(5.0)])
        scores = values(score(one, score.project(one)))
        np.testing.assert_allclose(scores, [[[5 * expected]]], rtol=1e-5)


def test_normalizing_starts_as_in_tf_addons_with_g_and_with_the_bias_b():
    score = AdditiveScore(16, use_bias=True, normalize=True)
    score.build((1, 1, 2), (1, 1, 2))
    assert [w.name for w in score.weights] == [
        "query_kernel",
        "key_kernel",
        "v",
        "bias",
        "g",
    ]
    *_, bias, g = score.get_weights()
    np.testing.assert_array_equal(bias, np.zeros(16))
    np.testing.assert_allclose(g, 1 / 4)


def test_concat_scores_meet_query_and_key_laid_end_to_end():
    # The kernel's first row is the query's, the other two the key's.
    kernel = [[2], [1], [0]]
    weights = weights_of(
        ConcatScore(1),
        [[0.5]],
        [[-1, 8], [0, 8]],
        [kernel, [[LN2 / math.tanh(1)]]],
    )
    np.testing.assert_allclose(weights, [[1 / 3, 2 / 3]], rtol=1e-6)


def test_concat_is_additive_with_the_two_kernels_laid_end_to_end():
    random = np.random.default_rng(0)
    query, key = random.normal(size=(2, 3)), random.normal(size=(4, 5))
    of_query, of_key = random.normal(size=(3, 6)), random.normal(size=(5, 6))
    v = random.normal(size=(6, 1))
    np.testing.assert_allclose(
        weights_of(
            ConcatScore(6), query, key, [np.concatenate([of_query, of_key]), v]
        ),
        weights_of(AdditiveScore(6), query, key, [of_query, of_key, v]),
        rtol=1e-4,
    )


@pytest.mark.parametrize("score", [DotScore, ScaledDotScore, CosineScore])
def test_dot_products_of_unequal_width_are_refused_with_what_would_do(score):
    attention = keras_attn.Attention(score())
    with pytest.raises(
        ValueError,
        match=rf"{score.__name__} takes the dot product.*"
        r"query_shape=\(1, 2, 4\), key_shape=\(1, 3, 6\).*"
        r"use `GeneralScore\(\)` or `AdditiveScore\(units\)`",
    ):
        attention(np.ones((1, 2, 4)), np.ones((1, 3, 6)))


@pytest.mark.parametrize("score", [AdditiveScore, ConcatScore])
@pytest.mark.parametrize("units", [0, -1, 2.5, "8", None, True])
def test_units_must_be_a_positive_integer(score, units):
    with pytest.raises(
        ValueError, match=f"`units` must be a positive integer.*{units!r}"
    ):
        score(units)


@pytest.mark.parametrize("sharpness", [0, -1.0, math.inf, math.nan, "1", True])
def test_a_sharpness_must_be_a_positive_number(sharpness):
    with pytest.raises(
        ValueError,
        match="`initial_sharpness` must be a positive number. Received: "
        f"initial_sharpness={sharpness!r}. Pass for example "
        "`initial_sharpness=1.0`.",
    ):
        CosineScore(sharpness)


def test_scaled_dot_products_do_not_overflow_in_float16():
    # 256 products of 20 x 20 make 102,400, beyond float16; scaled, 6,400.
    attention = keras_attn.ScaledDotAttention(dtype="float16")
    alike = np.full((1, 2, 256), 20, "float16")
    _, weights = attention(alike, alike, return_attention_scores=True)
    np.testing.assert_array_equal(values(weights), np.full((1, 2, 2), 0.5))


@pytest.mark.parametrize(
    "make", [GeneralScore, lambda **k: AdditiveScore(3, **k)]
)
def test_a_score_takes_its_initializer_and_keeps_it_in_its_config(make):
    score = make(kernel_initializer=keras.initializers.Constant(0.25))
    twin = type(score).from_config(score.get_config())
    twin.build((None, None, 4), (None, None, 4))
    for weight in twin.get_weights():
        np.testing.assert_array_equal(weight, np.full(weight.shape, 0.25))


def test_weights_of_equal_shape_do_not_start_equal():
    # An initializer draws the same numbers whenever it is called.
    for initializer in ("glorot_uniform", keras.initializers.RandomNormal()):
        score = AdditiveScore(4, kernel_initializer=initializer)
        score.build((None, None, 4), (None, None, 4))
        query_kernel, key_kernel, _ = score.get_weights()
        assert not np.allclose(query_kernel, key_kernel)
