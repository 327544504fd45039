"""Causal convolutions of the target: a step remembers their last inputs.

These tests run on every backend that Keras runs on.
"""

import keras
import numpy as np
import pytest
from keras import layers
from keras import ops
from support.cuts import SOURCE
from support.cuts import TARGET
from support.cuts import TARGETS
from support.cuts import assert_cut_equals_whole
from support.cuts import decoder
from support.cuts import embedded
from support.cuts import inputs
from support.cuts import run_by_steps
from support.cuts import speak_up
from support.cuts import with_path

from keras_attn import Incremental

# Keras warns if a layer drops a mask; here that is often intended.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Layer '.*' .* was passed an input with a mask:UserWarning"
)


def behind_zeros(zeros, layer):
    return lambda x: layer(layers.ZeroPadding1D((zeros, 0))(x))


def glu_block(x):
    """Two convolutions and a gate, as in Gehring et al. (2017)."""
    y = layers.Conv1D(12, 3, padding="causal")(x)
    value, gate = ops.split(y, 2, axis=-1)
    x = layers.Add()([x, value * ops.sigmoid(gate)])
    return layers.Conv1D(6, 2, padding="causal", dilation_rate=4)(x)


def two_readers(x):
    padded = layers.ZeroPadding1D((2, 0))(x)
    return layers.Concatenate()(
        [layers.Conv1D(3, 3)(padded), layers.DepthwiseConv1D(3)(padded)]
    )


CAUSAL = {
    "causal": layers.Conv1D(6, 3, padding="causal", activation="relu"),
    "dilated": layers.Conv1D(6, 2, padding="causal", dilation_rate=3),
    "groups": layers.Conv1D(6, 4, padding="causal", groups=3, use_bias=False),
    "one wide": layers.Conv1D(6, 1, activation="tanh"),
    "valid": behind_zeros(2, layers.Conv1D(6, 3)),
    "valid, dilated": behind_zeros(6, layers.Conv1D(6, 3, dilation_rate=3)),
    "depthwise": behind_zeros(2, layers.DepthwiseConv1D(3, depth_multiplier=2)),
    "separable": behind_zeros(3, layers.SeparableConv1D(6, 4)),
    "depthwise, one wide": layers.DepthwiseConv1D(1),
    "gated": glu_block,
    "two readers": two_readers,
}


@pytest.mark.full
@pytest.mark.sample_cases(2)
@pytest.mark.parametrize("name", CAUSAL)
def test_a_causal_convolution_is_decoded(name):
    convolve = CAUSAL[name]
    model = with_path(lambda x, memory: decoder()(convolve(x), memory))
    assert_cut_equals_whole(speak_up(model))


def test_a_convolutional_decoder_without_recurrence_is_decoded():
    def build(x, memory):
        x = glu_block(x)
        return layers.Attention()([x, memory])

    assert_cut_equals_whole(speak_up(with_path(build)))


def test_a_convolution_within_a_model_is_decoded():
    block = keras.Sequential(
        [layers.Dense(6), layers.Conv1D(6, 3, padding="causal")]
    )
    model = with_path(lambda x, memory: decoder()(block(block(x)), memory))
    assert_cut_equals_whole(speak_up(model))


def test_a_convolution_in_half_precision_is_decoded():
    keras.config.set_dtype_policy("mixed_float16")
    try:
        model = with_path(lambda x, memory: decoder()(glu_block(x), memory))
    finally:
        keras.config.set_dtype_policy("float32")
    Incremental(model).check(*map(ops.convert_to_tensor, [SOURCE, TARGET]))


def test_the_reach_is_the_kernels_and_no_further():
    convolve = layers.Conv1D(6, 3, padding="causal", dilation_rate=2)

    def build(x, memory):
        first = layers.GRU(6, return_sequences=True)(memory)[:, :1]
        return convolve(x) + first

    model = speak_up(with_path(build))
    target = np.tile(TARGET, 3)
    other = target.copy()
    other[:, 3] = (other[:, 3] + 3) % TARGETS
    one, _ = run_by_steps(Incremental(model), [SOURCE, target])
    two, _ = run_by_steps(Incremental(model), [SOURCE, other])
    differs = np.abs(one - two).max((0, 2)) > 0
    assert differs.nonzero()[0].tolist() == [3, 5, 7]


REFUSED = {
    "zeros too few": (
        behind_zeros(1, layers.Conv1D(6, 3, name="culprit")),
        r"pass `ZeroPadding1D\(\(2, 0\)\)`",
    ),
    "zeros after": (
        lambda x: layers.Conv1D(6, 3, name="culprit")(
            layers.ZeroPadding1D((0, 2))(x)
        ),
        "moves positions",
    ),
    "zeros for nobody": (
        lambda x: layers.Lambda(lambda x: x[:, 1:])(
            layers.ZeroPadding1D((1, 0), name="culprit")(x)
        ),
        "'culprit' .* only a convolution",
    ),
    "strides": (
        layers.Conv1D(6, 3, strides=2, padding="causal", name="culprit"),
        "'culprit' .* mixes target positions",
    ),
    "same": (
        layers.Conv1D(6, 3, padding="same", name="culprit"),
        "'culprit' .* mixes target positions",
    ),
    "valid": (
        layers.SeparableConv1D(6, 3, name="culprit"),
        "'culprit' .* mixes target positions",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_convolutions_are_refused(name):
    build, said = REFUSED[name]
    source, target = inputs()
    memory, x = embedded(source, target)
    x = build(x)
    model = keras.Model(
        [source, target], layers.Dense(TARGETS)(decoder()(x, memory))
    )
    with pytest.raises(ValueError, match=said):
        Incremental(model)
