"""Any Keras cell computes the same as in Keras, with every shortcut."""

import keras
import numpy as np
import pytest
from keras import layers
from keras import ops
from support.mechanisms import values

import keras_attn
from keras_attn.layers import cells

RANDOM = np.random.default_rng(0)
INPUTS = RANDOM.normal(size=(2, 3, 4)).astype("float32")  # (B, K, dim)
STATE = RANDOM.normal(size=(2, 3, 5)).astype("float32")


def as_keras_runs_it(cell, states, training=False):
    """The cell called directly, with a row for each beam."""
    rows = [x.reshape(6, -1) for x in (INPUTS, *states)]
    _, new = cell(rows[0], rows[1:], training=training)
    return [x.reshape(2, 3, -1) for x in values(new)]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"reset_after": False},
        {"use_bias": False},
        {"recurrent_activation": "hard_sigmoid", "activation": "relu"},
        {"dropout": 0.5},
        {"dtype": "mixed_float16"},
    ],
)
def test_a_gru_cell_computes_what_keras_computes(options):
    cell = layers.GRUCell(5, bias_initializer="random_normal", **options)
    cell.build((None, 4))
    (expected,) = as_keras_runs_it(cell, [STATE])
    _, (new,) = cells.run(cell, INPUTS, (ops.convert_to_tensor(STATE),), False)
    exact = "dtype" not in options
    np.testing.assert_allclose(
        values(new),
        expected,
        atol=1e-6 if exact else 2e-3,
    )


@pytest.mark.parametrize(
    "options",
    [{}, {"reset_after": False}, {"use_bias": False}, {"dropout": 0.5}],
)
def test_our_gru_cell_takes_the_place_of_keras_in_an_encoder(options, tmp_path):
    inputs = keras.Input((None, 4))
    rnn = layers.RNN(
        keras_attn.GRUCell(5, **options),
        return_sequences=True,
        return_state=True,
    )
    ours = keras.Model(inputs, layers.Bidirectional(rnn)(inputs))
    gru = layers.GRU(5, return_sequences=True, return_state=True, **options)
    keras_own = keras.Model(inputs, layers.Bidirectional(gru)(inputs))
    keras_own.set_weights(ours.get_weights())
    ours.save(tmp_path / "ours.keras")
    loaded = keras.models.load_model(tmp_path / "ours.keras")
    for expected, *others in zip(
        *(values(model(INPUTS)) for model in (keras_own, ours, loaded)),
        strict=True,
    ):
        for other in others:
            np.testing.assert_allclose(other, expected, atol=1e-6)
    calm, dropped = (
        values(ours(INPUTS, training=training)[0]) for training in (False, True)
    )
    assert np.allclose(calm, dropped) == ("dropout" not in options)


def test_a_gru_cell_that_drops_inputs_does_so_in_training():
    cell = layers.GRUCell(5, dropout=0.9, seed=1)
    cell.build((None, 4))
    state = (ops.convert_to_tensor(STATE),)
    _, (calm,) = cells.run(cell, INPUTS, state, False)
    _, (dropped,) = cells.run(cell, INPUTS, state, True)
    difference = np.abs(values(calm - dropped)).max()
    assert difference > 0.01


def test_a_users_own_kind_of_gru_cell_is_called():
    class Doubled(layers.GRUCell):
        def call(self, inputs, states, training=False):
            output, _ = super().call(inputs, states, training=training)
            return 2 * output, [2 * output]

    cell = Doubled(5)
    cell.build((None, 4))
    (expected,) = as_keras_runs_it(cell, [STATE])
    _, (new,) = cells.run(cell, INPUTS, (ops.convert_to_tensor(STATE),), False)
    np.testing.assert_allclose(values(new), expected, atol=1e-6)


def test_the_hidden_state_of_a_stack_is_the_top_cells_first():
    stack = layers.StackedRNNCells([layers.LSTMCell(2), layers.LSTMCell(3)])
    assert cells.state_sizes(stack) == [2, 2, 3, 3]
    assert cells.hidden_index(stack) == 2
    assert cells.hidden_index(layers.LSTMCell(3)) == 0
