"""Places parts of a model on different devices."""

import contextlib
import contextvars
import functools

import keras

# The methods that run a layer. They are wrapped one by one, because a device
# scope around a symbolic call would move only the weights.
_METHODS = "build", "call", "prepare", "start", "step", "attend", "attend_step"

_anywhere = contextvars.ContextVar("keras_attn_anywhere", default=False)


def on_device(layer, device):
    """Places a layer's weights and its computation on one device.

    For example, a model that is too large for one GPU can have its encoder on
    one GPU, its attention on a second and its decoder on a third:

        encoder = keras_attn.on_device(encoder, "gpu:0")
        attention = keras_attn.on_device(BahdanauAttention(512), "gpu:1")
        decoder = keras_attn.on_device(
            AttentionDecoder(cell, attention), "gpu:2")

    The innermost placement counts. A placement is neither saved nor exported,
    so saved and exported models load on one device. A model with placed parts
    trains without XLA, which compiles for one device.

    Args:
        layer: A Keras layer or model. If it is already built, its weights
            stay where they are.
        device: The device's name, as `keras.device` takes it.

    Returns:
        The same layer.

    Raises:
        ValueError: If `layer` is not a Keras layer, or `device` not a string.

    Example:
        >>> attention = keras_attn.on_device(
        ...     keras_attn.BahdanauAttention(8), "cpu:0")
        >>> attention(np.ones((2, 3, 4)), np.ones((2, 5, 6))).shape
        TensorShape([2, 3, 6])
    """
    if not isinstance(layer, keras.layers.Layer):
        raise ValueError(
            f"`on_device` places a Keras layer. Received: {layer!r}. Wrap a "
            "function in `keras.layers.Lambda(function)`."
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
    """Ignores all placements while this context is open."""
    token = _anywhere.set(True)
    try:
        yield
    finally:
        _anywhere.reset(token)


def keeps(layer, method):
    """Whether a layer has its class's own method.

    Returns `False` if `on_device` or a user replaced the method on the
    instance. If `True`, the method's result may be computed in another way.
    """
    return method not in vars(layer)


def is_placed(method):
    """Whether a method is a wrapper that `on_device` put on a layer."""
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
