"""Attention over batches with a row for all, and over no positions at all."""

import keras
import numpy as np
import pytest
from support.backends import needs_tensorflow
from support.mechanisms import BATCH
from support.mechanisms import MECHANISMS
from support.mechanisms import QUERY_DIM
from support.mechanisms import SOURCE
from support.mechanisms import TARGET
from support.mechanisms import draw
from support.mechanisms import each_mechanism
from support.mechanisms import each_of
from support.mechanisms import named
from support.mechanisms import scramble
from support.mechanisms import values

import keras_attn

ONE_ROW, NO_POSITIONS = 1, 0
MASK = np.array([[True, True, False, True, False]])


def built(mechanism, **options):
    """An attention with random weights, a query and a source."""
    attention = mechanism.make(**options)
    query = draw(BATCH, TARGET, QUERY_DIM, seed=1)
    value = draw(BATCH, SOURCE, mechanism.value_dim, seed=2)
    attention.build(query.shape, value.shape)
    scramble(attention)
    return attention, query, value


def both(attention, query, value, mask=None, training=False):
    return [
        values(x)
        for x in attention(
            query,
            value,
            value_mask=mask,
            return_attention_scores=True,
            training=training,
        )
    ]


def assert_equal(found, expected):
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


@each_mechanism
def test_a_query_of_one_row_attends_to_every_source(mechanism):
    attention, query, value = built(mechanism)
    query = query[:ONE_ROW]
    repeated = np.repeat(query, BATCH, axis=0)
    assert_equal(
        both(attention, query, value), both(attention, repeated, value)
    )


@each_mechanism
def test_a_source_or_a_mask_of_one_row_serves_every_query(mechanism):
    attention, query, value = built(mechanism)
    masks = np.repeat(MASK, BATCH, axis=0)
    assert_equal(
        both(attention, query, value, MASK),
        both(attention, query, value, masks),
    )
    value, mask = value[:ONE_ROW], MASK.tolist()  # lists are masks too
    repeated = np.repeat(value, BATCH, axis=0)
    assert_equal(
        both(attention, query, value, mask),
        both(attention, query, repeated, masks),
    )


@pytest.mark.parametrize("heads", [1, 2])
def test_a_key_of_one_row_serves_values_of_many(heads):
    attention = keras_attn.ScaledDotAttention(num_heads=heads)
    query, value = draw(3, 2, 4), draw(3, 5, 4, seed=1)
    key = draw(1, 5, 4, seed=2)
    np.testing.assert_allclose(
        values(attention(query, value, key)),
        values(attention(query, value, np.repeat(key, 3, axis=0))),
        atol=1e-6,
    )


def test_the_symbolic_batch_is_that_of_many_rows():
    attention = keras_attn.LuongAttention("general", num_heads=2)
    one, many = keras.Input(batch_shape=(1, 4, 6)), keras.Input((9, 6))
    for query, value in ((one, many), (many, one)):
        context, weights = attention(query, value, return_attention_scores=True)
        assert context.shape == (None, query.shape[1], 6)
        assert weights.shape == (None, query.shape[1], value.shape[1])
    assert attention(one, one).shape == (1, 4, 6)
    mask = keras.Input((4,), dtype="bool")
    assert attention(one, one, value_mask=mask).shape == (None, 4, 6)


def test_dropout_differs_between_sources_of_one_query():
    attention = keras_attn.LuongAttention("general", dropout=0.5, seed=3)
    context = values(
        attention(np.zeros((1, 4, 5)), np.ones((6, 8, 7)), training=True)
    )
    assert (context[1:] != context[:1]).any(axis=(1, 2)).all()


@each_mechanism
def test_over_no_source_positions_contexts_are_zero(mechanism):
    attention, query, value = built(mechanism)
    for training in (False, True):
        context, weights = both(
            attention, query, value[:, :NO_POSITIONS], training=training
        )
        assert weights.shape == (BATCH, TARGET, NO_POSITIONS)
        assert context.shape == (BATCH, TARGET, mechanism.value_dim)
        assert not context.any()


@each_mechanism
def test_without_target_positions_there_are_no_contexts(mechanism):
    attention, query, value = built(mechanism)
    nothing = query[:, :NO_POSITIONS]
    context, weights = both(attention, nothing, value)
    assert context.shape == (BATCH, NO_POSITIONS, mechanism.value_dim)
    assert weights.shape == (BATCH, NO_POSITIONS, SOURCE)


@pytest.mark.parametrize("block_size", [None, 2])
def test_blocks_may_have_no_queries(block_size):
    score = keras_attn.AdditiveScore(5, block_size=block_size)
    attention = keras_attn.Attention(score)
    context = attention(np.zeros((2, 0, 4)), np.ones((2, 5, 6)))
    assert context.shape == (2, 0, 6)


@needs_tensorflow("A graph for unknown sizes")
@pytest.mark.sample_cases(6)
@pytest.mark.parametrize("sizes", [(0, 5), (4, 0), (0, 0), (4, 5)])
@each_of(MECHANISMS)
def test_a_graph_for_any_size_takes_no_positions_too(mechanism, sizes):
    import tensorflow as tf

    attention, query, value = built(mechanism)
    target, source = sizes
    query, value = query[:, :target], value[:, :source]

    @tf.function(
        input_signature=[
            tf.TensorSpec((None, None, x.shape[-1])) for x in (query, value)
        ]
    )
    def attend(query, value):
        return attention(query, value, return_attention_scores=True)

    found = [values(x) for x in attend(query, value)]
    assert_equal(found, both(attention, query, value))


def test_dropout_does_not_depend_on_what_an_alignment_draws():
    # The alignment has the seed 1, too.
    attention = named("hard").make(dropout=0.3, seed=1)
    queries, source = np.zeros((8, 500, 4)), np.ones((8, 5, 6))
    context = values(attention(queries, source, training=True))
    dropped = (context[..., 0] == 0).mean()
    assert 0.27 < dropped < 0.33
    assert attention.get_config()["seed"] == 1
