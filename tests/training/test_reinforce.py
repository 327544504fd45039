"""REINFORCE: the estimator's mean is the gradient, and models learn."""

import itertools

import keras
import numpy as np
import pytest
from keras import layers

from keras_attn import Attention
from keras_attn import DotScore
from keras_attn import ReinforceAlignment
from keras_attn import ReinforceModel
from keras_attn import SequenceCrossentropy

E = np.array([[0.3, -0.5], [-0.2, 0.4]])  # scores: two queries, two positions
K = np.array([[1.0, -0.7, 0.2], [-0.4, 0.6, 1.1]])  # logits by position
Y = [1, 2]  # the targets of the two queries


def toy(soft_share=0.0, **options):
    """Looks at position 0 or 1 by the scores `E`, then answers `K`'s row."""
    ids = keras.Input((None,), dtype="int32")
    positions = keras.Input((2, 2))
    query = layers.Embedding(2, 2, name="scores")(ids)
    context, *evidence = Attention(
        DotScore(), ReinforceAlignment(soft_share, seed=1)
    )(query, positions, return_samples=True)
    logits = layers.Dense(3, use_bias=False, name="logits")(context)
    model = ReinforceModel([ids, positions], [logits, *evidence], **options)
    model.get_layer("scores").set_weights([E])
    model.get_layer("logits").set_weights([K])
    model.compile(
        keras.optimizers.SGD(0.5), SequenceCrossentropy(), jit_compile=False
    )
    return model


def batch(rows, target=(0, 1), y=Y):
    one = np.eye(2, dtype="float32")
    inputs = [np.tile(target, (rows, 1)), np.tile(one, (rows, 1, 1))]
    return inputs, np.tile(np.array(y, "int32"), (rows, 1))


def softmax(x):
    return np.exp(x) / np.exp(x).sum(-1, keepdims=True)


def objective(scores, logits, entropy_weight):
    """The loss per token that REINFORCE estimates, exactly."""
    p, answers = softmax(scores), np.log(softmax(logits))
    expected = sum(
        p[0, i] * p[1, j] * (answers[i, Y[0]] + answers[j, Y[1]])
        for i, j in itertools.product(range(2), repeat=2)
    )
    entropy = -(p * np.log(p)).sum()
    return -(expected + entropy_weight * entropy) / 2


def differences(function, x):
    found = np.zeros_like(x)
    for index in np.ndindex(x.shape):
        moved = np.zeros_like(x)
        moved[index] = 1e-5
        found[index] = (function(x + moved) - function(x - moved)) / 2e-5
    return found


def one_step(model, inputs, y, baseline):
    """The gradients, as a step of plain SGD on one batch shows them."""
    model.get_layer("scores").set_weights([E])
    model.get_layer("logits").set_weights([K])
    model.baseline.assign(baseline)
    model.train_on_batch(inputs, y)
    names = {"scores": E, "logits": K}
    return [
        before - model.get_layer(name).get_weights()[0]
        for name, before in names.items()
    ]


@pytest.mark.parametrize("baseline", [0.0, -2.3])
def test_the_estimator_is_the_gradient_of_the_expected_likelihood(baseline):
    model = toy(entropy_weight=0.2)
    model.compile(
        keras.optimizers.SGD(1.0), SequenceCrossentropy(), jit_compile=False
    )
    of_scores, of_logits = one_step(model, *batch(200_000), baseline)
    # The mean of so many draws is off by 1 / 450 of a draw's deviation,
    # which is less than 1.
    np.testing.assert_allclose(
        of_scores, differences(lambda x: objective(x, K, 0.2), E), atol=4e-3
    )
    np.testing.assert_allclose(
        of_logits, differences(lambda x: objective(E, x, 0.2), K), atol=4e-3
    )


def test_a_loss_per_row_divides_the_estimator_too():
    # Three rows: one of two tokens, one of one, and one of padding only.
    inputs, _ = batch(3)
    y = np.array([[1, 2], [2, 0], [0, 0]], "int32")
    made = [
        np.tile(K, (3, 1, 1)).astype("float32"),
        np.full((3, 2), -0.7, "float32"),
        np.full((3, 2), 0.5, "float32"),
    ]
    losses = []
    for loss in (
        SequenceCrossentropy(),
        SequenceCrossentropy(per="row"),
        [SequenceCrossentropy(per="row")],
    ):
        model = toy()
        model.compile("sgd", loss, jit_compile=False)
        losses.append(float(model.compute_loss(inputs, y, made)))
    per_token, *per_row = losses
    np.testing.assert_allclose(per_row, per_token * 3 / 2, rtol=1e-6)


def test_the_baseline_makes_the_estimates_vary_less():
    model = toy(entropy_weight=0.0)
    model.compile(
        keras.optimizers.SGD(1.0), SequenceCrossentropy(), jit_compile=False
    )

    def deviation(baseline):
        found = [one_step(model, *batch(1), baseline)[0] for _ in range(200)]
        return np.std(found, axis=0).mean()

    mean = -2 * objective(E, K, 0.0)
    assert deviation(mean) < 0.5 * deviation(0.0)


def test_the_loss_is_that_worked_out_by_hand():
    # It looked at position 0, then at 1.
    model = toy(reward_weight=3.0, entropy_weight=0.0)
    inputs, y = batch(1)
    made = [K[None].astype("float32"), [[-0.3, -0.6]], [[0.5, 0.5]]]
    likelihood = np.log(softmax(K))[[0, 1], Y].sum()
    model.baseline.assign(-1.0)
    loss = model.compute_loss(inputs, y, [np.array(x) for x in made])
    expected = -likelihood - 3.0 * (likelihood + 1) * -0.9
    np.testing.assert_allclose(float(loss), expected / 2, rtol=1e-5)
    np.testing.assert_allclose(
        float(model.baseline), 0.9 * -1 + 0.1 * likelihood, rtol=1e-5
    )


def test_padding_earns_nothing():
    model = toy(entropy_weight=0.5)
    inputs, y = batch(1)
    made = [np.array([K[[0, 1]]], "float32")]
    made += [np.array([[-0.3, -0.6]], "float32")] * 2
    expected = float(model.compute_loss(inputs, y, made))
    b = float(model.baseline)
    model.baseline.assign(0.0)
    padded = [np.concatenate([x, 9 + 0 * x], axis=1) for x in made]
    loss = model.compute_loss(inputs, np.array([[*Y, 0, 0]]), padded)
    np.testing.assert_allclose(float(loss), expected, rtol=1e-6)
    np.testing.assert_allclose(float(model.baseline), b, rtol=1e-6)
    nothing = model.compute_loss(inputs, np.zeros((1, 4), "int32"), padded)
    assert float(nothing) == 0


def test_evaluation_is_the_compiled_loss_alone():
    model = toy()
    inputs, y = batch(3)
    model.baseline.assign(-1.5)
    found = model.evaluate(inputs, y, verbose=0)
    # The best positions are 0 and 1.
    expected = -np.log(softmax(K))[[0, 1], Y].mean()
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert float(model.baseline) == -1.5


@pytest.mark.full
@pytest.mark.parametrize("jit_compile", [False, True])
def test_a_model_learns_where_to_look(jit_compile):
    model = toy()
    model.get_layer("scores").set_weights([0 * E])
    # The answers are fixed, so the model only learns their positions.
    model.get_layer("logits").trainable = False
    sure = 4 * np.eye(2, 3, k=1)  # position 0 says 1, position 1 says 2
    model.get_layer("logits").set_weights([sure])
    model.compile(
        keras.optimizers.Adam(0.05),
        SequenceCrossentropy(),
        metrics=["sparse_categorical_accuracy"],
        jit_compile=jit_compile,
    )
    inputs, y = batch(64)
    history = model.fit(
        inputs,
        y,
        batch_size=16,
        epochs=30,
        verbose=0,
        validation_data=(inputs, y),
    ).history
    assert history["val_sparse_categorical_accuracy"][-1] == 1
    scores = model.get_layer("scores").get_weights()[0]
    p = softmax(scores)
    assert p[0, 0] > 0.9 and p[1, 1] > 0.9
    # The baseline has moved towards the likelihood of both tokens.
    assert -1.5 < float(model.baseline) < -0.01


@pytest.mark.full
def test_what_is_soft_learns_by_its_own_gradient():
    model = toy(soft_share=1.0, reward_weight=0.0, entropy_weight=0.0)
    model.get_layer("logits").trainable = False
    model.get_layer("logits").set_weights([4 * np.eye(2, 3, k=1)])
    model.compile(
        keras.optimizers.Adam(0.05), SequenceCrossentropy(), jit_compile=False
    )
    inputs, y = batch(16)
    model.fit(inputs, y, epochs=60, verbose=0)
    p = softmax(model.get_layer("scores").get_weights()[0])
    assert p[0, 0] > 0.8 and p[1, 1] > 0.8


def test_a_model_saves_and_loads(tmp_path):
    model = toy(reward_weight=0.5, entropy_weight=0.1, decay=0.8)
    inputs, y = batch(4)
    model.fit(inputs, y, verbose=0)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert type(again) is ReinforceModel and again.name == model.name
    assert (again.reward_weight, again.entropy_weight, again.decay) == (
        0.5,
        0.1,
        0.8,
    )
    assert float(again.baseline) == float(model.baseline) != 0
    for new, old in zip(
        again.predict(inputs, verbose=0),
        model.predict(inputs, verbose=0),
        strict=True,
    ):
        np.testing.assert_allclose(new, old, rtol=1e-6)
    np.testing.assert_allclose(
        again.evaluate(inputs, y, verbose=0),
        model.evaluate(inputs, y, verbose=0),
        rtol=1e-6,
    )
    again.fit(inputs, y, verbose=0)


def test_the_logits_alone_are_a_model_that_shares_the_weights():
    model = toy()
    decoding = keras.Model(model.inputs, model.outputs[0])
    inputs, y = batch(2)
    model.fit(inputs, y, verbose=0)
    np.testing.assert_allclose(
        decoding.predict(inputs, verbose=0),
        model.predict(inputs, verbose=0)[0],
    )


def test_sample_weights_are_refused():
    model = toy()
    inputs, y = batch(2)
    with pytest.raises(ValueError, match="takes no sample weights"):
        model.fit(inputs, y, sample_weight=np.ones(2), verbose=0)


def test_outputs_must_be_logits_and_evidence():
    model = toy()
    logits, log_probability, _ = model.outputs
    for outputs in ([logits], [log_probability, logits, logits], logits):
        with pytest.raises(ValueError, match="`return_samples=True`"):
            ReinforceModel(model.inputs, outputs)


@pytest.mark.parametrize(
    "options",
    [{"reward_weight": -1.0}, {"entropy_weight": -0.1}, {"decay": 1.0}],
)
def test_weights_and_decay_keep_to_their_bounds(options):
    with pytest.raises(ValueError, match=f"{next(iter(options))}="):
        toy(**options)
