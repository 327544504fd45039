"""`Attention` as a layer: its arguments, its masks, and the presets."""

import json
import math

import keras
import numpy as np
import pytest
from keras import layers
from support import mechanisms

import keras_attn
from keras_attn import Attention
from keras_attn import BahdanauAttention
from keras_attn import DotScore
from keras_attn import LuongAttention
from keras_attn import ScaledDotAttention

LN2 = math.log(2)
# Against a query of ln 2 the scores of 0 and 1 are 0 and ln 2.
QUERY = np.array([[[LN2]]], "float32")
KEY = np.array([[[0.0], [1.0]]], "float32")


def test_the_context_is_the_sum_of_values_by_the_weights():
    context, weights = Attention(DotScore())(
        QUERY, KEY, return_attention_scores=True
    )
    np.testing.assert_allclose(weights, [[[1 / 3, 2 / 3]]], rtol=1e-6)
    np.testing.assert_allclose(context, [[[2 / 3]]], rtol=1e-6)


def test_keys_are_compared_and_values_summed():
    value = np.array([[[3.0, 30.0], [6.0, 60.0]]])
    context, weights = Attention(DotScore())(
        QUERY, value, KEY, return_attention_scores=True
    )
    np.testing.assert_allclose(weights, [[[1 / 3, 2 / 3]]], rtol=1e-6)
    np.testing.assert_allclose(context, [[[5.0, 50.0]]], rtol=1e-6)


def test_without_the_flag_the_context_comes_alone():
    context = Attention(DotScore())(QUERY, KEY)
    np.testing.assert_allclose(context, [[[2 / 3]]], rtol=1e-6)


def test_value_mask_and_key_mask_both_take_away():
    value = np.array([[[3.0], [0.0], [100.0], [1000.0]]])
    _, weights = Attention(DotScore())(
        QUERY,
        value,
        np.array([[[0.0], [1.0], [5.0], [9.0]]]),
        value_mask=np.array([[True, True, True, False]]),
        key_mask=np.array([[True, True, False, True]]),
        return_attention_scores=True,
    )
    np.testing.assert_allclose(weights, [[[1 / 3, 2 / 3, 0, 0]]], rtol=1e-6)


@pytest.mark.parametrize("name", ["value_mask", "key_mask"])
def test_either_mask_alone_takes_away(name):
    context = Attention(DotScore())(
        QUERY, KEY, **{name: np.array([[True, False]])}
    )
    np.testing.assert_array_equal(context, [[[0]]])


@pytest.mark.sample_cases(10)
@mechanisms.each_mechanism
def test_contexts_of_masked_queries_are_zero(mechanism):
    query = mechanisms.draw(1, 3, mechanisms.QUERY_DIM)
    value = mechanisms.draw(1, 2, mechanism.value_dim)
    context = mechanisms.values(
        mechanism.make()(
            query, value, query_mask=np.array([[True, False, True]])
        )
    )
    assert context[0, 0].any() and context[0, 2].any()
    assert not context[0, 1].any()


@pytest.mark.sample_cases(32)
@mechanisms.each_mechanism
@pytest.mark.parametrize("source", [2, 3, 5])
def test_a_causal_mask_hides_what_comes_after_the_query(mechanism, source):
    query = mechanisms.draw(1, 3, mechanisms.QUERY_DIM)
    value = mechanisms.draw(1, source, mechanism.value_dim)
    _, weights = mechanism.make()(
        query, value, use_causal_mask=True, return_attention_scores=True
    )
    allowed = np.tri(3, source, dtype=bool)  # column <= row
    weights = mechanisms.values(weights)[0]
    assert not weights[~allowed].any()
    if mechanism.sums_to_one:
        np.testing.assert_allclose(weights.sum(-1), [1, 1, 1], rtol=1e-5)


def test_a_causal_mask_and_padding_take_away_together():
    _, weights = Attention(DotScore())(
        np.zeros((1, 3, 1)),
        np.zeros((1, 3, 1)),
        value_mask=np.array([[False, True, True]]),
        use_causal_mask=True,
        return_attention_scores=True,
    )
    np.testing.assert_array_equal(
        weights, [[[0, 0, 0], [0, 1, 0], [0, 0.5, 0.5]]]
    )


class Subclassed(keras.Model):
    """Embeddings and an attention, written as a subclass."""

    def __init__(self, attention):
        super().__init__()
        self.embedding = layers.Embedding(5, 4, mask_zero=True)
        self.attention = attention

    def call(self, inputs):
        target, source = inputs
        return self.attention(
            self.embedding(target),
            self.embedding(source),
            return_attention_scores=True,
        )


def functional(attention):
    target, source = keras.Input((None,)), keras.Input((None,))
    embedding = layers.Embedding(5, 4, mask_zero=True)
    return keras.Model(
        [target, source],
        attention(
            embedding(target), embedding(source), return_attention_scores=True
        ),
    )


@pytest.mark.sample_cases(3)
@mechanisms.in_turn(
    every=3,
    mechanism=mechanisms.MECHANISMS,
    way=["functional", "functional, graph", "subclassed", "subclassed, graph"],
)
def test_masks_flow_by_themselves_from_the_embedding(mechanism, way):
    attention, graph = mechanism.make(), "graph" in way
    model = (Subclassed if "subclassed" in way else functional)(attention)
    target, source = np.array([[1, 2, 0]]), np.array([[3, 4, 3, 0, 0]])
    call = (lambda x: model.predict(x, verbose=0)) if graph else model
    context, weights = mechanisms.values(call([target, source]))
    embed = next(x for x in model.layers if isinstance(x, layers.Embedding))
    expected, expected_weights = attention(
        mechanisms.values(embed(target)),
        mechanisms.values(embed(source)),
        query_mask=target != 0,
        value_mask=source != 0,
        return_attention_scores=True,
    )
    assert not weights[0, :, 3:].any() and not context[0, 2].any()
    np.testing.assert_allclose(context, mechanisms.values(expected), atol=1e-6)
    np.testing.assert_allclose(
        weights[:, :2],
        mechanisms.values(expected_weights)[:, :2],
        atol=1e-6,
    )


def test_the_output_carries_the_mask_of_the_query():
    embedding = layers.Embedding(5, 4, mask_zero=True)
    context, weights = ScaledDotAttention()(
        embedding(np.array([[1, 0]])),
        embedding(np.array([[1, 2, 0]])),
        return_attention_scores=True,
    )
    np.testing.assert_array_equal(
        mechanisms.values(context._keras_mask), [[True, False]]
    )
    assert getattr(weights, "_keras_mask", None) is None


def test_a_mask_given_goes_before_that_of_the_embedding():
    embedding = layers.Embedding(5, 4, mask_zero=True)
    _, weights = ScaledDotAttention()(
        np.zeros((1, 1, 4), "float32"),
        embedding(np.array([[1, 2, 0]])),
        value_mask=np.array([[False, True, True]]),
        return_attention_scores=True,
    )
    np.testing.assert_array_equal(mechanisms.values(weights), [[[0, 0.5, 0.5]]])


@pytest.mark.sample_cases(10)
@mechanisms.each_mechanism
def test_symbolic_shapes_tell_target_from_source(mechanism):
    for target, source in ((3, 5), (None, 5), (3, None), (None, None)):
        context, weights = mechanism.make()(
            keras.Input((target, mechanisms.QUERY_DIM)),
            keras.Input((source, mechanism.value_dim)),
            keras.Input((source, mechanism.value_dim)),
            return_attention_scores=True,
        )
        assert context.shape == (None, target, mechanism.value_dim)
        assert weights.shape == (None, target, source)


def test_a_symbolic_call_has_the_dtype_of_the_policy():
    context, weights = ScaledDotAttention(dtype="mixed_float16")(
        keras.Input((3, 4)), keras.Input((5, 4)), return_attention_scores=True
    )
    assert context.dtype == weights.dtype == "float16"


PRESETS = [
    (BahdanauAttention, {"units": 8}),
    (LuongAttention, {"score": "dot", "units": None}),
    (LuongAttention, {"score": "general", "units": None}),
    (LuongAttention, {"score": "concat", "units": 8}),
    (LuongAttention, {"score": "location", "max_source": 9}),
    (LuongAttention, {"score": "dot", "alignment": "local-p", "window": 3}),
    (ScaledDotAttention, {}),
]


@pytest.mark.parametrize("preset, arguments", PRESETS)
def test_a_presets_config_holds_its_own_arguments(preset, arguments):
    attention = preset(**arguments, dropout=0.25, seed=3, name="mine")
    config = json.loads(json.dumps(attention.get_config()))
    given = {**arguments, "dropout": 0.25, "seed": 3}
    assert config.items() >= given.items()
    for part in ("score", "alignment"):  # by name, if at all
        assert not isinstance(config.get(part), dict)
    twin = preset.from_config(config)
    assert type(twin.score) is type(attention.score)
    assert twin.get_config() == attention.get_config()


@pytest.mark.parametrize("preset, arguments", PRESETS)
def test_a_presets_dtype_is_that_of_its_parts(preset, arguments):
    attention = preset(**arguments, dtype="mixed_bfloat16")
    attention.build((None, None, 8), (None, None, 8))
    assert attention.score.compute_dtype == "bfloat16"
    assert all(x.dtype == "float32" for x in attention.weights)


@pytest.mark.parametrize(
    "make, message",
    [
        (
            lambda: LuongAttention("cosine"),
            r"'general'.*score='cosine'.*`Attention\(score, alignment\)`",
        ),
        (
            lambda: LuongAttention(DotScore()),
            r"'general'.*<DotScore.*`Attention\(score, alignment\)`",
        ),
        (
            lambda: LuongAttention("concat"),
            r'needs `units`.*example `LuongAttention\("concat", units=128\)`',
        ),
        (
            lambda: LuongAttention("dot", units=8),
            r"Only the score \"concat\" takes.*no effect.*units=8.*'dot'",
        ),
        (
            lambda: LuongAttention("location"),
            "needs `max_source`",
        ),
        (
            lambda: LuongAttention("dot", alignment="local"),
            "`alignment` .* must be one of 'global', 'local-m', 'local-p'.*"
            "'local'",
        ),
        (
            lambda: LuongAttention("dot", window=3),
            "global attention has no window.*window=3",
        ),
        (
            lambda: BahdanauAttention(0),
            "`units` must be a positive integer. Received: units=0",
        ),
        (
            lambda: Attention("dot"),
            r"`score` must be a `Score` instance. Received: score='dot'. "
            r"Pass for example `score=GeneralScore\(\)`",
        ),
        (
            lambda: Attention(DotScore(), "softmax"),
            r"`alignment` must be a `Alignment` instance.*'softmax'.*"
            r"`alignment=SoftmaxAlignment\(\)`",
        ),
        (
            lambda: ScaledDotAttention(dropout=1.0),
            "at least 0 and below 1. Received: dropout=1.0",
        ),
        (
            lambda: ScaledDotAttention()(np.ones((2, 4)), np.ones((2, 3, 4))),
            r"`query` must have three axes.*query_shape=\(2, 4\).*expand_dims",
        ),
    ],
)
def test_errors_say_what_was_expected_what_came_and_what_would_do(
    make, message
):
    with pytest.raises(ValueError, match=message):
        make()


def test_the_history_holds_the_last_alignments_their_sum_and_the_step():
    # A key read loses 3 ln 2 of its score. The scores are [ln 2, 0], then
    # [ln 2 - 2 ln 2, -ln 2] and [ln 2 - 3.5 ln 2, -2.5 ln 2]: both equal.
    attention = keras_attn.Attention(mechanisms.TiredScore())
    query, value = np.full((1, 3, 1), LN2, "float32"), KEY[:, ::-1]
    attention.build(query.shape, value.shape)
    attention.set_weights([np.ones((1, 1)), np.array(3 * LN2)])
    expected = np.array([[2 / 3, 1 / 3], [1 / 2, 1 / 2], [1 / 2, 1 / 2]])
    _, weights = attention(query, value, return_attention_scores=True)
    np.testing.assert_allclose(
        mechanisms.values(weights), [expected], rtol=1e-5
    )
    memory = attention.prepare(value)
    history = attention.initial_history(memory)
    for t in range(3):
        _, _, history = attention.step(query[:, t : t + 1], memory, history)
        total = expected[: t + 1].sum(axis=0)
        kept = mechanisms.values(history)
        np.testing.assert_allclose(kept.previous, [[expected[t]]], rtol=1e-5)
        np.testing.assert_allclose(kept.total, [[total]], rtol=1e-5)
        np.testing.assert_array_equal(kept.step, [[t + 1]])


def test_a_mechanism_that_does_not_look_back_keeps_no_history():
    attention = ScaledDotAttention()
    memory = attention.prepare(np.ones((1, 3, 4), "float32"))
    assert attention.initial_history(memory) == ()


def test_memory_and_history_leave_no_trace_on_the_layer():
    # Two sources in turn: the first must not change the second's results.
    attention = keras_attn.Attention(mechanisms.TiredScore())
    query, value = mechanisms.draw(2, 3, 4), mechanisms.draw(2, 5, 6, seed=1)
    before = mechanisms.values(attention(query, value))
    attention(10 * query, -3 * value)
    np.testing.assert_array_equal(
        mechanisms.values(attention(query, value)), before
    )


def test_vectors_of_another_width_than_it_was_built_for_are_refused():
    attention = keras_attn.BahdanauAttention(5)
    narrow, wide = np.ones((1, 2, 4), "float32"), np.ones((1, 2, 8), "float32")
    attention(narrow, narrow)
    with pytest.raises(ValueError, match="built for vectors of width 4"):
        attention(wide, narrow)
    with pytest.raises(ValueError, match="built for vectors of width 4"):
        attention(narrow, wide)
