import keras
import numpy as np
import pytest
from keras import ops

import keras_attn

METRICS = [
    keras_attn.TokenAccuracy,
    keras_attn.Perplexity,
    keras_attn.SequenceAccuracy,
]


def draw(rows, length, size=7, seed=0):
    """Rows of ids with padding, and logits that are often right."""
    random = np.random.default_rng(seed)
    ids = random.integers(1, size, (rows, length))
    ids[np.arange(length) >= random.integers(1, length + 1, (rows, 1))] = 0
    logits = random.normal(size=(rows, length, size)).astype("float32")
    return ids, logits + 2 * np.eye(size, dtype="float32")[ids]


def measured(metric, *batches):
    for batch in batches:
        metric.update_state(*batch)
    return float(metric.result())


def tokens(ids, logits):
    """Real tokens of all rows in one row, as if there were no padding."""
    return ids[ids != 0], logits[ids != 0]


def test_tokens_are_counted_by_hand():
    ids = np.array([[3, 2, 1, 0], [1, 0, 0, 0], [2, 2, 0, 0]])
    found = np.array([[3, 2, 2, 0], [1, 3, 3, 3], [2, 2, 1, 1]])
    logits = np.log(1.0 + 2.0 * np.eye(4)[found])  # 3/6, and 1/6 for others
    assert measured(keras_attn.TokenAccuracy(), (ids, logits)) == (
        pytest.approx(5 / 6)
    )
    assert measured(keras_attn.SequenceAccuracy(), (ids, logits)) == (
        pytest.approx(2 / 3)
    )
    mean = -(5 * np.log(3 / 6) + np.log(1 / 6)) / 6
    assert measured(keras_attn.Perplexity(), (ids, logits)) == (
        pytest.approx(np.exp(mean), rel=1e-6)
    )


def test_they_are_keras_s_own_metrics_of_rows_without_padding():
    ids, logits = draw(20, 9)
    accuracy = keras.metrics.SparseCategoricalAccuracy()
    crossentropy = keras.metrics.SparseCategoricalCrossentropy(from_logits=True)
    expected = measured(accuracy, tokens(ids, logits))
    found = measured(keras_attn.TokenAccuracy(), (ids, logits))
    assert 0.2 < found < 0.95 and found == pytest.approx(expected, rel=1e-6)
    expected = np.exp(measured(crossentropy, tokens(ids, logits)))
    found = measured(keras_attn.Perplexity(), (ids, logits))
    assert found == pytest.approx(expected, rel=1e-5)


@pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="KerasHub reads text by it"
)
def test_the_perplexity_is_that_of_keras_hub():
    hub = pytest.importorskip("keras_hub")
    batches = draw(8, 5), draw(3, 9, seed=1)
    theirs = hub.metrics.Perplexity(from_logits=True, mask_token_id=0)
    assert measured(keras_attn.Perplexity(), *batches) == pytest.approx(
        measured(theirs, *batches), rel=1e-5
    )


@pytest.mark.parametrize("kind", METRICS)
def test_neither_batches_nor_padding_change_the_result(kind):
    ids, logits = draw(12, 6)
    whole = measured(kind(), (ids, logits))
    apart = measured(
        kind(), *((ids[i : i + 5], logits[i : i + 5]) for i in range(0, 12, 5))
    )
    assert apart == pytest.approx(whole, rel=1e-6)
    more = np.pad(ids, [(0, 2), (0, 3)])
    wide = np.pad(logits, [(0, 2), (0, 3), (0, 0)], constant_values=np.nan)
    assert measured(kind(), (more, wide)) == pytest.approx(whole, rel=1e-6)


@pytest.mark.parametrize("kind", METRICS)
def test_a_row_of_weight_two_counts_as_two_rows(kind):
    ids, logits = draw(5, 6)
    twice = [0, 1, 1, 3]
    weights = np.array([1.0, 2.0, 0.0, 1.0, 0.0])
    expected = measured(kind(), (ids[twice], logits[twice]))
    for weight in (weights, weights[:, None], np.tile(weights[:, None], 6)):
        found = measured(kind(), (ids, logits, weight))
        assert found == pytest.approx(expected, rel=1e-6)


def test_a_token_of_weight_zero_makes_no_row_wrong():
    ids, weight = np.array([[1, 2], [2, 1]]), np.array([[1.0, 0.0], [1.0, 1.0]])
    logits = np.eye(3)[[[1, 1], [2, 2]]]
    accuracy = keras_attn.SequenceAccuracy()
    assert measured(accuracy, (ids, logits, weight)) == 0.5


def test_tokens_weigh_as_they_should():
    ids, weight = np.array([[1, 2, 0]]), np.array([[3.0, 1.0, 100.0]])
    logits = np.eye(3)[[[1, 1, 0]]]
    accuracy = keras_attn.TokenAccuracy()
    assert measured(accuracy, (ids, logits, weight)) == 0.75
    of_keras = keras.metrics.SparseCategoricalAccuracy()
    of_keras.update_state([1, 2], logits[0, :2], [3.0, 1.0])
    assert float(of_keras.result()) == 0.75


@pytest.mark.parametrize("kind", METRICS)
def test_without_tokens_there_is_a_number(kind):
    nothing = np.zeros((2, 3), int), np.full((2, 3, 4), np.nan)
    expected = 1.0 if kind is keras_attn.Perplexity else 0.0
    assert measured(kind(), nothing) == expected
    assert measured(kind(), (nothing[0][:0], nothing[1][:0])) == expected


@pytest.mark.parametrize("kind", METRICS)
def test_the_state_is_reset(kind):
    metric = kind()
    first = measured(metric, draw(4, 5))
    metric.reset_state()
    assert measured(metric, draw(4, 5)) == first


def test_another_id_may_be_padding():
    ids = np.array([[0, 1, 9, 9]])
    logits = np.eye(10)[[[0, 2, 9, 9]]]
    for kind in keras_attn.TokenAccuracy, keras_attn.SequenceAccuracy:
        found = measured(kind(padding_id=9), (ids, logits))
        assert found == (0.5 if kind is keras_attn.TokenAccuracy else 0.0)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sums_are_in_float32(dtype):
    ids = np.full((700, 100), 3)  # more tokens than float16 counts
    logits = ops.zeros((700, 100, 8), dtype=dtype)
    assert measured(keras_attn.Perplexity(), (ids, logits)) == pytest.approx(
        8, rel=1e-3
    )


@pytest.mark.parametrize("kind", METRICS)
def test_the_configuration_survives_a_round_trip(kind):
    metric = kind(name="mine", padding_id=3)
    again = keras.saving.deserialize_keras_object(
        keras.saving.serialize_keras_object(metric)
    )
    assert type(again) is kind and again.name == "mine"
    assert measured(again, draw(4, 5)) == measured(metric, draw(4, 5))


@pytest.mark.parametrize(
    "true_shape, pred_shape", [((2, 3), (2, 4, 5)), ((2, 3, 5), (2, 3, 5))]
)
def test_shapes_that_do_not_fit_are_refused(true_shape, pred_shape):
    with pytest.raises(
        ValueError, match="^TokenAccuracy compares ids of shape"
    ):
        keras_attn.TokenAccuracy().update_state(
            np.ones(true_shape, int), np.ones(pred_shape)
        )
    with pytest.raises(ValueError, match="weighs rows or tokens"):
        keras_attn.Perplexity().update_state(
            np.ones((2, 3), int), np.ones((2, 3, 5)), np.ones((2, 3, 1))
        )


@pytest.mark.filterwarnings("ignore:__array__ implementation")
def test_fit_and_evaluate_log_them_also_after_loading(tmp_path):
    inputs = keras.Input((None,), dtype="int32")
    embedded = keras.layers.Embedding(7, 4, mask_zero=True)(inputs)
    model = keras.Model(inputs, keras.layers.Dense(7)(embedded))
    model.compile(
        "sgd",
        loss=keras_attn.SequenceCrossentropy(),
        metrics=[kind() for kind in METRICS],
        weighted_metrics=[keras_attn.TokenAccuracy(name="weighted")],
        jit_compile=False,
    )
    ids, _ = draw(10, 6)
    weight = np.arange(10.0)
    logs = model.fit(
        ids, ids, batch_size=4, sample_weight=weight, verbose=0
    ).history
    assert {"perplexity", "token_accuracy", "sequence_accuracy"} < set(logs)
    found = model.evaluate(
        ids, ids, sample_weight=weight, verbose=0, return_dict=True
    )
    logits = model.predict(ids, verbose=0)
    for kind in METRICS:
        expected = measured(kind(), (ids, logits))
        name = kind().name
        assert found[name] == pytest.approx(expected, rel=1e-5), name
    expected = measured(keras_attn.TokenAccuracy(), (ids, logits, weight))
    assert found["weighted"] == pytest.approx(expected, rel=1e-5)
    assert np.log(found["perplexity"]) == pytest.approx(
        float(keras_attn.SequenceCrossentropy()(ids, logits)), rel=1e-5
    )
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert again.evaluate(
        ids, ids, sample_weight=weight, verbose=0, return_dict=True
    ) == pytest.approx(found, rel=1e-6)


def test_keras_s_accuracy_also_counts_padding():
    # The finding that made these metrics.
    ids = np.array([[1, 0, 0, 0], [1, 2, 3, 1]])
    logits = np.eye(4)[[[1, 1, 1, 1], [2, 1, 1, 2]]]
    ours = measured(keras_attn.TokenAccuracy(), (ids, logits))
    theirs = measured(keras.metrics.SparseCategoricalAccuracy(), (ids, logits))
    assert ours == pytest.approx(1 / 5) and theirs == pytest.approx(1 / 8)
