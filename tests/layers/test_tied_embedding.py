"""`TiedEmbedding` computes what Keras's `ReversibleEmbedding` does.

These tests run on every backend that Keras runs on.
"""

import keras
import numpy as np
import pytest
from keras import ops

import keras_attn
from keras_attn.backend import as_array
from keras_attn.keras_internals import get_keras_mask

OPTIONS = {
    "plain": {},
    "capped": {"logit_soft_cap": 2.0},
    "untied": {"tie_weights": False},
    "half": {"dtype": "bfloat16"},
    "half, logits in float32": {
        "dtype": "bfloat16",
        "reverse_dtype": "float32",
    },
    "float16": {"dtype": "float16"},
    "logits in float16": {"reverse_dtype": "float16"},
    "masked": {"mask_zero": True},
}
IDS = np.array([[3, 1, 0], [8, 0, 0]], "int32")


def pair(options):
    ours = keras_attn.TiedEmbedding(9, 4, **options)
    theirs = keras.layers.ReversibleEmbedding(9, 4, **options)
    for layer in (ours, theirs):
        layer.build()
    theirs.set_weights(ours.get_weights())
    return ours, theirs


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize(
    "shape", [(1, 4), (3, 4), (1, 1, 4), (2, 3, 4), (2, 1, 3, 4)]
)
def test_it_computes_what_keras_computes(name, shape):
    ours, theirs = pair(OPTIONS[name])
    one, two = ours(IDS), theirs(IDS)
    np.testing.assert_array_equal(as_array(one), as_array(two))
    assert (
        (get_keras_mask(one) is None)
        == (get_keras_mask(two) is None)
        == (name != "masked")
    )
    vectors = np.random.default_rng(0).normal(size=shape).astype("float32")
    one, two = (x(vectors, reverse=True) for x in (ours, theirs))
    assert one.dtype == two.dtype and one.shape == two.shape == (*shape[:-1], 9)
    one, two = (as_array(ops.cast(x, "float32")) for x in (one, two))
    half = "dtype" in str(OPTIONS[name])
    np.testing.assert_allclose(one, two, atol=2e-2 if half else 1e-5)


@pytest.mark.full
def test_it_is_quantized_as_keras_quantizes():
    ours, theirs = pair({})
    vectors = np.random.default_rng(0).normal(size=(2, 3, 4)).astype("float32")
    for layer in (ours, theirs):
        layer.quantize("int8")
    one, two = (as_array(x(vectors, reverse=True)) for x in (ours, theirs))
    np.testing.assert_allclose(one, two, atol=1e-5)

    class Derived(keras_attn.TiedEmbedding):
        pass

    derived = Derived(9, 4)
    derived.build()
    with pytest.raises(NotImplementedError):
        derived.quantize("int8")


@pytest.mark.parametrize("lora", [False, True])
def test_it_is_saved_with_a_model(lora, tmp_path):
    ours, _ = pair({})
    if lora:
        ours.enable_lora(2)
    ids = keras.Input((None,), dtype="int32")
    model = keras.Model(ids, ours(ours(ids), reverse=True))
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert type(again.layers[-1]) is keras_attn.TiedEmbedding
    expected, found = (as_array(x(IDS)) for x in (model, again))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="TensorFlow's operations"
)
def test_no_operation_makes_a_copy_of_the_matrix():
    import tensorflow as tf

    ours, theirs = pair({})
    sizes = []
    for layer in (ours, theirs):
        graph = (
            tf.function(lambda x, layer=layer: layer(x, reverse=True))
            .get_concrete_function(tf.TensorSpec((None, None, 4)))
            .graph
        )
        shapes = [y.shape for x in graph.get_operations() for y in x.outputs]
        sizes.append([tuple(x) for x in shapes if x.rank == 2])
    assert (4, 9) not in sizes[0] and (4, 9) in sizes[1]
