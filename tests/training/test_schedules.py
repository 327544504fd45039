import keras
import numpy as np
import pytest

import keras_attn


def rates(schedule, steps):
    return np.array([float(schedule(step)) for step in steps])


def test_the_rate_is_that_of_the_paper():
    # Equation 3: d^-0.5 * min(step^-0.5, step * warmup^-1.5), steps from 1.
    units, warmup = 512, 4000
    steps = np.array([1, 2, 1000, 3999, 4000, 4001, 20_000, 1_000_000])
    expected = units**-0.5 * np.minimum(steps**-0.5, steps * warmup**-1.5)
    schedule = keras_attn.InverseSquareRootDecay((units * warmup) ** -0.5)
    np.testing.assert_allclose(rates(schedule, steps - 1), expected, rtol=1e-5)


def test_the_highest_rate_comes_with_the_last_step_of_the_warm_up():
    found = rates(keras_attn.InverseSquareRootDecay(0.5, 10), range(100))
    assert found.argmax() == 9 and found[9] == 0.5
    assert found[0] == pytest.approx(0.05) and found[39] == pytest.approx(0.25)


def test_the_configuration_survives_a_round_trip():
    schedule = keras_attn.InverseSquareRootDecay(0.3, 7)
    optimizer = keras.optimizers.SGD(schedule)
    again = keras.saving.deserialize_keras_object(
        keras.saving.serialize_keras_object(optimizer)
    )
    assert again.get_config() == optimizer.get_config()
    steps = range(20)
    np.testing.assert_array_equal(
        rates(schedule, steps),
        rates(
            keras.saving.deserialize_keras_object(
                keras.saving.serialize_keras_object(schedule)
            ),
            steps,
        ),
    )


def test_an_optimizer_goes_by_it():
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    rate = keras_attn.InverseSquareRootDecay(0.1, 2)
    model.compile(keras.optimizers.SGD(rate), "mse", jit_compile=False)
    x = np.ones((3, 1), "float32")
    for step in range(3):
        used = float(model.optimizer.learning_rate)
        assert used == pytest.approx(float(rate(step)))
        model.fit(x, x, batch_size=3, verbose=0)


@pytest.mark.parametrize("target, steps", [(0, 10), (0.1, 0), ("a", 3)])
def test_numbers_out_of_range_are_refused(target, steps):
    with pytest.raises(ValueError, match="Received"):
        keras_attn.InverseSquareRootDecay(target, steps)


def test_the_inverse_sigmoid_is_that_of_the_paper():
    # Section 2.4: k / (k + exp(i / k)).
    k, steps = 50, np.array([0, 1, 100, 196, 300, 1000, 1_000_000])
    with np.errstate(over="ignore"):
        expected = k / (k + np.exp(steps / k))
    schedule = keras_attn.InverseSigmoidDecay(k)
    np.testing.assert_allclose(
        rates(schedule, steps), expected, rtol=1e-5, atol=1e-9
    )
    again = keras.saving.deserialize_keras_object(
        keras.saving.serialize_keras_object(schedule)
    )
    assert again.get_config() == schedule.get_config()


@pytest.mark.parametrize("k", [0.5, float("inf"), "a", None])
def test_a_speed_out_of_range_is_refused(k):
    with pytest.raises(ValueError, match="`k` must be a number of at least 1"):
        keras_attn.InverseSigmoidDecay(k)
