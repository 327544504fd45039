"""Causal convolutions, whose state is their last inputs."""

from keras import layers
from keras import ops

from keras_attn.incremental.kinds import is_plain
from keras_attn.incremental.registry import stepper_for
from keras_attn.incremental.stepper import Stepper
from keras_attn.incremental.steppers.positions import as_beams
from keras_attn.keras_internals import producer


@stepper_for(layers.ZeroPadding1D)
class PaddingBeforeStepper(Stepper):
    """Skips the zeros before a target; the next convolution starts with them.

    It has no outputs.
    """

    rows_leave = True
    only_first = (
        "mixes target positions: it moves them, and only a convolution with "
        '`padding="valid"` and as long a reach moves them back'
    )

    @classmethod
    def accepts(cls, call):
        return _pads_before(call.layer)

    def __init__(self, call):
        super().__init__(call)
        self.outputs = []

    def step(self, inputs, prepared, state, position):
        return [], None, state


@stepper_for(layers.Conv1D, layers.DepthwiseConv1D, layers.SeparableConv1D)
class CausalConvolutionStepper(Stepper):
    """Runs a convolution on a window of the last inputs, which are its state.

    The layer is `Conv1D(padding="causal")`, or any one-dimensional
    convolution with `padding="valid"` after a `ZeroPadding1D` that pads the
    start.
    """

    rows_leave = True

    @classmethod
    def accepts(cls, call):
        layer = call.layer
        if layer.strides[0] != 1 or layer.kernel_size[0] == 1:
            return False
        if not _is_last(layer):
            return False
        if layer.padding == "causal":
            return True
        return layer.padding == "valid" and _padding_before(call) is not None

    def __init__(self, call):
        super().__init__(call)
        layer = self.layer
        (size,), (rate,) = layer.kernel_size, layer.dilation_rate
        self._reach = (size - 1) * rate
        if layer.padding == "valid":
            before = _padding_before(call)
            (self.reads["inputs"],) = before.input_tensors
            zeros, _ = before.operation.padding
            if zeros != self._reach:
                self.refuse(
                    "mixes target positions: it reaches back "
                    f"{self._reach} positions, (kernel_size - 1) * "
                    f"dilation_rate, but {zeros} zeros are padded before the "
                    f"target; pass `ZeroPadding1D(({self._reach}, 0))`"
                )
        if len(self.reads["inputs"].shape) != 3:
            self.refuse("has inputs whose axes are not (batch, target, dim)")

    def start(self, prepared, batch, beams, max_length):
        width = self.reads["inputs"].shape[-1]
        shape = (batch, beams, self._reach, width)
        return ops.zeros(shape, self.layer.compute_dtype)

    def step(self, inputs, prepared, state, position):
        x = ops.cast(inputs["inputs"], state.dtype)
        beams = ops.shape(x)[1]
        # (batch, beams, reach + 1, dim)
        window = ops.concatenate([state, ops.expand_dims(x, 2)], axis=2)
        rows = ops.reshape(window, (-1, self._reach + 1, window.shape[-1]))
        output = _convolve(self.layer, rows)
        return as_beams(output, beams), None, window[:, :, 1:]


def _convolve(layer, rows):
    """Returns a convolution's output at the last position of its window.

    Args:
        rows: Tensor of shape `(rows, window, dim)`.

    Returns:
        Tensor of shape `(rows, 1, filters)`.
    """
    if layer.padding == "valid":
        return layer(rows)
    # The layer's call would pad the window again and compute every position.
    output = ops.conv(
        rows,
        ops.cast(layer.kernel, rows.dtype),
        padding="valid",
        dilation_rate=layer.dilation_rate,
    )
    if layer.bias is not None:
        output = output + ops.cast(layer.bias, rows.dtype)
    return layer.activation(output)


def _padding_before(call):
    """Returns the node of the zeros before a convolution, or `None`."""
    before = producer(call.arguments["inputs"])
    layer = before.operation
    if is_plain(layer, layers.ZeroPadding1D) and _pads_before(layer):
        return before
    return None


def _pads_before(layer):
    """Whether a `ZeroPadding1D` pads only the start of the target."""
    before, after = layer.padding
    return _is_last(layer) and before > 0 and after == 0


def _is_last(layer):
    return layer.data_format == "channels_last"
