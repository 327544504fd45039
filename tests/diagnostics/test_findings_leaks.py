"""`check()` names the layer through which later tokens leak.

These tests run on every backend that Keras runs on.
"""

import keras
import pytest
from keras import layers
from keras import ops
from support.cuts import decoder
from support.cuts import embedded
from support.cuts import inputs
from support.cuts import with_path
from support.findings import DROPPED_MASKS
from support.findings import NAMED
from support.findings import WHOLE
from support.findings import Ahead
from support.findings import assert_good
from support.findings import assert_wrong
from support.findings import in_a_nested_model
from support.findings import on_target

import keras_attn

pytestmark = DROPPED_MASKS


@keras.saving.register_keras_serializable("test_findings_leaks")
class Gated(layers.Layer):
    """Adds what comes later, through a gate that begins at zero."""

    def __init__(self, reverse=True, **kwargs):
        super().__init__(**kwargs)
        self.reverse = reverse
        self.supports_masking = True

    def build(self, shape):
        self.gate = self.add_weight(initializer="zeros")

    def call(self, x):
        if not self.reverse:
            return x + self.gate * ops.cumsum(x, axis=1)
        return x + self.gate * ops.flip(
            ops.cumsum(ops.flip(x, axis=1), axis=1), axis=1
        )


class Ending(layers.Layer):
    """Adds the number of tokens, which decoding does not know yet."""

    def call(self, x, mask=None):
        count = ops.sum(ops.cast(mask, x.dtype), axis=1)
        return x + ops.reshape(count, (-1, 1, 1))


LEAKS = {
    "a bidirectional layer": layers.Bidirectional(
        layers.GRU(3, **WHOLE), **NAMED
    ),
    "a convolution": layers.Conv1D(6, 3, padding="same", **NAMED),
    "one that reaches far": layers.DepthwiseConv1D(
        3, dilation_rate=4, padding="same", **NAMED
    ),
    "a separable one": layers.SeparableConv1D(
        6, 3, dilation_rate=4, padding="same", **NAMED
    ),
    "time reversed": layers.Lambda(lambda x: x[:, ::-1], **NAMED),
    "attention": lambda x: layers.MultiHeadAttention(2, 3, **NAMED)(x, x),
    "7 tokens ahead": Ahead(7, **NAMED),
    "1 token ahead": Ahead(1, **NAMED),
    "a sum from the end": Gated(**NAMED),
    "the mean of all": lambda x: layers.Add()(
        [
            x,
            layers.RepeatVector(1)(
                layers.Dense(6)(layers.GlobalAveragePooling1D(**NAMED)(x))
            ),
        ]
    ),
    "time as features": lambda x: layers.Permute((2, 1))(
        layers.Lambda(lambda y: ops.flip(y, axis=-1), **NAMED)(
            layers.Permute((2, 1))(x)
        )
    ),
    "the length": Ending(**NAMED),
    "one in a nested model": in_a_nested_model(Gated(**NAMED)),
    "a recurrence backwards": layers.GRU(
        6, go_backwards=True, **WHOLE, **NAMED
    ),
}

LOOK_BACK = {
    "a recurrence": layers.GRU(6, **WHOLE),
    "a causal convolution": layers.Conv1D(
        6, 3, dilation_rate=4, padding="causal"
    ),
    "causal attention": lambda x: layers.MultiHeadAttention(2, 3)(
        x, x, use_causal_mask=True
    ),
    "a sum from the start": Gated(reverse=False),
    "normalization": layers.LayerNormalization(),
    "a roll back, cut off": lambda x: layers.ZeroPadding1D((2, 0))(x)[:, :-2],
    "time as features and back": lambda x: layers.Permute((2, 1))(
        layers.ReLU()(layers.Permute((2, 1))(x))
    ),
    "noise in training": layers.GaussianNoise(1.0),
}


@pytest.mark.sample_cases(5)
@pytest.mark.parametrize("name", LEAKS)
def test_a_leak_from_later_tokens_is_named(name):
    assert_wrong(on_target(LEAKS[name]), "leak", "'culprit'", "later tokens")


@pytest.mark.parametrize(
    "change, name",
    [
        (lambda x: ops.roll(x, 6, axis=1), "roll"),
        (lambda x: x - ops.mean(x, axis=1, keepdims=True), "mean"),
    ],
)
def test_an_operation_that_leaks_is_named(change, name):
    assert_wrong(on_target(change), "leak", f"- leak: '{name}")


@pytest.mark.parametrize("name", LOOK_BACK)
def test_what_looks_back_is_no_leak(name):
    assert_good(on_target(LOOK_BACK[name]))


class Counting(layers.Layer):
    """Adds the number of ids that are not padding."""

    def __init__(self, padding_id, **kwargs):
        super().__init__(**kwargs)
        self.padding_id = padding_id

    def call(self, ids):
        real = ops.cast(ops.not_equal(ids, self.padding_id), "float32")
        return ops.sum(real, axis=1)[:, None, None]


@pytest.mark.parametrize("padding_id", [0, 1])
def test_a_leak_of_the_length_is_found_by_padding_the_target(padding_id):
    source, target = inputs()
    memory = layers.Embedding(1000, 6)(source)
    real = ops.not_equal(source, padding_id)
    x = layers.Embedding(1000, 6)(target)
    x = x + Counting(padding_id, **NAMED)(target)
    hidden = keras_attn.ScaledDotAttention()(x, memory, value_mask=real)
    model = keras.Model([source, target], layers.Dense(9)(hidden))
    with pytest.raises(ValueError, match="leak: 'culprit'"):
        keras_attn.check(model, padding_id=padding_id)


class Windowed(layers.Layer):
    """Refuses short targets, if it sees how short they are."""

    def call(self, x):
        if isinstance(x.shape[1], int) and x.shape[1] < 6:
            raise ValueError("too short")
        return x


def test_models_that_limit_the_length_of_the_target_are_checked():
    assert_good(on_target(Windowed()))
    source = keras.Input((None,), dtype="int32")
    target = keras.Input((1,), dtype="int32")
    memory, x = embedded(source, target)
    hidden = keras_attn.ScaledDotAttention()(x, memory)
    assert_good(keras.Model([source, target], layers.Dense(9)(hidden)))


class Forbidding(layers.Layer):
    """Forbids the first token."""

    def call(self, x):
        return ops.where(ops.arange(x.shape[-1]) < 1, -1e9, x)


def test_a_forbidden_token_hides_no_leak_and_is_none():
    def forbidding(model):
        return keras.Model(model.inputs, Forbidding()(model.outputs[0]))

    leaking = on_target(LEAKS["a bidirectional layer"])
    assert_wrong(forbidding(leaking), "leak", "'culprit'", "later tokens")
    mixing = on_target(
        layers.Lambda(lambda x: x - ops.mean(x, 0, keepdims=True), **NAMED)
    )
    assert_wrong(forbidding(mixing), "neighbours", "'culprit'")
    assert_good(forbidding(on_target(LOOK_BACK["a recurrence"])))


def test_a_leak_behind_the_decoder_and_after_a_good_layer_is_named():
    model = with_path(
        lambda x, memory: layers.Dense(6)(
            Ahead(3, **NAMED)(layers.GRU(6, **WHOLE)(decoder()(x, memory)))
        )
    )
    assert_wrong(model, "leak", "- leak: 'culprit' (Ahead) looks at later")
