import os
import subprocess
import sys

import keras
import numpy as np
import pytest
from keras import ops

import keras_attn
from keras_attn.training.losses import SequenceCrossentropy

# Logits of ln 1, ln 2 and ln 5 are the probabilities 1/8, 2/8 and 5/8.
LOGITS = np.log([1.0, 2.0, 5.0]).astype("float32")


def repeat(logits, batch, target):
    return np.tile(logits, (batch, target, 1))


def test_the_loss_is_the_mean_over_real_tokens_worked_out_by_hand():
    targets = np.array([[2, 1, 0, 0], [1, 0, 0, 0]])
    loss = SequenceCrossentropy()(targets, repeat(LOGITS, 2, 4))
    expected = -(np.log(5 / 8) + np.log(2 / 8) + np.log(2 / 8)) / 3
    np.testing.assert_allclose(loss, expected, rtol=1e-6)


def test_the_loss_per_row_divides_by_the_rows_that_have_tokens():
    targets = np.array([[2, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0]])
    loss = SequenceCrossentropy(per="row")
    expected = -(np.log(5 / 8) + np.log(2 / 8) + np.log(2 / 8)) / 2
    found = loss(targets, repeat(LOGITS, 3, 4))
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert float(loss(targets[2:], repeat(LOGITS, 1, 4))) == 0.0
    assert float(loss(np.zeros((2, 0), int), np.zeros((2, 0, 5)))) == 0.0


def test_another_divisor_is_refused():
    with pytest.raises(ValueError, match="'token' or 'row'. Received: per="):
        SequenceCrossentropy(per="batch")


def test_smoothing_mixes_in_the_uniform_distribution_as_keras_does():
    targets = np.array([[2, 1, 0]])
    loss = SequenceCrossentropy(label_smoothing=0.3)
    probabilities = np.array([1 / 8, 2 / 8, 5 / 8])
    uniform = -np.log(probabilities).mean()
    expected = 0.7 * -np.log(probabilities[[2, 1]]) + 0.3 * uniform
    np.testing.assert_allclose(
        loss.call(targets, repeat(LOGITS, 1, 3)),
        [[*expected, 0.0]],
        rtol=1e-6,
    )
    of_keras = keras.losses.categorical_crossentropy(
        np.eye(3, dtype="float32")[targets[:, :2]],
        repeat(LOGITS, 1, 2),
        from_logits=True,
        label_smoothing=0.3,
    )
    np.testing.assert_allclose([expected], of_keras, rtol=1e-6)


def test_padding_may_hold_anything():
    targets = np.array([[2, 0]])
    logits = repeat(LOGITS, 1, 2)
    expected = float(SequenceCrossentropy()(targets, logits))
    logits[0, 1] = np.nan
    assert float(SequenceCrossentropy()(targets, logits)) == expected


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
def test_a_batch_of_padding_has_loss_zero_and_not_nan(label_smoothing):
    loss = SequenceCrossentropy(label_smoothing)
    assert float(loss(np.zeros((2, 3), int), repeat(LOGITS, 2, 3))) == 0.0


def test_an_empty_batch_has_loss_zero():
    loss = SequenceCrossentropy()
    assert float(loss(np.zeros((0, 3), int), np.zeros((0, 3, 5)))) == 0.0


def test_more_padding_changes_nothing():
    loss = SequenceCrossentropy()
    short = loss(np.array([[2, 1]]), repeat(LOGITS, 1, 2))
    padded = loss(np.array([[2, 1, 0, 0, 0]]), repeat(LOGITS, 1, 5))
    np.testing.assert_allclose(short, padded, rtol=1e-6)


def test_row_weights_multiply_and_the_divisor_stays():
    targets = np.array([[2, 1], [1, 0]])
    loss, logits = SequenceCrossentropy(), repeat(LOGITS, 2, 2)
    expected = -(np.log(5 / 8) + np.log(2 / 8)) / 3
    for weight in ([1.0, 0.0], [[1.0], [0.0]], [[1.0, 1.0], [0.0, 0.0]]):
        np.testing.assert_allclose(
            loss(targets, logits, sample_weight=np.array(weight)),
            expected,
            rtol=1e-6,
        )


def test_token_weights_count_for_their_tokens_only():
    targets = np.array([[2, 1, 0]])
    loss = SequenceCrossentropy()(
        targets,
        repeat(LOGITS, 1, 3),
        sample_weight=np.array([[0.0, 3.0, 100.0]]),
    )
    np.testing.assert_allclose(loss, -3 * np.log(2 / 8) / 2, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_logits_are_summed_in_float32(dtype):
    # 70,000 tokens of loss ln 8 exceed the range of float16.
    targets = np.full((700, 100), 3)
    logits = ops.zeros((700, 100, 8), dtype=dtype)
    loss = SequenceCrossentropy()(targets, logits)
    assert keras.backend.standardize_dtype(loss.dtype) == "float32"
    np.testing.assert_allclose(loss, np.log(8), rtol=1e-4)


def test_a_mask_on_the_predictions_is_not_applied_again():
    # The mask of the decoder's inputs is one token short of the targets' here:
    # Keras would drop that token and divide by the wrong number.
    inputs = keras.Input((None,), dtype="int32")
    embedded = keras.layers.Embedding(5, 4, mask_zero=True)(inputs)
    model = keras.Model(inputs, keras.layers.Dense(5)(embedded))
    model.compile("sgd", loss=SequenceCrossentropy(), jit_compile=False)
    decoder_inputs = np.array([[1, 2, 0, 0], [3, 0, 0, 0]])
    targets = np.array([[2, 3, 4, 0], [4, 0, 0, 0]])
    logits = model.predict(decoder_inputs, verbose=0).astype("float64")
    logits -= np.log(np.exp(logits).sum(-1, keepdims=True))
    expected = -np.mean(
        [logits[0, 0, 2], logits[0, 1, 3], logits[0, 2, 4], logits[1, 0, 4]]
    )
    found = model.evaluate(decoder_inputs, targets, verbose=0)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.sample_cases(1)
@pytest.mark.parametrize("mode", ["eagerly", "compiled", "XLA"])
def test_a_model_learns_with_it(mode):
    keras.utils.set_random_seed(1)
    inputs = keras.Input((None,), dtype="int32")
    embedded = keras.layers.Embedding(6, 8, mask_zero=True)(inputs)
    model = keras.Model(inputs, keras.layers.Dense(6)(embedded))
    model.compile(
        keras.optimizers.Adam(0.1),
        loss=SequenceCrossentropy(label_smoothing=0.01),
        run_eagerly=mode == "eagerly",
        jit_compile=mode == "XLA",
    )
    ids = np.array([[1, 2, 3, 0], [4, 5, 0, 0]])
    weight = np.array([1.0, 0.5])
    history = model.fit(ids, ids, 2, 20, sample_weight=weight, verbose=0)
    assert history.history["loss"][-1] < 0.25 < history.history["loss"][0]


def test_the_configuration_survives_a_round_trip():
    loss = SequenceCrossentropy(label_smoothing=0.2, name="nats", per="row")
    again = keras.saving.deserialize_keras_object(
        keras.saving.serialize_keras_object(loss)
    )
    assert again.name == "nats"
    targets, logits = np.array([[2, 1]]), repeat(LOGITS, 1, 2)
    assert float(again(targets, logits)) == float(loss(targets, logits))


# Keras 3.15 reads variables in a way that NumPy 2 deprecates.
@pytest.mark.filterwarnings("ignore:__array__ implementation")
def test_a_compiled_model_is_reloaded_with_its_loss(tmp_path):
    inputs = keras.Input((None,), dtype="int32")
    model = keras.Model(inputs, keras.layers.Embedding(6, 6)(inputs))
    model.compile(
        "sgd", loss=SequenceCrossentropy(label_smoothing=0.2), jit_compile=False
    )
    ids = np.array([[1, 2, 3, 0]])
    expected = model.evaluate(ids, ids, verbose=0)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert again.evaluate(ids, ids, verbose=0) == expected


@pytest.mark.full
@pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="tf.distribute"
)
def test_replicas_share_the_loss_out():
    program = """
import numpy as np, tensorflow as tf
cpus = tf.config.list_physical_devices("CPU")
two = [tf.config.LogicalDeviceConfiguration()] * 2
tf.config.set_logical_device_configuration(cpus[0], two)
import keras_attn
from keras_attn.training.losses import SequenceCrossentropy
loss, logits = SequenceCrossentropy(), np.zeros((1, 2, 8), "float32")
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
total = strategy.reduce(
    "SUM", strategy.run(lambda: loss(np.array([[3, 0]]), logits)), None
)
np.testing.assert_allclose(total, np.log(8), rtol=1e-6)
"""
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.full
def test_other_backends_agree():
    pytest.importorskip("jax")
    program = """
import keras, numpy as np
import keras_attn
from keras_attn.training.losses import SequenceCrossentropy
assert keras.backend.backend() == "jax"
targets = np.array([[2, 1, 0, 0], [1, 0, 0, 0]])
logits = np.tile(np.log([1.0, 2.0, 5.0]), (2, 4, 1))
print(float(SequenceCrossentropy(label_smoothing=0.1)(targets, logits)))
"""
    printed = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"KERAS_BACKEND": "jax"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    targets = np.array([[2, 1, 0, 0], [1, 0, 0, 0]])
    here = SequenceCrossentropy(label_smoothing=0.1)
    np.testing.assert_allclose(
        float(printed), here(targets, repeat(LOGITS, 2, 4)), rtol=1e-6
    )


@pytest.mark.parametrize("label_smoothing", [-0.1, 1.0])
def test_smoothing_out_of_range_is_refused(label_smoothing):
    with pytest.raises(ValueError, match=r"must be in \[0, 1\). Received"):
        SequenceCrossentropy(label_smoothing)


@pytest.mark.parametrize(
    "true_shape, pred_shape",
    [((2, 3), (2, 4, 5)), ((2,), (2, 5)), ((2, 3, 5), (2, 3, 5))],
)
def test_shapes_that_do_not_fit_are_refused(true_shape, pred_shape):
    with pytest.raises(ValueError, match="moved by one token"):
        SequenceCrossentropy()(np.ones(true_shape, int), np.ones(pred_shape))


def test_weights_of_another_rank_are_refused():
    with pytest.raises(ValueError, match=r"\(batch,\) or \(batch, target\)"):
        SequenceCrossentropy()(
            np.ones((2, 3), int), np.ones((2, 3, 5)), np.ones((2, 3, 1))
        )


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
def test_probabilities_have_the_loss_of_their_logits(label_smoothing):
    random = np.random.default_rng(0)
    ids = np.array([[3, 2, 0], [1, 4, 2]])
    logits = random.normal(size=(2, 3, 5)).astype("float32")
    options = {"label_smoothing": label_smoothing}
    loss = SequenceCrossentropy(from_logits=False, **options)
    found = loss(ids, keras.ops.softmax(logits))
    expected = SequenceCrossentropy(**options)(ids, logits)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    again = SequenceCrossentropy.from_config(loss.get_config())
    assert again.from_logits is False
    impossible = np.eye(5, dtype="float32")[ids]
    assert np.isfinite(float(loss(ids[:, ::-1], impossible)))
    perplexity = keras_attn.Perplexity(from_logits=False)
    perplexity.update_state(ids, keras.ops.softmax(logits))
    plain = keras_attn.Perplexity()
    plain.update_state(ids, logits)
    np.testing.assert_allclose(perplexity.result(), plain.result(), rtol=1e-5)
    assert perplexity.get_config()["from_logits"] is False


def test_from_logits_is_true_or_false():
    with pytest.raises(ValueError, match="`from_logits` must be True or False"):
        SequenceCrossentropy(from_logits="no")
