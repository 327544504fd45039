"""`check()` finds results that mix rows, are random, or are not finite.

It also finds an input that no result depends on. These tests run on every
backend that Keras runs on.
"""

import keras
import numpy as np
import pytest
from keras import layers
from keras import ops
from support.cuts import TARGETS
from support.cuts import decoder
from support.cuts import with_path
from support.findings import DROPPED_MASKS
from support.findings import NAMED
from support.findings import Ahead
from support.findings import arrays
from support.findings import assert_doubtful
from support.findings import assert_good
from support.findings import assert_wrong
from support.findings import in_a_nested_model
from support.findings import on_target
from support.findings import with_encoder

import keras_attn

pytestmark = DROPPED_MASKS


def less_the_batch_s_mean(x):
    return x - ops.mean(x, axis=0, keepdims=True)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda x: layers.Lambda(less_the_batch_s_mean, **NAMED)(x),
        lambda x: x - layers.Lambda(lambda y: ops.mean(y, axis=0), **NAMED)(x),
        in_a_nested_model(layers.Lambda(less_the_batch_s_mean, **NAMED)),
    ],
)
@pytest.mark.parametrize("where", [on_target, with_encoder])
def test_a_row_that_depends_on_its_neighbours_is_found(wrap, where):
    assert_wrong(where(wrap), "neighbours", "'culprit'", "mixes them")


def test_statistics_of_training_are_no_neighbours():
    assert_good(on_target(layers.BatchNormalization()))


class Noisy(layers.Layer):
    """Draws whether it trains or not."""

    def __init__(self, draw, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.seed_generator = keras.random.SeedGenerator(1)
        self.draw = draw

    def call(self, x):
        return x + self.draw(ops.shape(x), self.seed_generator)


def by_keras(shape, seed):
    return keras.random.normal(shape, seed=seed)


def by_tensorflow(shape, seed):
    import tensorflow as tf

    return tf.random.normal(shape)


def without_a_seed(shape, seed):
    return keras.random.normal(shape)


@pytest.mark.parametrize("draw", [by_keras, without_a_seed, by_tensorflow])
def test_what_draws_though_it_does_not_train_is_named(draw):
    if draw is by_tensorflow and keras.backend.backend() != "tensorflow":
        pytest.skip("TensorFlow's own draws")
    if draw is without_a_seed and keras.backend.backend() == "jax":
        pytest.skip("JAX refuses draws without a seed")
    model = on_target(Noisy(draw, **NAMED))
    seed = model.get_layer("culprit").seed_generator.state
    before = ops.convert_to_numpy(ops.convert_to_tensor(seed))
    assert_doubtful(model, "random", "culprit", "draws at random")
    after = ops.convert_to_numpy(ops.convert_to_tensor(seed))
    np.testing.assert_array_equal(before, after)


def test_an_input_that_nothing_depends_on_is_found():
    model = with_path(lambda x, memory: decoder()(x, 0.0 * memory))
    assert_doubtful(model, "ignored", None, "input 'source'", "attend")
    model = with_path(lambda x, memory: decoder()(0.0 * x, memory))
    assert_doubtful(model, "ignored", None, "target's ids, the input 'target'")


def test_what_is_not_finite_is_named():
    divide = layers.Lambda(lambda x: x / 0.0, **NAMED)
    assert_wrong(on_target(divide), "finite", "from 'culprit' (Lambda)")


class Forbids(layers.Layer):
    """Adds minus infinity to the logits of some tokens."""

    def __init__(self, *tokens, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.tokens = tokens

    def call(self, x):
        ids = np.arange(x.shape[-1])
        return ops.where(np.isin(ids, self.tokens), -np.inf, x)


def forbidding(*tokens, change=lambda x: x):
    model = on_target(change)
    logits = Forbids(*tokens, name="forbids")(model.output)
    model = keras.Model(model.inputs, logits)
    loss = keras_attn.SequenceCrossentropy()
    model.compile("adam", loss=loss, jit_compile=False)
    return model


def test_a_model_may_forbid_tokens_by_minus_infinity():
    assert_good(forbidding(0, 1), arrays())
    leaking = forbidding(0, change=Ahead(3, **NAMED))
    assert_wrong(leaking, "leak", "'culprit'")
    everything = forbidding(*range(TARGETS))
    assert_wrong(everything, "finite", "from 'forbids' (Forbids)")


class Positive(layers.Layer):
    """Has a weight that a disturbance may make invalid."""

    def build(self, shape):
        self.supports_masking = True
        self.scales = self.add_weight(
            shape=(shape[-1],), initializer=keras.initializers.Constant(1e-3)
        )

    def call(self, x):
        return x * ops.log(self.scales)


def test_other_weights_that_make_no_sense_are_not_held_against_a_model():
    assert_good(on_target(Positive()))
    leaking = on_target(lambda x: Positive()(Ahead(3, **NAMED)(x)))
    assert_wrong(leaking, "leak", "'culprit'")
