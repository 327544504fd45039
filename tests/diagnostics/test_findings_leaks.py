"""`check()` names the layer through which later tokens leak.

These tests run on every backend that Keras runs on.
"""

import keras
import pytest
from keras import layers
from keras import ops
from support.cuts import decoder
from support.cuts import with_path
from support.findings import DROPPED_MASKS
from support.findings import NAMED
from support.findings import WHOLE
from support.findings import Ahead
from support.findings import assert_good
from support.findings import assert_wrong
from support.findings import in_a_nested_model
from support.findings import on_target

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


def test_a_leak_behind_the_decoder_and_after_a_good_layer_is_named():
    model = with_path(
        lambda x, memory: layers.Dense(6)(
            Ahead(3, **NAMED)(layers.GRU(6, **WHOLE)(decoder()(x, memory)))
        )
    )
    assert_wrong(model, "leak", "- leak: 'culprit' (Ahead) looks at later")
