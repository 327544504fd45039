"""Hard attention: draws in training, the best position otherwise."""

import keras
import numpy as np
import pytest
from keras import ops
from support.differences import compiled_with_gradient
from support.differences import gradient

from keras_attn.layers.alignments import Alignment
from keras_attn.layers.alignments import HardAlignment
from keras_attn.layers.alignments import ReinforceAlignment
from keras_attn.layers.alignments import SoftmaxAlignment

# Probabilities 1/8, 2/8 and 5/8.
SCORES = np.log(np.array([[[1.0, 2.0, 5.0]]], "float32"))


def values(structure):
    return keras.tree.map_structure(ops.convert_to_numpy, structure)


def test_the_best_position_is_taken_the_first_of_equal_ones():
    scores = np.array([[[1.0, 3.0, 2.0], [7.0, 7.0, 0.0]]])
    expected = [[[0, 1, 0], [1, 0, 0]]]
    np.testing.assert_array_equal(HardAlignment()(scores), expected)
    sample = ReinforceAlignment()(scores)
    np.testing.assert_array_equal(sample.weights, expected)


@pytest.mark.parametrize("kind", [HardAlignment, ReinforceAlignment])
def test_draws_have_the_softmax_s_probabilities(kind):
    align = kind(seed=3, **{"soft_share": 0.0} if kind.samples else {})
    draws = align.draw((4, 5000, 3))
    drawn = align(np.tile(SCORES, (4, 5000, 1)), draws=draws)
    weights = values(drawn.weights if kind.samples else drawn)
    assert set(np.unique(weights)) == {0, 1}
    np.testing.assert_array_equal(weights.sum(-1), 1)
    # Of 20000 draws a share of 1/2 has a standard deviation of 0.0035.
    shares = weights.mean((0, 1))
    np.testing.assert_allclose(shares, [1 / 8, 2 / 8, 5 / 8], atol=0.014)
    again = kind(seed=3)
    np.testing.assert_array_equal(again.draw((4, 5000, 3))[0], draws[0])
    assert not np.array_equal(align.draw((4, 5000, 3))[0], draws[0])


@pytest.mark.parametrize("kind", [HardAlignment, ReinforceAlignment])
def test_draws_keep_to_what_is_allowed(kind):
    align = kind()
    scores = np.array([[[50.0, 0, 0, 50.0], [1, 2, 3, 4]]], "float32")
    allowed = np.array([[[0, 1, 1, 0], [0, 0, 0, 0]]], bool)
    for _ in range(20):
        drawn = align(scores, allowed=allowed, draws=align.draw((1, 2, 4)))
        weights = values(drawn.weights if kind.samples else drawn)
        assert not weights[~allowed].any()
        np.testing.assert_allclose(weights.sum(-1), [[1, 0]], rtol=1e-6)


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_the_gradient_of_a_straight_draw_is_that_of_the_noisy_softmax(
    temperature,
):
    align = HardAlignment(temperature)
    noise = np.array([[[3.0, 0.5, 0.0]]], "float32")
    factors = np.array([5.0, 7.0, 11.0], "float32")
    np.testing.assert_array_equal(align(SCORES, draws=(noise,)), [[[1, 0, 0]]])
    found = gradient(
        lambda x: ops.sum(ops.multiply(align(x, draws=(noise,)), factors)),
        SCORES,
    )
    softmax = SoftmaxAlignment(temperature)
    expected = gradient(
        lambda x: ops.sum(ops.multiply(softmax(ops.add(x, noise)), factors)),
        SCORES,
    )
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert not gradient(
        lambda x: ops.sum(ops.multiply(align(x), factors)), SCORES
    ).any()


def test_a_sample_tells_how_likely_it_was_and_what_it_was_drawn_from():
    align = ReinforceAlignment()
    noise = np.array([[[9.0, 0.0, 0.0]]], "float32")
    sample = align(SCORES, draws=(noise, np.array([[[False]]])))
    np.testing.assert_array_equal(sample.weights, [[[1, 0, 0]]])
    np.testing.assert_allclose(sample.log_probability, [[np.log(1 / 8)]], 1e-5)
    p = np.array([1, 2, 5]) / 8
    np.testing.assert_allclose(sample.entropy, [[-(p * np.log(p)).sum()]], 1e-5)


def test_a_sample_s_weights_have_no_gradient_but_its_probability_has():
    align = ReinforceAlignment()
    draws = np.array([[[9.0, 0.0, 0.0]]], "float32"), np.array([[[False]]])
    p = np.array([1, 2, 5]) / 8

    def of(part, factors=1.0):
        return gradient(
            lambda x: ops.sum(
                ops.multiply(getattr(align(x, draws=draws), part), factors)
            ),
            SCORES,
        )[0, 0]

    assert not of("weights", np.array([5.0, 7.0, 11.0], "float32")).any()
    # d log p_0 = one-hot - p, and dH = -p (log p + H).
    np.testing.assert_allclose(of("log_probability"), [1, 0, 0] - p, atol=1e-6)
    entropy = -(p * np.log(p)).sum()
    np.testing.assert_allclose(
        of("entropy"), -p * (np.log(p) + entropy), atol=1e-6
    )


def test_a_sentence_in_the_soft_share_gets_its_expectation():
    align = ReinforceAlignment()
    noise = np.zeros((2, 1, 3), "float32")
    is_soft = np.array([[[True]], [[False]]])
    scores = np.repeat(SCORES, 2, axis=0)
    sample = align(scores, draws=(noise, is_soft))
    np.testing.assert_allclose(
        sample.weights, [[[1 / 8, 2 / 8, 5 / 8]], [[0, 0, 1]]], rtol=1e-6
    )
    np.testing.assert_allclose(
        sample.log_probability, [[0], [np.log(5 / 8)]], rtol=1e-5
    )
    assert (values(sample.entropy) > 0).all()
    factors = np.array([5.0, 7.0, 11.0], "float32")
    found = gradient(
        lambda x: ops.sum(
            ops.multiply(align(x, draws=(noise, is_soft)).weights, factors)
        ),
        scores,
    )
    assert found[0].all() and not found[1].any()


@pytest.mark.parametrize("shape", [(4000, 3, 5), (4000, 3, 2, 5)])
def test_sentences_not_queries_or_heads_are_soft_or_hard(shape):
    align = ReinforceAlignment(soft_share=0.3, seed=1)
    noise, is_soft = values(align.draw(shape))
    assert noise.shape == shape and is_soft.shape == (*shape[:-1], 1)
    by_sentence = is_soft.reshape((shape[0], -1))
    assert (by_sentence == by_sentence[:, :1]).all()
    # The standard deviation of the share is 0.0072.
    assert abs(is_soft.mean() - 0.3) < 0.03
    for share, always in [(0.0, False), (1.0, True)]:
        _, is_soft = ReinforceAlignment(soft_share=share).draw(shape)
        assert (values(is_soft) == always).all()


def test_a_query_that_may_look_nowhere_is_zero_in_all():
    align = ReinforceAlignment()
    scores = np.array([[[1.0, 2.0], [1.0, 2.0]]], "float32")
    allowed = np.array([[[False, False], [True, True]]])
    for draws in ((), align.draw((1, 2, 2))):
        sample = align(scores, allowed=allowed, draws=draws)
        assert not any(values(x)[0, 0].any() for x in sample)

        def all_of_it(scores, draws=draws):
            sample = align(scores, allowed=allowed, draws=draws)
            return sum(ops.sum(x) for x in sample)

        found = gradient(all_of_it, scores)
        assert np.isfinite(found).all() and not found[0, 0].any()


@pytest.mark.sample_cases(2)
@pytest.mark.parametrize("source", [None, 6])
@pytest.mark.parametrize("kind", [HardAlignment, ReinforceAlignment])
def test_xla_compiles_draws_and_gradients(kind, source):
    align = kind()

    def evidence(scores, allowed):
        shape = ops.shape(scores)
        drawn = align(scores, allowed=allowed, draws=align.draw(shape))
        if not kind.samples:
            return drawn
        sum_of_both = drawn.log_probability + drawn.entropy
        return drawn.weights + ops.expand_dims(sum_of_both, -1)

    run = compiled_with_gradient(
        evidence,
        ((None, None, source), "float32"),
        ((None, None, source), "bool"),
    )
    scores = np.random.default_rng(5).normal(size=(2, 3, 6))
    allowed = np.ones((2, 3, 6), bool)
    allowed[0, 1] = False
    first, found = run(scores.astype("float32"), allowed)
    assert np.isfinite(values(first)).all()
    assert np.isfinite(values(found)).all()
    assert not values(found)[0, 1].any() and values(found)[0, 0].any()
    second, _ = run(scores.astype("float32"), allowed)
    assert not np.array_equal(values(first), values(second))


def test_scores_in_half_precision_make_a_sample_in_full():
    align = ReinforceAlignment(dtype="mixed_float16")
    scores = ops.cast(SCORES, "float16")
    for draws in ((), align.draw((1, 1, 3))):
        for part in align(scores, draws=draws):
            assert keras.backend.standardize_dtype(part.dtype) == "float32"


def test_they_are_their_configs():
    for align in (
        HardAlignment(0.5, seed=2),
        ReinforceAlignment(0.25, seed=2),
    ):
        config = keras.saving.serialize_keras_object(align)
        again = keras.saving.deserialize_keras_object(config)
        assert again.get_config() == align.get_config()
        assert again.seed == 2
    assert ReinforceAlignment.samples and not Alignment.samples


@pytest.mark.parametrize("share", [-0.1, 1.1])
def test_a_share_is_a_probability(share):
    with pytest.raises(ValueError, match="`soft_share` is a probability"):
        ReinforceAlignment(soft_share=share)
