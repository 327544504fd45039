"""Monotonic attention against the expectation of the walk."""

import itertools

import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from keras import ops
from support.differences import compiled_with_gradient
from support.differences import gradient

from keras_attn import Attention
from keras_attn import DotScore
from keras_attn import MonotonicAlignment
from keras_attn.layers.attention import History

SOFT = ["recursive", "parallel"]
each_soft = pytest.mark.parametrize("mode", SOFT)
BIG = 40.0  # a score whose sigmoid is almost 0 or 1


def monotonic(mode, initial_bias=0.0, **kwargs):
    align = MonotonicAlignment(mode, initial_bias=initial_bias, **kwargs)
    align.build((None, None, None), (None, None, 1))
    return align


def in_turn(align, scores, allowed=None, previous=None, **kwargs):
    """Weights of one target position after another."""
    scores = ops.convert_to_tensor(scores)
    target = scores.shape[1]
    steps = ops.zeros((scores.shape[0], 1), "int32")
    history = History(ops.zeros_like(scores[:, :1]), (), steps)
    if previous is not None:
        history = History(ops.convert_to_tensor(previous), (), steps + 1)
    weights = []
    for t in range(target):
        mask = None if allowed is None else allowed[:, t : t + 1]
        new = align(
            scores[:, t : t + 1], allowed=mask, history=history, **kwargs
        )
        history = History(new, (), history.step + 1)
        weights.append(new)
    return ops.concatenate(weights, axis=1)


def values(tensor):
    return ops.convert_to_numpy(tensor)


def logit(p):
    p = np.asarray(p, "float32")
    return np.log(p) - np.log1p(-p)


def expectation(stop, allowed):
    """Returns the expected weights by enumerating all ways of the walk.

    A way is a stop for each query, where `source` means the end. The weights
    `(target, source)` are the sums of the probabilities of the ways.
    """
    target, source = stop.shape
    expected = np.zeros((target, source))
    begin = int(np.argmax(allowed[0])) if allowed[0].any() else source
    for way in itertools.product(range(source + 1), repeat=target):
        probability, at = 1.0, begin
        for p, may, stops_at in zip(stop, allowed, way, strict=True):
            if stops_at < at:
                probability = 0.0  # it never goes back
                break
            p = np.where(may, p, 0.0)
            probability *= np.prod(1 - p[at:stops_at])
            if stops_at < source:
                probability *= p[stops_at]
            at = stops_at
        for t, stops_at in enumerate(way):
            if stops_at < source:
                expected[t, stops_at] += probability
    return expected


@pytest.mark.full
@each_soft
@given(data=st.data())
def test_the_weights_are_the_expectation_over_all_walks(mode, data):
    source = data.draw(st.integers(1, 4))
    shape = (data.draw(st.integers(1, 3)), source)
    probabilities = st.floats(1 / 16, 15 / 16, width=32)
    stop = data.draw(hnp.arrays("float32", shape, elements=probabilities))
    # A mask for all queries, of any form.
    allowed = data.draw(hnp.arrays("bool", (1, source)))
    allowed = np.broadcast_to(allowed, shape)
    weights = in_turn(monotonic(mode), logit(stop)[None], allowed[None])
    np.testing.assert_allclose(
        values(weights)[0], expectation(stop, allowed), atol=1e-5
    )


@each_soft
def test_the_weights_are_those_worked_out_by_hand(mode):
    # p = 1/2 everywhere. First query: 1/2, then 1/2 of what is left. Second:
    # q = 1/2, 1/4 + 1/4, 1/4 + 1/8.
    weights = in_turn(monotonic(mode), np.zeros((1, 2, 3), "float32"))
    np.testing.assert_allclose(
        values(weights),
        [[[1 / 2, 1 / 4, 1 / 8], [1 / 4, 1 / 4, 3 / 16]]],
        rtol=1e-6,
    )


@each_soft
def test_the_bias_is_learned_and_begins_as_told(mode):
    align = monotonic(mode, initial_bias=-1.0)
    weights = in_turn(align, np.full((1, 1, 2), 1.0, "float32"))
    np.testing.assert_allclose(values(weights), [[[1 / 2, 1 / 4]]], rtol=1e-5)
    assert [w.path.split("/")[-1] for w in align.trainable_weights] == ["bias"]
    begins = MonotonicAlignment()
    begins.build((None, None, None), (None, None, 1))
    assert begins.get_weights() == [-1.0]


@pytest.mark.parametrize("mode", [*SOFT, "hard"])
def test_a_walk_that_is_sure_stops_where_it_should(mode):
    rows = ["-+--+", "-+--+", "+---+", "----+", "----+"]
    scores = np.array([[[BIG if c == "+" else -BIG for c in r] for r in rows]])
    weights = in_turn(monotonic(mode), scores.astype("float32"))
    # It stays at 1, skips the 0 behind it, and goes on to 4.
    expected = np.eye(5)[[1, 1, 4, 4, 4]]
    np.testing.assert_allclose(values(weights), [expected], atol=1e-6)


@pytest.mark.parametrize("mode", [*SOFT, "hard"])
def test_a_walk_off_the_end_gives_zeros_for_ever(mode):
    scores = np.array([[[-BIG, BIG], [-BIG, -BIG], [BIG, BIG]]], "float32")
    weights = in_turn(monotonic(mode), scores)
    np.testing.assert_allclose(
        values(weights), [[[0, 1], [0, 0], [0, 0]]], atol=1e-6
    )


@pytest.mark.parametrize("mode", [*SOFT, "hard"])
@pytest.mark.parametrize("real", ["0110", "1011", "0111", "0000"])
def test_the_walk_begins_after_padding_and_passes_it_by(mode, real):
    mask = np.array([c == "1" for c in real])
    random = np.random.default_rng(6)
    scores = random.normal(size=(1, 3, 4)).astype("float32")
    scores[:, :, ~mask] = 99.0
    allowed = np.broadcast_to(mask, (1, 3, 4))
    align = monotonic(mode)
    weights = values(in_turn(align, scores, allowed))
    assert not weights[:, :, ~mask].any()
    if mask.any():
        alone = values(in_turn(align, scores[:, :, mask]))
        np.testing.assert_allclose(weights[:, :, mask], alone, atol=1e-6)


def test_hard_takes_the_first_of_at_least_one_half_from_the_last_on():
    scores = np.array([[[-0.1, 0.0, 5.0], [9.0, -0.1, 0.1]]], "float32")
    weights = in_turn(monotonic("hard"), scores)
    np.testing.assert_array_equal(values(weights), [[[0, 1, 0], [0, 0, 1]]])


@each_soft
def test_long_sources_lose_no_attention(mode):
    # With p = 1/2 and the walk at position 200 of 400 the naive closed form
    # divides by 2⁻²⁰⁰ and so loses everything.
    previous = np.zeros((1, 1, 400), "float32")
    previous[0, 0, 200] = 1
    weights = values(
        in_turn(monotonic(mode), np.zeros((1, 1, 400)), previous=previous)
    )[0, 0]
    assert (weights[:200] < 1e-30).all()
    np.testing.assert_allclose(weights[200:220], 0.5 ** np.arange(1, 21), 1e-3)
    np.testing.assert_allclose(weights.sum(), 1, rtol=1e-4)


@pytest.mark.full
@pytest.mark.parametrize("scale", [1.0, 50.0])
def test_both_follow_the_recurrence_over_400_steps_of_400(scale):
    random = np.random.default_rng(8)
    scores = (scale * random.normal(size=(400, 400)) - 2).astype("float32")
    exact = np.zeros((400, 400))  # float64
    stop = 1 / (1 + np.exp(-scores.astype("float64")))
    previous = [1.0] + [0.0] * 399
    for t, p in enumerate(stop.tolist()):
        reached = 0.0
        for j in range(400):
            reached = (1 - p[j - 1]) * reached + previous[j]
            exact[t, j] = p[j] * reached
        previous = exact[t].tolist()
    for mode, digits in {"recursive": 1e-5, "parallel": 2e-3}.items():
        found = values(in_turn(monotonic(mode), scores[None]))
        np.testing.assert_allclose(found[0], exact, atol=digits)


@pytest.mark.full
@pytest.mark.sample_cases(1)
@given(
    scores=hnp.arrays(
        "float32",
        st.tuples(st.just(1), st.integers(1, 4), st.integers(1, 9)),
        elements=st.floats(-30, 30, width=16),
    )
)
@pytest.mark.parametrize("mode", [*SOFT, "hard"])
def test_weights_sum_to_at_most_one_and_only_move_on(mode, scores):
    weights = values(in_turn(monotonic(mode), scores))[0]
    assert (weights >= 0).all()
    # The weight at or after a position never falls, except for the weight
    # that walked off the end.
    passed = np.cumsum(weights, axis=-1)
    assert (passed[:, -1] <= 1 + 1e-5).all()
    assert (np.diff(passed, axis=0) <= 1e-5).all()


@each_soft
def test_gradients_are_finite_and_the_modes_agree_on_them(mode):
    random = np.random.default_rng(9)
    scores = random.normal(size=(2, 3, 6)).astype("float32")
    allowed = np.ones((2, 3, 6), bool)
    allowed[0, :, 4:] = False
    allowed[1] = False
    factors = np.sin(np.arange(6, dtype="float32"))

    def some_sum(mode):
        align = monotonic(mode)
        return lambda x: ops.sum(
            ops.multiply(in_turn(align, x, allowed), factors)
        )

    found = gradient(some_sum(mode), scores)
    assert np.isfinite(found).all() and found[0, :, :4].all()
    assert not found[0, :, 4:].any() and not found[1].any()
    other = gradient(some_sum("recursive"), scores)
    np.testing.assert_allclose(found, other, atol=1e-5)
    for index in [(0, 0, 0), (0, 1, 2), (0, 2, 3)]:
        moved = np.zeros_like(scores)
        moved[index] = 1e-2
        up, down = (values(some_sum(mode)(scores + s * moved)) for s in (1, -1))
        np.testing.assert_allclose(found[index], (up - down) / 2e-2, atol=1e-3)


@each_soft
@pytest.mark.parametrize("score", [-1e4, -100.0, 100.0, 1e4])
def test_scores_beyond_all_bounds_make_no_nan(mode, score):
    scores = np.full((1, 3, 5), score, "float32")
    align = monotonic(mode)
    weights = values(in_turn(align, scores))
    expected = np.eye(1, 5).repeat(3, axis=0) * (score > 0)
    np.testing.assert_allclose(weights[0], expected, atol=1e-6)
    found = gradient(lambda x: ops.sum(in_turn(align, x)), scores)
    assert np.isfinite(found).all()


@pytest.mark.full
@pytest.mark.parametrize("mode", [*SOFT, "hard"])
@pytest.mark.parametrize("source", [None, 7])
def test_xla_compiles_the_loop_over_time_and_its_gradient(mode, source):
    random = np.random.default_rng(10)
    query = random.normal(size=(2, 4, 3)).astype("float32")
    value = random.normal(size=(2, 7, 3)).astype("float32")
    mask = np.array([[True] * 7, [False] * 2 + [True] * 4 + [False]])
    attention = Attention(
        DotScore(), MonotonicAlignment(mode, initial_bias=0.0)
    )

    def weights_of(query, value, mask):
        return attention(
            query, value, value_mask=mask, return_attention_scores=True
        )[1]

    expected = weights_of(query, value, mask)
    run = compiled_with_gradient(
        lambda *inputs: weights_of(*inputs) + 0 * inputs[0][:, :, :1],
        ((None, None, 3), "float32"),
        ((None, source, 3), "float32"),
        ((None, source), "bool"),
    )
    weights, found = run(query, value, mask)
    np.testing.assert_allclose(weights, expected, atol=1e-5)
    factors = np.sin(np.arange(7, dtype="float32"))
    np.testing.assert_allclose(
        found,
        gradient(
            lambda x: ops.sum(
                ops.multiply(weights_of(x, value, mask), factors)
            ),
            query,
        ),
        atol=1e-4,
    )


def test_noise_is_drawn_in_training_alone():
    align = monotonic("recursive", noise=2.0, seed=1)
    (noise,) = align.draw((50, 20, 10))
    noise = values(noise)
    assert abs(noise.mean()) < 0.1 and abs(noise.std() - 2) < 0.1
    scores = np.zeros((1, 1, 3), "float32")
    calm = values(in_turn(align, scores))
    np.testing.assert_allclose(calm, [[[1 / 2, 1 / 4, 1 / 8]]], rtol=1e-5)
    draws = (logit([[[0.9, 0.9, 0.9]]]),)
    noisy = values(in_turn(align, scores, draws=draws, training=True))
    np.testing.assert_allclose(noisy, [[[0.9, 0.09, 0.009]]], rtol=1e-4)
    assert monotonic("recursive").draw((1, 2, 3)) == ()


def test_trained_soft_it_may_decode_hard():
    align = monotonic("recursive", hard_inference=True)
    scores = logit([[[0.4, 0.6, 0.9]]])
    soft = values(in_turn(align, scores, training=True))
    np.testing.assert_allclose(soft, [[[0.4, 0.36, 0.216]]], rtol=1e-4)
    np.testing.assert_array_equal(values(in_turn(align, scores)), [[[0, 1, 0]]])


@pytest.mark.parametrize("mode", [*SOFT, "hard"])
def test_scores_in_half_precision_make_weights_in_full(mode):
    scores = ops.cast(np.full((1, 2, 4), 0.25), "float16")
    weights = in_turn(monotonic(mode, dtype="mixed_float16"), scores)
    assert keras.backend.standardize_dtype(weights.dtype) == "float32"
    expected = in_turn(monotonic(mode), ops.cast(scores, "float32"))
    np.testing.assert_allclose(values(weights), values(expected), atol=1e-6)


def test_it_is_its_config():
    align = MonotonicAlignment("parallel", 0.5, -3.0, True, seed=7)
    config = keras.saving.serialize_keras_object(align)
    again = keras.saving.deserialize_keras_object(config)
    assert again.get_config() == align.get_config()
    assert (again.mode, again.noise, again.initial_bias) == (
        "parallel",
        0.5,
        -3.0,
    )
    assert again.hard_inference and again.seed == 7


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"mode": "soft"}, '"recursive", "parallel" or "hard"'),
        ({"noise": -1.0}, "at least 0"),
        ({"mode": "hard", "noise": 1.0}, "no gradient, so.*noise=1.0"),
        ({"mode": "hard", "hard_inference": True}, "hard_inference=True"),
        ({"seed": 1}, "`seed` seeds the noise, and there is none"),
    ],
)
def test_arguments_that_cannot_be_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        MonotonicAlignment(**arguments)
