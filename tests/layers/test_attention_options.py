"""`Attention`'s own options: heads, gate, values, samples, regularizers."""

import keras
import numpy as np
import pytest
from keras import layers
from keras import ops
from support.mechanisms import draw
from support.mechanisms import scramble
from support.mechanisms import values

import keras_attn
from keras_attn import Attention
from keras_attn import DotScore
from keras_attn import GeneralScore
from keras_attn import LuongAttention
from keras_attn import ScaledDotAttention
from keras_attn.backend import has_fused_attention
from keras_attn.layers.attention.fused import can_fuse

QUERY, VALUE = draw(2, 3, 4, seed=3), draw(2, 5, 6, seed=4)
MASK = np.array([[True] * 5, [True, True, False, False, False]])


def built(attention):
    attention.build(QUERY.shape, VALUE.shape)
    scramble(attention)
    return attention


def test_heads_are_those_of_keras_s_multi_head_attention():
    # Both project without bias here; their output is as wide as the values.
    ours = built(ScaledDotAttention(num_heads=2, head_dim=3))
    theirs = layers.MultiHeadAttention(2, 3, use_bias=False, output_shape=6)
    theirs.build(QUERY.shape, VALUE.shape)
    part = ours.projections
    theirs.set_weights(
        [
            values(part.query.kernel).reshape(4, 2, 3),
            values(part.key.kernel).reshape(6, 2, 3),
            values(part.value.kernel).reshape(6, 2, 3),
            values(part.output_projection.kernel).reshape(2, 3, 6),
        ]
    )
    context, weights = ours(
        QUERY, VALUE, value_mask=MASK, return_attention_scores="heads"
    )
    expected, expected_weights = theirs(
        QUERY,
        VALUE,
        attention_mask=np.repeat(MASK[:, None], 3, axis=1),
        return_attention_scores=True,
    )
    np.testing.assert_allclose(values(context), values(expected), atol=1e-5)
    np.testing.assert_allclose(
        values(weights), values(expected_weights), atol=1e-6
    )


@pytest.mark.parametrize(
    "make",
    [
        lambda: ScaledDotAttention(num_heads=2),
        lambda: Attention(keras_attn.CoverageScore(3), num_heads=2),
        lambda: LuongAttention("general", alignment="local-p", num_heads=2),
    ],
)
def test_weights_come_for_each_head_or_as_their_mean(make):
    attention = built(make())
    _, mean = attention(QUERY, VALUE, return_attention_scores=True)
    _, each = attention(QUERY, VALUE, return_attention_scores="heads")
    assert each.shape == (2, 2, 3, 5) and mean.shape == (2, 3, 5)
    np.testing.assert_allclose(values(mean), values(each).mean(1), atol=1e-6)
    assert np.abs(values(each)[:, 0] - values(each)[:, 1]).max() > 1e-3


def test_one_head_is_a_head_too():
    attention = Attention(GeneralScore())
    _, weights = attention(QUERY, VALUE, return_attention_scores=True)
    _, each = attention(QUERY, VALUE, return_attention_scores="heads")
    np.testing.assert_array_equal(values(each)[:, 0], values(weights))


@pytest.mark.parametrize("flag", [False, True, "heads"])
def test_what_a_functional_model_expects_is_what_comes(flag):
    query, value = keras.Input((None, 4)), keras.Input((None, 6))
    layer = Attention(GeneralScore(), num_heads=2, value_dim=8)
    outputs = layer(query, value, return_attention_scores=flag)
    model = keras.Model([query, value], outputs)
    for spec, result in zip(
        keras.tree.flatten(outputs),
        keras.tree.flatten(model([QUERY, VALUE])),
        strict=True,
    ):
        assert len(spec.shape) == len(result.shape)
        assert spec.shape[-1] in (None, result.shape[-1])


def test_values_are_projected_where_a_width_is_given():
    attention = built(Attention(GeneralScore(), value_dim=2))
    context, weights = attention(QUERY, VALUE, return_attention_scores=True)
    kernel = values(attention.value_projection.kernel)
    np.testing.assert_allclose(
        values(context), values(weights) @ VALUE @ kernel, rtol=1e-4, atol=1e-5
    )


def test_a_gate_scales_the_context_by_what_the_query_says():
    attention = built(Attention(GeneralScore(), gate=True))
    context, weights = attention(QUERY, VALUE, return_attention_scores=True)
    kernel, bias = map(values, attention.context_gate.weights)
    gate = 1 / (1 + np.exp(-(QUERY @ kernel + bias)))
    np.testing.assert_allclose(
        values(context), gate * (values(weights) @ VALUE), atol=1e-5
    )


def test_a_regularizer_adds_to_the_loss_in_a_layer_and_in_a_decoder():
    # Weights of 1/5 for 3 queries: one minus 3/5, squared, for 5 positions.
    expected = 0.5 * 5 * (1 - 3 / 5) ** 2

    def even():
        return Attention(
            GeneralScore(kernel_initializer="zeros"),
            regularizer=keras_attn.DoublyStochastic(0.5),
        )

    attention = even()
    attention(QUERY, VALUE)
    np.testing.assert_allclose(values(attention.losses), [expected], rtol=1e-6)
    decoder = keras_attn.AttentionDecoder(layers.GRUCell(4), even())
    decoder(QUERY, VALUE)
    np.testing.assert_allclose(values(decoder.losses), [expected], rtol=1e-6)


def test_a_function_of_one_s_own_regularizes():
    attention = Attention(
        GeneralScore(),
        regularizer=lambda alignments, query_mask, value_mask: ops.sum(
            alignments
        ),
    )
    attention(QUERY, VALUE)
    np.testing.assert_allclose(values(attention.losses), [2 * 3], rtol=1e-6)


def test_self_attention_is_a_query_that_is_the_value():
    # Causally, the first position sees itself alone.
    context, weights = ScaledDotAttention(num_heads=2)(
        QUERY, QUERY, use_causal_mask=True, return_attention_scores=True
    )
    assert context.shape == QUERY.shape
    np.testing.assert_allclose(values(weights)[:, 0], [[1, 0, 0]] * 2)
    assert not values(weights)[:, 1, 2:].any()


def test_samples_come_with_their_log_probability_and_entropy():
    # Scores of 0 and ln 3 are probabilities of 1/4 and 3/4.
    attention = Attention(DotScore(), keras_attn.ReinforceAlignment(0.0))
    query = np.full((400, 1, 1), np.log(3.0), "float32")
    value = np.tile(np.array([[[0.0], [1.0]]], "float32"), (400, 1, 1))
    _, weights, log_probability, entropy = attention(
        query,
        value,
        return_attention_scores=True,
        return_samples=True,
        training=True,
    )
    second = values(weights)[:, 0, 1]
    assert set(second) == {0.0, 1.0} and 0.65 < second.mean() < 0.85
    np.testing.assert_allclose(
        values(log_probability)[:, 0],
        np.log(np.where(second, 3 / 4, 1 / 4)),
        rtol=1e-5,
    )
    np.testing.assert_allclose(
        values(entropy),
        -(1 / 4 * np.log(1 / 4) + 3 / 4 * np.log(3 / 4)),
        rtol=1e-5,
    )


@pytest.mark.full
def test_a_decoder_that_samples_is_trained_by_reinforcement_and_cut():
    source = keras.Input((None,), dtype="int32")
    target = keras.Input((None,), dtype="int32")
    attention = keras_attn.BahdanauAttention(4)
    attention = Attention(
        attention.score, keras_attn.ReinforceAlignment(0.0, seed=1), num_heads=2
    )
    decoder = keras_attn.AttentionDecoder(layers.GRUCell(4), attention)
    hidden, log_probability, entropy = decoder(
        layers.Embedding(6, 4, mask_zero=True)(target),
        layers.Embedding(6, 4, mask_zero=True)(source),
        return_samples=True,
    )
    logits = layers.Dense(6)(hidden)
    model = keras_attn.ReinforceModel(
        [source, target], [logits, log_probability, entropy]
    )
    model.compile(
        "adam", loss=keras_attn.SequenceCrossentropy(), jit_compile=False
    )
    ids = [np.array([[3, 4, 5], [2, 5, 0]]), np.array([[1, 4, 5], [1, 3, 0]])]
    before = model.get_weights()
    model.fit(ids, ids[0], epochs=2, verbose=0)
    for variable, old in zip(model.weights, before, strict=True):
        assert np.abs(values(variable) - old).max() > 1e-6, variable.path
    decoded = keras.Model(model.inputs, model.outputs[0])
    keras_attn.Incremental(decoded).check(
        ops.convert_to_tensor(ids[0]), ops.convert_to_tensor([[1, 4, 5]] * 2)
    )


@pytest.mark.parametrize(
    "options, message",
    [
        ({"num_heads": 0}, "`num_heads` must be a positive integer"),
        ({"num_heads": 2, "head_dim": 1.5}, "`head_dim` must be a positive"),
        ({"head_dim": 3}, "nothing is split"),
        ({"value_dim": 0}, "`value_dim` must be a positive"),
        ({"regularizer": 0.1}, "must be a function of the alignments"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Attention(GeneralScore(), **options)


def test_heads_that_do_not_share_a_query_evenly_are_refused():
    with pytest.raises(
        ValueError, match="query_dim=4, num_heads=3.*`head_dim`"
    ):
        Attention(GeneralScore(), num_heads=3)(QUERY, VALUE)


def test_flags_without_a_meaning_are_refused():
    attention = Attention(GeneralScore())
    with pytest.raises(ValueError, match='False, True or "heads"'):
        attention(QUERY, VALUE, return_attention_scores="each")
    with pytest.raises(ValueError, match="has samples to return"):
        attention(QUERY, VALUE, return_samples=True)


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("mask", [None, MASK, np.zeros((2, 5), bool)])
@pytest.mark.parametrize("causal", [False, True])
def test_a_fused_kernel_computes_the_same(heads, mask, causal, monkeypatch):
    # Without a fused kernel, Keras computes it from other operations.
    monkeypatch.setattr(
        "keras_attn.layers.attention.fused.has_fused_attention", lambda: True
    )
    attention = ScaledDotAttention(num_heads=heads)
    arguments = {"value_mask": mask, "use_causal_mask": causal}
    value = VALUE[..., :4]
    fused = attention(QUERY, value, **arguments)
    plain, _ = attention(
        QUERY, value, return_attention_scores=True, **arguments
    )
    np.testing.assert_allclose(values(fused), values(plain), atol=1e-6)
    assert np.isfinite(values(fused)).all()


def test_a_method_of_ones_own_runs_in_place_of_the_fused_kernel(monkeypatch):
    monkeypatch.setattr(
        "keras_attn.layers.attention.fused.has_fused_attention", lambda: True
    )

    class Doubled(ScaledDotAttention):
        def attend_step(self, *arguments, **options):
            attended, history = super().attend_step(*arguments, **options)
            return attended._replace(context=2 * attended.context), history

    value = VALUE[..., :4]
    np.testing.assert_allclose(
        values(Doubled()(QUERY, value)),
        2 * values(ScaledDotAttention()(QUERY, value)),
        atol=1e-6,
    )


def test_the_fused_kernel_is_used_where_there_is_one():
    attention = ScaledDotAttention()
    assert can_fuse(attention.score, attention.alignment) == (
        has_fused_attention()
    )
    learned = keras_attn.ScaledDotScore(learned_scale=True)
    assert not can_fuse(learned, attention.alignment)


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("alignment", ["global", "local-m", "local-p"])
def test_a_source_without_positions_has_zeros_for_contexts(
    alignment, masked, heads
):
    attention = LuongAttention("general", alignment=alignment, num_heads=heads)
    built(attention)
    mask = np.zeros((2, 0), bool) if masked else None
    context, weights = attention(
        QUERY, VALUE[:, :0], value_mask=mask, return_attention_scores=True
    )
    assert weights.shape == (2, 3, 0)
    np.testing.assert_array_equal(values(context), np.zeros((2, 3, 6)))


@pytest.mark.sample_cases(2)
@pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="tf.function"
)
@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("alignment", ["local-m", "local-p"])
def test_whether_a_source_has_positions_may_be_unknown(alignment, jit_compile):
    import tensorflow as tf

    attention = built(LuongAttention("general", alignment=alignment, window=2))

    @tf.function(
        jit_compile=jit_compile,
        input_signature=[tf.TensorSpec((None, None, 6))],
    )
    def both(value):
        with tf.GradientTape() as tape:
            tape.watch(value)
            context = attention(QUERY, value)
        return context, tape.gradient(context, value)

    for source in (0, 1, 5):
        value = VALUE[:, :source]
        context, gradient = both(value)
        np.testing.assert_allclose(context, attention(QUERY, value), atol=1e-6)
        assert gradient.shape == value.shape


def test_a_seed_without_dropout_is_refused():
    with pytest.raises(ValueError, match="seed=3, dropout=0.0.*seed of its"):
        Attention(GeneralScore(), seed=3)


def test_a_config_with_a_seed_of_version_0_1_loads():
    config = Attention(GeneralScore(), dropout=0.5, seed=3).get_config()
    assert Attention.from_config(config).seed == 3
    config["dropout"] = 0.0
    assert Attention.from_config(config).seed is None


class PlacedScore(GeneralScore):
    """Prefers the key at the query's own position."""

    def call(self, query, keys, position):
        place = ops.arange(ops.shape(keys)[1])
        distance = ops.abs(place - ops.expand_dims(position, -1))
        return -9.0 * ops.cast(distance, query.dtype)


def test_a_score_by_position_knows_the_place_of_a_key_in_a_window():
    for alignment in (None, keras_attn.LocalMonotonicAlignment(2)):
        _, weights = Attention(PlacedScore(), alignment)(
            draw(1, 5, 4), draw(1, 6, 4), return_attention_scores=True
        )
        assert values(weights)[0].argmax(-1).tolist() == [0, 1, 2, 3, 4]


def test_a_score_may_call_its_arguments_as_it_likes():
    class Shortened(keras_attn.Score):
        def call(self, q, k):
            return ops.matmul(q, ops.swapaxes(k, 1, 2))

    context = Attention(Shortened())(QUERY, VALUE[..., :4])
    expected = Attention(DotScore())(QUERY, VALUE[..., :4])
    np.testing.assert_allclose(values(context), values(expected), atol=1e-6)


def test_products_too_large_for_float16_make_no_nan():
    query = ops.full((1, 1, 64), 60.0, dtype="float16")
    attention = Attention(DotScore(dtype="float16"), dtype="float16")
    context = attention(query, ops.concatenate([query, -query], 1))
    np.testing.assert_allclose(values(context), 60.0)


def test_a_window_reaches_to_the_last_real_position():
    # Both real positions count, although there is padding between them.
    mask = np.array([[True, False, False, True]])
    attention = LuongAttention("general", alignment="local-p", window=4)
    _, weights = attention(
        draw(1, 1, 4),
        draw(1, 4, 4),
        value_mask=mask,
        return_attention_scores=True,
    )
    assert (values(weights)[0, 0] > 0).tolist() == [True, False, False, True]


def test_a_window_with_a_draw_is_given_it():
    class Shifted(keras_attn.LocalMonotonicAlignment):
        def draw(self, shape):
            return (ops.ones((*shape[:-1], 1)),)

        def call(self, scores, allowed=None, window=None, draws=()):
            weights = super().call(scores, allowed, window)
            return weights * 0.5 if draws else weights

    attention = Attention(GeneralScore(), Shifted(2))
    for training, expected in ((False, 1.0), (True, 0.5)):
        _, weights = attention(
            QUERY, VALUE, return_attention_scores=True, training=training
        )
        np.testing.assert_allclose(values(weights).sum(-1), expected, rtol=1e-5)


@pytest.mark.parametrize("hard", [False, True])
def test_each_of_several_heads_walks_alone(hard):
    alignment = keras_attn.MonotonicAlignment(
        initial_bias=0.0, hard_inference=hard
    )
    heads = built(Attention(GeneralScore(), alignment, num_heads=2, head_dim=3))
    _, found = heads(QUERY, VALUE, return_attention_scores="heads")
    part = heads.projections
    keys = part.apart(part.key, VALUE)  # (batch, source, heads, 3)
    queries = part.apart(part.query, QUERY)  # (batch, target, heads, 3)
    one = Attention(heads.score, heads.alignment)
    for head in (0, 1):
        _, expected = one(
            queries[:, :, head], keys[:, :, head], return_attention_scores=True
        )
        np.testing.assert_allclose(
            values(found)[:, head], values(expected), atol=1e-6
        )
    assert np.abs(values(found)[:, 0] - values(found)[:, 1]).max() > 0.1


def test_an_alignment_sees_its_own_head_and_a_score_the_mean():
    class Recall(keras_attn.Alignment):
        """A score that adds the past alignments that it sees to its own."""

        def call(self, scores, allowed=None, history=()):
            past = history.previous + 10.0 * history.total
            return past + ops.cast(scores, "float32")

    class Own(keras_attn.Score):
        """Scores of 1 in the first head and of 3 in the other, at first."""

        def call(self, query, keys, history):
            rows = ops.shape(query)[0]
            of_head = 1.0 + 2.0 * ops.cast(ops.arange(rows) % 2, "float32")
            shape = ops.shape(history.previous)
            of_head = ops.broadcast_to(of_head[:, None, None], shape)
            return of_head + 100.0 * history.total

    attention = built(Attention(Own(), Recall(), num_heads=2, head_dim=3))
    memory = attention.prepare(VALUE)
    query, history = QUERY[:, :1], attention.initial_history(memory)
    for expected in ([1, 3], [1 + 200 + 11, 3 + 200 + 33]):
        attended, history = attention.attend_step(query, memory, history)
        np.testing.assert_allclose(
            values(attended.by_head)[0, 0, :, 0], expected
        )
    np.testing.assert_allclose(values(history.total)[0, 0, 0], 2 + 224)
