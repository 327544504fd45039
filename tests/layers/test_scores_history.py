"""Scores that look at positions and past alignments: by hand, and in loops."""

import math

import keras
import numpy as np
import pytest
from keras import ops
from support.histories import LONGER
from support.histories import array
from support.histories import attention_and_inputs
from support.histories import each_score
from support.histories import history

import keras_attn
from keras_attn.layers.scores import AdditiveScore
from keras_attn.layers.scores import CoverageScore
from keras_attn.layers.scores import LocationScore
from keras_attn.layers.scores import LocationSensitiveScore

LN2 = math.log(2)
LN2_V = [[LN2 / math.tanh(1)]]  # makes ln 2 of tanh 1


def scores_of(score, key, weights, history, query=0.0):
    """The scores of one query of width one and keys of width one."""
    query, key = array([[[query]]]), array([[[x] for x in key]])
    score.build(query.shape, key.shape)
    score.set_weights([array(x) for x in weights])
    return score(query, score.project(key), history=history)[0, 0]


def test_location_scores_are_one_number_a_position_whatever_stands_there():
    score = LocationScore(3)
    attention = keras_attn.Attention(score)
    query = array([[[1], [0]]])
    attention.build(query.shape, (1, 2, 4))
    score.set_weights([array([[0, LN2, 9]])])
    for key in (np.zeros((1, 2, 4)), np.random.normal(size=(1, 2, 4))):
        _, weights = attention(query, key, return_attention_scores=True)
        np.testing.assert_allclose(
            weights, [[[1 / 3, 2 / 3], [1 / 2, 1 / 2]]], rtol=1e-6
        )


def test_a_source_longer_than_the_weights_is_refused():
    attention = keras_attn.Attention(LocationScore(3))
    query = np.ones((1, 2, 4), "float32")
    with pytest.raises(ValueError, match=LONGER.format(" of 4")):
        attention(query, np.ones((1, 4, 4)))
    attention(query, np.ones((1, 3, 4)))
    with pytest.raises(ValueError, match=LONGER.format(" of 5")):
        attention(query, np.ones((1, 5, 4)))


def test_a_source_is_refused_when_a_model_is_made_if_its_length_is_known():
    attention = keras_attn.Attention(LocationScore(3))
    with pytest.raises(ValueError, match=LONGER.format(" of 4")):
        attention(keras.Input((2, 4)), keras.Input((4, 4)))


def test_in_a_window_positions_keep_their_numbers():
    score = LocationScore(3)
    query, key = np.ones((1, 1, 1), "float32"), np.ones((1, 3, 1), "float32")
    score.build(query.shape, key.shape)
    score.set_weights([array([[1, 2, 3]])])
    window = score.project(key)[:, 1:]
    np.testing.assert_array_equal(score(query, window), [[[2, 3]]])


def test_filters_see_the_last_alignments_around_a_position():
    # The filter takes the previous position.
    score = LocationSensitiveScore(
        1, filters=1, kernel_size=3, cumulative=False
    )
    takes_before = [[[1]], [[0]], [[0]]]
    weights = [[[0]], [[0]], LN2_V, [0], takes_before, [[1]]]
    scores = scores_of(score, [5, 6, 7], weights, history([0, 1, 0]))
    np.testing.assert_allclose(scores, [0, 0, LN2], atol=1e-6)


def test_beyond_the_ends_of_the_source_filters_see_zeros():
    score = LocationSensitiveScore(
        1, filters=1, kernel_size=5, cumulative=False
    )
    weights = [[[0]], [[0]], LN2_V, [0], np.ones((5, 1, 1)), [[1]]]
    scores = scores_of(score, [0, 0, 0, 0], weights, history([0, 0, 0, 1]))
    np.testing.assert_allclose(scores, [0, LN2, LN2, LN2], atol=1e-6)


def test_cumulative_filters_see_the_sum_of_alignments_as_a_second_channel():
    # tanh(2 * previous - 1 * total + 1) = tanh [0, 0, 1]
    score = LocationSensitiveScore(1, filters=1, kernel_size=1)
    weights = [[[0]], [[0]], LN2_V, [1], [[[2], [-1]]], [[1]]]
    past = history([0, 1, 0], total=[1, 3, 0])
    scores = scores_of(score, [0, 0, 0], weights, past)
    np.testing.assert_allclose(scores, [0, 0, LN2], atol=1e-6)


def test_query_key_location_and_bias_are_added_under_the_tanh():
    # tanh(2 * 3 - 5 + [0, 1] + 4 * [0, 0.25] - 1) = [0, tanh 2]
    score = LocationSensitiveScore(
        1, filters=1, kernel_size=1, cumulative=False
    )
    weights = [[[2]], [[1]], [[1]], [-1], [[[4]]], [[1]]]
    past = history([0, 0.25])
    scores = scores_of(score, [-5, -4], weights, past, query=3)
    np.testing.assert_allclose(scores, [0, math.tanh(2)], atol=1e-6)


def test_every_filter_reaches_every_unit():
    score = LocationSensitiveScore(2, filters=3, kernel_size=3)
    random = np.random.default_rng(0)
    query, key = random.normal(size=(2, 2, 4)), random.normal(size=(2, 5, 6))
    previous, total = random.uniform(size=(2, 2, 2, 5))
    score.build(query.shape, key.shape)
    weights = [random.normal(size=w.shape) for w in score.get_weights()]
    score.set_weights(weights)
    of_query, of_key, v, bias, filters, of_location = weights
    past = keras_attn.layers.attention.History(
        previous, total, np.ones((2, 2), "int32")
    )
    scores = score(array(query), score.project(array(key)), history=past)
    channels = np.pad(
        np.stack([previous, total], -1), [(0, 0), (0, 0), (1, 1), (0, 0)]
    )
    for b, k, s in np.ndindex(2, 2, 5):
        seen = channels[b, k, s : s + 3]  # positions s - 1 to s + 1
        features = np.einsum("pc,pcf->f", seen, filters)
        hidden = query[b, k] @ of_query + key[b, s] @ of_key
        hidden = np.tanh(hidden + features @ of_location + bias)
        np.testing.assert_allclose(scores[b, k, s], hidden @ v[:, 0], 1e-4)


@pytest.mark.parametrize("size", [2, 30])
def test_a_filter_must_see_as_many_positions_before_as_behind(size):
    with pytest.raises(
        ValueError,
        match=f"`kernel_size` must be odd.*kernel_size={size}. Pass for "
        f"example `kernel_size={size + 1}`",
    ):
        LocationSensitiveScore(4, kernel_size=size)


def test_filters_and_their_size_must_be_positive_integers():
    with pytest.raises(ValueError, match="`filters` must be a positive int"):
        LocationSensitiveScore(4, filters=0)
    with pytest.raises(ValueError, match="`kernel_size` must be a positive"):
        LocationSensitiveScore(4, kernel_size=3.0)


def test_a_count_is_the_sum_of_the_alignments_so_far():
    # tanh(2 * [0, 0.5, 0]) = [0, tanh 1, 0]
    score = CoverageScore(1)
    weights = [[[0]], [[0]], LN2_V, [[2]]]
    past = history([0, 0, 1], total=[0, 0.5, 0])
    scores = scores_of(score, [5, 6, 7], weights, past)
    np.testing.assert_allclose(scores, [0, LN2, 0], atol=1e-6)


def test_a_fertility_divides_the_count():
    # sigmoid(0) = 1 / 2 and sigmoid(ln 3) = 3 / 4 of at most 4 tokens are
    # 2 and 3, so that sums of 2 and 3 both make a coverage of one.
    score = CoverageScore(1, "fertility", max_fertility=4)
    weights = [[[0]], [[0]], LN2_V, [[1]], [[1]]]
    past = history([0, 0, 0], total=[0, 2, 3])
    scores = scores_of(score, [0, 0, math.log(3)], weights, past)
    np.testing.assert_allclose(scores, [0, LN2, LN2], rtol=1e-5)


def test_a_position_makes_two_tokens_at_most_unless_told_otherwise():
    assert CoverageScore(1, "fertility").max_fertility == 2


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_learned_coverage_is_the_state_of_a_gru(dtype):
    random = np.random.default_rng(0)
    score = CoverageScore(2, "learned", coverage_dim=3, dtype=dtype)
    batch, beams, source, query_dim, key_dim = 2, 2, 4, 5, 6
    query = array(random.normal(size=(batch, beams, query_dim)))
    key = array(random.normal(size=(batch, source, key_dim)))
    alignments = array(random.uniform(size=(batch, beams, source)))
    score.build(query.shape, key.shape)
    score.set_weights([random.normal(size=w.shape) for w in score.weights])
    keys = score.project(ops.cast(key, dtype))
    carried = score.initial_carry(keys, beams)
    assert carried.shape == (batch, beams, source, 3)
    assert not np.asarray(carried).any()

    cell = keras.layers.GRUCell(3, reset_after=False)
    cell.build((None, 1 + key_dim + query_dim))
    kernels = (
        score.gru_weight_kernel,
        score.gru_key_kernel,
        score.gru_query_kernel,
    )
    cell.set_weights(
        [
            np.concatenate([keras.ops.convert_to_numpy(k) for k in kernels]),
            score.gru_recurrent_kernel,
            score.gru_bias,
        ]
    )
    expected = np.zeros((batch, beams, source, 3), "float32")
    for _ in range(2):
        carried = score.carry(carried, query, keys, alignments)
        assert carried.dtype == dtype
        for b, k, s in np.ndindex(batch, beams, source):
            inputs = [[alignments[b, k, s]], key[b, s], query[b, k]]
            expected[b, k, s] = cell(
                np.concatenate(inputs)[None], expected[b, k, s][None]
            )[0][0]
    np.testing.assert_allclose(
        ops.convert_to_numpy(ops.cast(carried, "float32")),
        expected,
        atol=1e-5 if dtype == "float32" else 0.1,
    )


def test_learned_coverage_enters_the_score_as_a_vector():
    # tanh([0, 1] + 2 * [0, -0.5]) = tanh [0, 0], and tanh 1 for the third.
    score = CoverageScore(1, "learned", coverage_dim=2)
    gru = [np.zeros(x) for x in [(1, 6), (1, 6), (1, 6), (2, 6), (6,)]]
    weights = [[[0]], [[0]], LN2_V, [[1], [2]], *gru]
    carried = array([[[[0, 0], [1, -0.5], [1, 0]]]])
    past = history([0, 0, 1], carried=carried)
    scores = scores_of(score, [5, 6, 7], weights, past)
    np.testing.assert_allclose(scores, [0, 0, LN2], atol=1e-6)


@pytest.mark.parametrize("kind", ["count", "fertility", "learned"])
def test_before_the_first_step_coverage_scores_are_additive_scores(kind):
    query, key = np.ones((1, 1, 4), "float32"), np.ones((1, 3, 6), "float32")
    covered, plain = CoverageScore(8, kind), AdditiveScore(8)
    covered.build(query.shape, key.shape)
    plain.build(query.shape, key.shape)
    plain.set_weights(covered.get_weights()[:3])
    keys = covered.project(key)
    past = history([0, 0, 0], carried=covered.initial_carry(keys, 1))
    np.testing.assert_allclose(
        covered(query, keys, history=past),
        plain(query, plain.project(key)),
        rtol=1e-6,
    )


def test_coverage_is_of_three_kinds():
    with pytest.raises(
        ValueError,
        match='must be "count", "fertility" or "learned".*kind=\'gru\'',
    ):
        CoverageScore(4, "gru")


@pytest.mark.parametrize(
    "options, owner",
    [
        ({"kind": "count", "max_fertility": 2.0}, "fertility"),
        ({"kind": "learned", "max_fertility": 2.0}, "fertility"),
        ({"kind": "count", "coverage_dim": 10}, "learned"),
        ({"kind": "fertility", "coverage_dim": 10}, "learned"),
    ],
)
def test_what_another_kind_of_coverage_has_is_refused(options, owner):
    with pytest.raises(
        ValueError,
        match=f"Only coverage of the kind '{owner}' has a .*Leave it out, or "
        f"pass `kind='{owner}'`",
    ):
        CoverageScore(4, **options)


def test_fertility_and_width_of_the_coverage_must_be_positive():
    with pytest.raises(ValueError, match="`max_fertility` must be a positive"):
        CoverageScore(4, "fertility", max_fertility=0)
    with pytest.raises(ValueError, match="`coverage_dim` must be a positive"):
        CoverageScore(4, "learned", coverage_dim=0)


@each_score
def test_a_score_is_made_again_from_its_config(name):
    attention, query, value, mask = attention_and_inputs(name)
    twin = keras_attn.Attention.from_config(attention.get_config())
    assert twin.score.get_config() == attention.score.get_config()
    twin.build(query.shape, value.shape)
    twin.set_weights(attention.get_weights())
    np.testing.assert_array_equal(
        twin(query, value, value_mask=mask),
        attention(query, value, value_mask=mask),
    )


@each_score
def test_a_saved_score_answers_as_before(name, tmp_path):
    attention, query, value, _ = attention_and_inputs(name)
    inputs = keras.Input((None, 4)), keras.Input((None, 4))
    model = keras.Model(inputs, attention(*inputs))
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded([query, value]), model([query, value]))


@pytest.mark.sample_cases(6)
@each_score
@pytest.mark.parametrize("dtype", ["mixed_float16", "mixed_bfloat16"])
def test_half_precision_attends_nearly_as_float32(name, dtype):
    attention, query, value, mask = attention_and_inputs(name)
    half, *_ = attention_and_inputs(name, dtype)
    expected = attention(query, value, value_mask=mask)
    context = half(query, value, value_mask=mask)
    assert context.dtype == half.compute_dtype
    np.testing.assert_allclose(
        ops.convert_to_numpy(ops.cast(context, "float32")), expected, atol=0.1
    )


@each_score
def test_step_by_step_beams_attend_as_queries_of_their_own(name):
    attention, query, value, mask = attention_and_inputs(name)
    _, expected = attention(
        query, value, value_mask=mask, return_attention_scores=True
    )
    memory = attention.prepare(value, value_mask=mask)
    past = attention.initial_history(memory, beams=2)
    for t in range(3):
        # The second beam attends in the reverse order.
        beams = np.stack([query[:, t], query[:, 2 - t]], axis=1)
        _, weights, past = attention.step(beams, memory, past)
        np.testing.assert_allclose(weights[:, 0], expected[:, t], atol=1e-6)
