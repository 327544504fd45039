"""Exports whose weights are stored in fewer bits."""

import numpy as np
import pytest
import tensorflow as tf
from support import toys as toy_models

from keras_attn.export.tf_saved_model.weights import StoredWeights

DTYPES = {
    "float32": tf.float32,
    "bfloat16": tf.bfloat16,
    "int8": tf.int8,
}


@pytest.fixture(scope="module")
def exports(toys, tmp_path_factory):
    """`{weights: path}` of one model."""
    folder = tmp_path_factory.mktemp("weights")
    return {
        weights: toys["greedy"].export(
            folder, signatures=["score", "step"], weights=weights
        )
        for weights in DTYPES
    }


@pytest.mark.full
@pytest.mark.parametrize("weights", DTYPES)
def test_matrices_are_stored_once_and_small(toys, exports, weights):
    path = str(exports[weights] / "variables" / "variables")
    reader = tf.train.load_checkpoint(path)
    shapes = reader.get_variable_to_shape_map()
    dtypes = reader.get_variable_to_dtype_map()
    stored = sorted(
        tuple(shapes[name])
        for name, dtype in dtypes.items()
        if dtype == DTYPES[weights] and len(shapes[name]) > 1
    )
    model = toys["greedy"].model
    matrices = [tuple(x.shape) for x in model.variables if len(x.shape) > 1]
    assert stored == sorted(matrices)
    others = sum(
        int(np.prod(shapes[name]))
        for name, dtype in dtypes.items()
        if dtype == tf.float32 and dtype != DTYPES[weights]
    )
    columns = sum(shape[-1] for shape in matrices)
    vectors = sum(
        int(np.prod(x.shape)) for x in model.variables if len(x.shape) < 2
    )
    if weights == "int8":
        assert others <= columns + vectors
    elif weights == "bfloat16":
        assert others <= vectors


@pytest.mark.full
@pytest.mark.parametrize("weights, near", [("bfloat16", 0.05), ("int8", 0.1)])
def test_answers_stay_near(exports, weights, near):
    texts, targets = tf.constant(["abc", "dead"]), tf.constant(["B K", "D"])

    def scores(path):
        signature = tf.saved_model.load(str(path)).signatures["score"]
        return signature(text=texts, target=targets)["score"].numpy()

    exact, stored = scores(exports["float32"]), scores(exports[weights])
    assert not np.array_equal(exact, stored)
    np.testing.assert_allclose(stored, exact, rtol=near)


@pytest.mark.full
def test_search_and_steps_compute_with_the_same_weights(exports):
    """Compares greedy search in the export with a client's loop of steps."""
    loaded = tf.saved_model.load(str(exports["int8"])).signatures
    text = tf.constant(toy_models.LINES)
    given = loaded["encode"](text=text)
    names = set(loaded["step"].structured_input_signature[1])
    state = {name: given[name] for name in names}
    ids = []
    for _ in range(10):
        out = loaded["step"](**state)
        token = tf.argmax(out["log_probabilities"], -1, output_type=tf.int32)
        ids.append(token)
        state |= {name: out[name] for name in names & set(out)}
        state["tokens"] = token
    lengths = tf.fill([len(toy_models.LINES)], len(ids))
    written = loaded["strings"](ids=tf.concat(ids, axis=1), lengths=lengths)
    found = written["text"]
    wanted = loaded["serving_default"](text=text)["text"]
    assert found.numpy().tolist() == wanted.numpy().tolist()


def test_integers_are_exact_to_half_a_step(toys):
    model = toys["greedy"].model
    with StoredWeights([model], "int8").scope():
        stored = [np.array(x.value) for x in model.variables]
    exact = [np.array(x.value) for x in model.variables]
    for before, after in zip(exact, stored, strict=True):
        if before.ndim < 2:
            np.testing.assert_array_equal(after, before)
            continue
        axes = tuple(range(before.ndim - 1))
        step = np.abs(before).max(axes) / 127
        assert (np.abs(after - before) <= 0.5001 * step).all()
        assert np.abs(after - before).max() > 0


def test_a_column_of_zeros_stays_zero():
    import keras

    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.layers[0].kernel.assign([[0, 1], [0, 2], [0, -127]])
    with StoredWeights([model], "int8").scope():
        found = np.array(model.layers[0].kernel.value)
    np.testing.assert_array_equal(found, [[0, 1], [0, 2], [0, -127]])


@pytest.mark.full
def test_an_unknown_kind_is_refused(toys, tmp_path):
    with pytest.raises(ValueError, match="weights='int4'"):
        toys["greedy"].export(tmp_path, weights="int4")
    assert not list(tmp_path.iterdir())
