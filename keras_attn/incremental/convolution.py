"""Steppers of causal convolutions, which remember their last inputs."""

from keras import layers
from keras import ops

from keras_attn.incremental.kinds import is_plain
from keras_attn.incremental.refuse import refuse
from keras_attn.incremental.steppers import Stepper
from keras_attn.incremental.steppers import as_beams
from keras_attn.keras_internals import producer

_UNPADDED = (layers.Conv1D, layers.DepthwiseConv1D, layers.SeparableConv1D)


def is_causal(node):
    """Whether a node is a convolution that sees no later position.

    That is `Conv1D(padding="causal")`, or any one-dimensional convolution
    with `padding="valid"` behind a `ZeroPadding1D` at the start.
    """
    layer = node.operation
    if not is_plain(layer, *_UNPADDED):
        return False
    if layer.strides[0] != 1 or layer.kernel_size[0] == 1:
        return False
    if not _is_last(layer):
        return False
    if layer.padding == "causal":
        return True
    return layer.padding == "valid" and _padding_before(node) is not None


def is_padding_before(node):
    """Whether a node puts zeros before a target, as a convolution needs."""
    layer = node.operation
    return (
        is_plain(layer, layers.ZeroPadding1D)
        and _is_last(layer)
        and layer.padding[0] > 0
        and layer.padding[1] == 0
    )


class PaddingBefore(Stepper):
    """Zeros before a target: the first state of the convolution behind it.

    It gives nothing by itself.
    """

    only_first = (
        "mixes target positions: it moves them, and only a convolution with "
        '`padding="valid"` that reaches back as far moves them back'
    )

    def __init__(self, node, depends):
        super().__init__(node, depends)
        self.outputs = []

    def step(self, values, prepared, state, position):
        return [], None, state


class CausalConvolution(Stepper):
    """A convolution over the last positions, whose inputs are its state."""

    def __init__(self, node, depends):
        super().__init__(node, depends)
        layer = self.operation
        (self._inputs,) = node.input_tensors
        (size,), (rate,) = layer.kernel_size, layer.dilation_rate
        self._reach = (size - 1) * rate
        if layer.padding == "valid":
            before = _padding_before(node)
            (self._inputs,) = self.inputs = before.input_tensors
            zeros, _ = before.operation.padding
            if zeros != self._reach:
                refuse(
                    layer,
                    "mixes target positions: it reaches back "
                    f"{self._reach} positions, (kernel_size - 1) * "
                    f"dilation_rate, and there are {zeros} zeros before the "
                    f"target; pass `ZeroPadding1D(({self._reach}, 0))`",
                )
        if len(self._inputs.shape) != 3:
            refuse(layer, "has inputs whose axes are not (batch, target, dim)")

    def start(self, prepared, batch, beams, max_length):
        shape = (batch, beams, self._reach, self._inputs.shape[-1])
        return ops.zeros(shape, self.operation.compute_dtype)

    def step(self, values, prepared, state, position):
        x = ops.cast(values[id(self._inputs)], state.dtype)
        beams = ops.shape(x)[1]
        # (batch, beams, reach + 1, dim)
        window = ops.concatenate([state, ops.expand_dims(x, 2)], axis=2)
        rows = ops.reshape(window, (-1, self._reach + 1, window.shape[-1]))
        output = _convolve(self.operation, rows)
        return [as_beams(output, beams)], None, window[:, :, 1:]


def _convolve(layer, rows):
    """The one output of a convolution that sees all of its window.

    Args:
        rows: Tensor of shape `(rows, window, dim)`.

    Returns:
        Tensor of shape `(rows, 1, filters)`.
    """
    if layer.padding == "valid":
        return layer(rows)
    # Its own call would pad the window again, and compute all of it.
    output = ops.conv(
        rows,
        ops.cast(layer.kernel, rows.dtype),
        padding="valid",
        dilation_rate=layer.dilation_rate,
    )
    if layer.bias is not None:
        output = output + ops.cast(layer.bias, rows.dtype)
    return layer.activation(output)


def _padding_before(node):
    """The node of the zeros before a convolution, or `None`."""
    (x,) = node.input_tensors
    before = producer(x)
    return before if is_padding_before(before) else None


def _is_last(layer):
    return layer.data_format == "channels_last"
