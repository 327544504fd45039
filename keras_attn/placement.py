"""Placing parts of a model on devices of their own."""

import contextlib
import contextvars
import functools

import keras

# What runs a layer; a scope around a symbolic call would move weights only.
_METHODS = "build", "call", "prepare", "start", "step", "attend", "attend_step"

_anywhere = contextvars.ContextVar("keras_attn_anywhere", default=False)


def on_device(layer, device):
    """Has a layer keep its weights and compute on one device.

    A model too large for one GPU may have its encoder on one, the decoder on
    another and the attention on a third:

        encoder = keras_attn.on_device(encoder, "gpu:0")
        attention = keras_attn.on_device(BahdanauAttention(512), "gpu:1")
        decoder = keras_attn.on_device(
            AttentionDecoder(cell, attention), "gpu:2")

    The innermost wins. A placement belongs to the process, not to the model:
    it is neither saved nor exported, so that either loads on one device. A
    model with placed parts trains without XLA, which compiles for one device.

    Args:
        layer: A Keras layer or model, not yet built for its weights to go
            there too.
        device: The device's name, as `keras.device` takes it.

    Returns:
        The same layer.

    Example:

    >>> attention = keras_attn.on_device(
    ...     keras_attn.BahdanauAttention(8), "cpu:0")
    >>> attention(np.ones((2, 3, 4)), np.ones((2, 5, 6))).shape
    TensorShape([2, 3, 6])
    """
    if not isinstance(layer, keras.layers.Layer):
        raise ValueError(
            f"`on_device` places a Keras layer. Received: {layer!r}. A "
            "function becomes one by `keras.layers.Lambda(function)`."
        )
    if not isinstance(device, str):
        raise ValueError(
            "`device` must be a device's name. Received: "
            f'device={device!r}. Pass for example "gpu:1".'
        )
    layer.supports_jit = False  # XLA compiles for one device
    for name in _METHODS:
        method = getattr(layer, name, None)
        if callable(method):
            setattr(layer, name, _within(device, method))
    return layer


@contextlib.contextmanager
def anywhere():
    """Has what is traced meanwhile run on any device, whatever was said."""
    token = _anywhere.set(True)
    try:
        yield
    finally:
        _anywhere.reset(token)


def keeps(layer, method):
    """Whether a layer has its class's own method, and runs it anywhere.

    Neither `on_device` nor anybody else put another in its place, so that
    what the class computes may be computed in another way.
    """
    return method not in vars(layer)


def is_placed(method):
    """Whether a method is what `on_device` put in the place of a layer's."""
    return getattr(method, "is_placed", False)


def _within(device, method):
    @functools.wraps(method)
    def placed(*args, **kwargs):
        if _anywhere.get():
            return method(*args, **kwargs)
        with keras.device(device):
            return method(*args, **kwargs)

    placed.is_placed = True
    return placed
