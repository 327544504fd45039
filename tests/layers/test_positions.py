"""Positions: added, counted from any first one, never past the last.

These tests run on every backend that Keras runs on.
"""

import keras
import numpy as np
import pytest
from keras import layers
from keras import ops

from keras_attn import PositionEmbedding
from keras_attn import SinePositionEncoding

LAYERS = [
    PositionEmbedding(7),
    SinePositionEncoding(),
    SinePositionEncoding(layout="halves", endpoint=True, offset=2),
]


def test_sines_and_cosines_are_those_of_the_paper():
    found = SinePositionEncoding()(np.zeros((2, 3, 5), "float32"))
    expected = np.zeros((3, 5))
    for position in range(3):
        for i in range(5):
            angle = position / 10_000 ** (2 * (i // 2) / 5)
            expected[position, i] = np.cos(angle) if i % 2 else np.sin(angle)
    np.testing.assert_allclose(found, [expected] * 2, atol=1e-6)


@pytest.mark.parametrize("dim", [6, 7])
def test_halves_are_those_of_marian(dim):
    layer = SinePositionEncoding(layout="halves")
    found = ops.convert_to_numpy(layer(np.zeros((1, 40, dim), "float32")))[0]
    angles = np.array(
        [
            [p / 10_000 ** (2 * (i // 2) / dim) for i in range(dim)]
            for p in range(40)
        ]
    )
    expected = np.hstack([np.sin(angles[:, ::2]), np.cos(angles[:, 1::2])])
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_the_last_divisor_may_be_the_largest():
    layer = SinePositionEncoding(layout="halves", endpoint=True, offset=2)
    found = ops.convert_to_numpy(layer(np.zeros((1, 40, 8), "float32")))[0]
    # As FairSeq computes its table
    powers = np.exp(np.arange(4) * -(np.log(10_000) / 3))
    angles = np.arange(2, 42)[:, None] * powers
    expected = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_another_layout_is_refused():
    with pytest.raises(ValueError, match='"interleaved" or "halves"'):
        SinePositionEncoding(layout="thirds")


def test_a_learned_vector_is_added_to_each_position():
    layer = PositionEmbedding(4)
    inputs = np.random.default_rng(0).normal(size=(2, 3, 5)).astype("float32")
    found = layer(inputs)
    table = ops.convert_to_numpy(layer.embeddings)
    assert table.shape == (4, 5) and table.any()
    np.testing.assert_allclose(found, inputs + table[:3], atol=1e-6)


@pytest.mark.parametrize("layer", LAYERS)
def test_a_sequence_in_parts_gets_what_the_whole_gets(layer):
    inputs = np.zeros((1, 6, 4), "float32")
    whole = layer(inputs)
    for t in range(6):
        start = ops.convert_to_tensor(t, "int32")
        part = layer(inputs[:, t : t + 1], start_index=start)
        np.testing.assert_allclose(part[:, 0], whole[:, t], atol=1e-6)


@pytest.mark.parametrize("layer", LAYERS)
def test_the_mask_of_the_inputs_is_kept_and_the_layer_is_saved(layer, tmp_path):
    ids = keras.Input((None,), dtype="int32")
    x = layers.Embedding(5, 4, mask_zero=True)(ids)
    outputs = layers.LSTM(3)(layer(x))
    model = keras.Model(ids, outputs)
    padded, alone = np.array([[1, 2, 0, 0]]), np.array([[1, 2]])
    np.testing.assert_allclose(model(padded), model(alone), atol=1e-6)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(loaded(padded), model(padded), atol=1e-6)


def test_far_positions_differ_in_half_precision():
    layer = SinePositionEncoding(dtype="float16")
    far = layer(np.zeros((1, 2, 4), "float16"), start_index=4096)
    assert keras.backend.standardize_dtype(far.dtype) == "float16"
    exact = SinePositionEncoding()(np.zeros((1, 2, 4)), start_index=4096)
    np.testing.assert_allclose(far, exact, atol=1e-3)
    layer = PositionEmbedding(3, dtype="mixed_float16")
    assert "float16" in str(layer(np.zeros((1, 2, 4), "float16")).dtype)


def test_a_sequence_past_the_last_position_is_refused():
    layer = PositionEmbedding(3, name="places")
    with pytest.raises(ValueError, match="'places' .* 3 positions"):
        layer(np.zeros((1, 4, 2)))
    with pytest.raises(ValueError, match="higher `max_length`"):
        layer(np.zeros((1, 2, 2)), start_index=2)
    # TensorFlow turns NumPy's number into a tensor and raises its own error.
    with pytest.raises(Exception, match="higher `max_length`"):
        layer(np.zeros((1, 2, 2)), start_index=np.int64(2))


@pytest.mark.parametrize("max_length", [0, 2.0, True, None])
def test_a_length_that_is_none_is_refused(max_length):
    with pytest.raises(ValueError, match="`max_length` must be a positive"):
        PositionEmbedding(max_length)
