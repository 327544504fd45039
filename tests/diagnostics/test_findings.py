"""`check()` takes functional models, and changes nothing in them.

It says all that is wrong at once. These tests run on every backend that Keras
runs on.
"""

import keras
import numpy as np
import pytest
from keras import layers
from keras import ops
from support.cuts import TARGETS
from support.cuts import decoder
from support.cuts import embedded
from support.cuts import inputs
from support.findings import DROPPED_MASKS
from support.findings import IDS
from support.findings import NAMED
from support.findings import SOURCE_IDS
from support.findings import WHOLE
from support.findings import Ahead
from support.findings import arrays
from support.findings import assert_good
from support.findings import assert_wrong
from support.findings import attend
from support.findings import changed
from support.findings import look
from support.findings import on_target

import keras_attn

pytestmark = DROPPED_MASKS


def test_a_target_that_is_not_the_last_input_is_found():
    source, target = inputs()
    memory, x = embedded(source, target)
    logits = layers.Dense(TARGETS)(attend(x, memory))
    model = keras.Model([target, source], logits)
    said = "as long as 'target'", "Make the target the last"
    assert_wrong(model, "inputs", *said)


def test_the_first_of_several_outputs_is_looked_at():
    source, target = inputs()
    memory, x = embedded(source, target)
    hidden = attend(x, memory)
    logits = layers.Dense(TARGETS, name="logits")(hidden)
    other = layers.Dense(3, "softmax", name="another")(hidden)
    model = keras.Model([source, target], [logits, other])
    losses = {"another": "mse", "logits": keras_attn.SequenceCrossentropy()}
    model.compile("adam", loss=losses, jit_compile=False)
    x, y = arrays()
    targets = {"another": np.zeros((3, 5, 3)), "logits": y}
    assert_good(model, (x, targets))
    targets["logits"] = y + 9
    assert_wrong(model, "vocabulary", "'logits' returns", data=(x, targets))


def test_a_model_that_draws_in_training_is_looked_at():
    source, target = inputs()
    memory, x = embedded(source, target)
    attention = keras_attn.Attention(
        keras_attn.AdditiveScore(4), keras_attn.ReinforceAlignment()
    )
    hidden, *evidence = attention(x, memory, return_samples=True)
    logits = layers.Dense(TARGETS)(hidden)
    model = keras_attn.ReinforceModel([source, target], [logits, *evidence])
    model.compile(
        "adam", loss=keras_attn.SequenceCrossentropy(), jit_compile=False
    )
    assert_good(model, arrays())


def test_all_that_is_wrong_is_said_at_once():
    model = on_target(Ahead(1, **NAMED))
    data = arrays(changed(SOURCE_IDS, (0, 0), 99), target_out=IDS[:, :-1])
    _, error = look(model, data)
    for kind in ("leak", "ids", "shift"):
        assert f"- {kind}: " in error


def test_models_that_cannot_be_looked_at_are_refused():
    class Subclassed(keras.Model):
        def call(self, inputs):
            return inputs

    for model in (Subclassed(), layers.Dense(3), "model"):
        with pytest.raises(ValueError, match="needs a functional model"):
            keras_attn.check(model)
    source, target = inputs()
    memory, x = embedded(source, target)
    logits = layers.Dense(TARGETS)(decoder()(x, memory))
    with pytest.raises(ValueError, match="inputs are a list of the sources"):
        keras_attn.check(
            keras.Model({"source": source, "target": target}, logits)
        )
    with pytest.raises(ValueError, match="its first output the logits"):
        keras_attn.check(
            keras.Model([source, target], layers.GlobalMaxPooling1D()(logits))
        )


@keras.saving.register_keras_serializable("test_findings")
class Counting(layers.Layer):
    """Counts its calls."""

    def build(self, shape):
        self.calls = self.add_weight(initializer="zeros", trainable=False)
        self.supports_masking = True

    def call(self, x):
        self.calls.assign_add(1.0)
        return x


def state(model):
    variables = [*model.variables, *model.optimizer.variables]
    variables += [v for metric in model.metrics for v in metric.variables]
    return [np.array(ops.convert_to_numpy(x.value)) for x in variables]


@pytest.mark.full
@pytest.mark.parametrize("kind", [layers.Identity, lambda: Ahead(2)])
def test_nothing_in_the_model_changes(kind):
    culprit = kind()
    source, target = inputs()
    memory, x = embedded(source, target)
    x = layers.Dropout(0.5, seed=1)(layers.BatchNormalization()(x))
    x = culprit(Counting()(layers.GaussianNoise(0.1)(x)))
    logits = layers.Dense(TARGETS)(decoder()(x, memory))
    model = keras.Model([source, target], logits)
    model.compile(
        "adam",
        keras_attn.SequenceCrossentropy(),
        metrics=["accuracy"],
        jit_compile=False,
    )
    data = arrays()
    model.fit(*data, verbose=0)
    before = state(model)
    _, error = look(model, data)
    assert bool(error) == isinstance(culprit, Ahead)
    after = state(model)
    assert len(after) == len(before) > 20
    for old, new in zip(before, after, strict=True):
        np.testing.assert_array_equal(old, new)
    assert model.losses == []


@pytest.mark.full
def test_training_goes_on_as_if_nobody_had_looked():
    def losses(checked):
        keras.utils.set_random_seed(3)
        source, target = inputs()
        memory, x = embedded(source, target)
        hidden = decoder()(layers.Dropout(0.5)(x), memory)
        model = keras.Model([source, target], layers.Dense(TARGETS)(hidden))
        model.compile(
            "adam", loss=keras_attn.SequenceCrossentropy(), jit_compile=False
        )
        if checked:
            assert_good(model, arrays())
        return model.fit(*arrays(), epochs=3, verbose=0).history["loss"]

    assert losses(checked=True) == losses(checked=False)


def test_half_precision_is_looked_at_too():
    keras.config.set_dtype_policy("mixed_float16")
    try:
        model = on_target(layers.GRU(6, **WHOLE))
        leaking = on_target(Ahead(7, **NAMED))
    finally:
        keras.config.set_dtype_policy("float32")
    assert_good(model)
    assert_wrong(leaking, "leak", "'culprit'")


def test_batches_of_a_fixed_size_are_looked_at_too():
    source = keras.Input((5, 6), batch_size=3)
    target = keras.Input((4,), batch_size=3, dtype="int32")
    x = layers.Embedding(TARGETS, 6)(target)
    x = layers.GRU(6, stateful=True, **WHOLE)(x)
    logits = layers.Dense(TARGETS)(decoder()(x, source))
    assert_good(keras.Model([source, target], logits))
    x = Ahead(1, **NAMED)(x)
    logits = layers.Dense(TARGETS)(decoder()(x, source))
    model = keras.Model([source, target], logits)
    assert_wrong(model, "leak", "'culprit'")
