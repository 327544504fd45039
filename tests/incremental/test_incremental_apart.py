"""Hypotheses at different positions in one step."""

import keras
import numpy as np
import pytest
from keras import layers

import keras_attn
from keras_attn.incremental import Ensemble
from keras_attn.incremental import Incremental
from keras_attn.incremental import steps_left
from keras_attn.incremental import with_masks

LONGEST = 6


def model(positions):
    """A Transformer with positions, and a second memory of half length."""
    source = keras.Input((None, 4))
    target = keras.Input((None,), dtype="int32")
    x = positions(layers.Embedding(10, 8)(target))
    own = layers.MultiHeadAttention(2, 4)(x, x, use_causal_mask=True)
    x = layers.Add()([x, own])
    memory = layers.Dense(8)(source)
    x = layers.Add()([x, layers.MultiHeadAttention(2, 4)(x, memory)])
    return keras.Model([source, target], layers.Dense(10)(x))


class Told(keras.layers.Layer):
    """Takes its position, and a tensor with one row per source."""

    def call(self, inputs, constant, start_index=0):
        length = keras.ops.shape(inputs)[1]
        numbers = keras.ops.arange(length) + start_index
        numbers = keras.ops.cast(numbers, "float32")[None, :, None]
        return inputs * keras.ops.cos(numbers) + constant[:, None]

    def compute_output_shape(self, inputs_shape, constant_shape):
        return inputs_shape


def told():
    source = keras.Input((None, 4))
    target = keras.Input((None,), dtype="int32")
    x = layers.Embedding(10, 8)(target)
    state = layers.Dense(8)(layers.GlobalAveragePooling1D()(source))
    x = layers.GRU(8, return_sequences=True)(Told()(x, state))
    x = layers.Add()([x, layers.Attention()([x, layers.Dense(8)(source)])])
    return keras.Model([source, target], layers.Dense(10)(x))


CUTS = {
    "learned": lambda: Incremental(
        model(keras_attn.PositionEmbedding(LONGEST))
    ),
    "sines": lambda: Incremental(model(keras_attn.SinePositionEncoding())),
    "told": lambda: Incremental(told()),
    "ensemble": lambda: Ensemble(
        [
            Incremental(model(keras_attn.SinePositionEncoding())),
            Incremental(told()),
        ]
    ),
}


def rows(structure, *index):
    return keras.tree.map_structure(
        lambda x: None if x is None else keras.ops.stack([x[i] for i in index]),
        structure,
    )


@pytest.mark.parametrize("name", CUTS)
def test_hypotheses_apart_go_on_as_they_would_together(name):
    cut = CUTS[name]()
    random = np.random.default_rng(0)
    source = random.normal(size=(3, 5, 4)).astype("float32")
    tokens = random.integers(4, 10, (LONGEST, 3, 2)).astype("int32")
    encoded = cut.encode(source)
    states = [cut.start(encoded, 2, LONGEST)]
    expected = []
    for token in tokens:
        logits, _, state = cut.step(token, states[-1], encoded)
        expected.append(logits)
        states.append(state)
    # Rows are at different positions, and so are two hypotheses of a row.
    at = np.array([[0, 4], [2, 2], [4, 0]])
    here = keras.tree.map_structure(
        lambda *x: keras.ops.stack(
            [
                keras.ops.stack([x[at[b, k]][b, k] for k in range(2)])
                for b in range(3)
            ]
        ),
        *states,
    )
    token = np.array(
        [[tokens[at[b, k], b, k] for k in range(2)] for b in range(3)]
    )
    logits, _, new = cut.step(token, here, encoded, per_row_position=True)
    for b in range(3):
        for k in range(2):
            np.testing.assert_allclose(
                logits[b, k], expected[at[b, k]][b, k], atol=1e-5
            )
    left = steps_left(new, LONGEST)
    np.testing.assert_array_equal(left, LONGEST - 1 - at)
    # All at one position: the same as in a search.
    logits, _, _ = cut.step(
        tokens[2], states[2], encoded, per_row_position=True
    )
    np.testing.assert_array_equal(logits, expected[2])


def test_memories_of_any_length_get_a_mask():
    cut = CUTS["sines"]()

    @of_any_length
    def masks(source):
        encoded = cut.encode(source)
        assert cut.source_mask(encoded) is None
        return cut.source_mask(with_masks(encoded))

    assert np.all(masks(np.ones((2, 3, 4), "float32")))
    known = cut.encode(np.ones((2, 3, 4), "float32"))
    assert cut.source_mask(with_masks(known)) is None


def of_any_length(function):
    """A graph in which the length of a source is not known."""
    tf = pytest.importorskip("tensorflow")
    spec = [tf.TensorSpec([None, None, 4])]
    return tf.function(function, input_signature=spec, autograph=False)
