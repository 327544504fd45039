"""Why two runs of a model differ: the first layer that is to blame."""

import keras
import numpy as np
import pytest
from keras import layers
from keras import ops

from keras_attn.graph.causes import Causes

IDS = np.random.default_rng(1).integers(0, 30, (7, 9)).astype("int32")


def model_of(*parts, dtype="float32"):
    """A model whose layers between embedding and output are given."""
    keras.utils.set_random_seed(0)
    ids = keras.Input((None,), dtype="int32")
    x = layers.Embedding(30, 8, dtype=dtype)(ids)
    for part in parts:
        x = part(x)
    return keras.Model(ids, layers.Dense(5, dtype=dtype)(x))


class Own(layers.Layer):
    """Applies a function."""

    def __init__(self, function):
        super().__init__(name="culprit")
        self._function = function

    def call(self, x):
        return self._function(x)


def name_of(operation):
    return operation and operation.name


CAUSES = {
    "random": (
        lambda x: x + keras.random.normal(ops.shape(x)),
        lambda causes: causes.random(),
    ),
    "neighbours": (
        lambda x: x - ops.mean(x, axis=0, keepdims=True),
        lambda causes: causes.neighbours(3),
    ),
    "only in a graph": (
        lambda x: x if isinstance(x.shape[1], int) else x + 1.0,
        lambda causes: causes.only_in_graph(),
    ),
}


@pytest.mark.parametrize("name", CAUSES)
def test_the_first_layer_is_named_alone_and_within_a_model(name):
    if name == "only in a graph" and keras.backend.backend() != "tensorflow":
        pytest.skip("graphs of unknown sizes are TensorFlow's")
    function, find = CAUSES[name]
    sound = [layers.Dense(8), layers.Dense(8)]
    inner = keras.Sequential([layers.Dense(8), Own(function)])
    for parts in ([sound[0], Own(function)], [inner, sound[1]]):
        assert name_of(find(Causes(model_of(*parts), [IDS]))) == "culprit"
    assert find(Causes(model_of(*sound), [IDS])) is None


def test_a_layer_that_fails_is_named_and_explains_nothing_else():
    built = []

    def fail(x):
        if built:
            raise ValueError("fails")
        return x

    model = model_of(layers.Dense(8), Own(fail))
    built.append(True)
    causes = Causes(model, [IDS])
    assert causes.failure().name == "culprit"
    assert causes.only_in_graph() is None
    assert causes.random() is None
    assert causes.neighbours(1) is None


@pytest.mark.full
@pytest.mark.parametrize("trainable", [True, False])
def test_rounding_is_measured_in_frozen_models_too(trainable):
    def attend(x):
        heads = layers.MultiHeadAttention(2, 4, dtype="float16")
        both = layers.Add(dtype="float16")([x, heads(x, x)])
        return layers.LayerNormalization(dtype="float16")(both)

    model = model_of(*[attend] * 4, dtype="float16")
    random = np.random.default_rng(0)
    model.set_weights(
        [
            random.normal(scale=0.8, size=x.shape).astype(x.dtype)
            for x in model.get_weights()
        ]
    )
    model.trainable = trainable
    assert Causes(model, [IDS]).only_in_graph() is None
