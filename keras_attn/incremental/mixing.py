"""Layers and operations known to mix positions, or rows of the batch.

They are refused by name before anything runs. Other layers that mix positions
are found when steps are compared with the whole model.
"""

import numpy as np
from keras import layers

from keras_attn.incremental.kinds import is_plain
from keras_attn.incremental.refuse import refuse
from keras_attn.keras_internals import is_operation_of_keras

_CONVOLUTIONS = (
    layers.Conv1D,
    layers.Conv2D,
    layers.Conv3D,
    layers.Conv1DTranspose,
    layers.Conv2DTranspose,
    layers.Conv3DTranspose,
    layers.DepthwiseConv1D,
    layers.DepthwiseConv2D,
    layers.SeparableConv1D,
    layers.SeparableConv2D,
)
_POOLING = (
    layers.AveragePooling1D,
    layers.AveragePooling2D,
    layers.AveragePooling3D,
    layers.MaxPooling1D,
    layers.MaxPooling2D,
    layers.MaxPooling3D,
)
# Layers that resize the first axis after the batch: the attribute with the
# sizes, and the value with which the layer changes nothing.
_RESIZING = {
    layers.Cropping1D: ("cropping", (0, 0)),
    layers.Cropping2D: ("cropping", (0, 0)),
    layers.Cropping3D: ("cropping", (0, 0)),
    layers.ZeroPadding1D: ("padding", (0, 0)),
    layers.ZeroPadding2D: ("padding", (0, 0)),
    layers.ZeroPadding3D: ("padding", (0, 0)),
    layers.UpSampling1D: ("size", 1),
    layers.UpSampling2D: ("size", 1),
    layers.UpSampling3D: ("size", 1),
}
_ALWAYS = {
    layers.Bidirectional: "it reads later tokens, which a search does not "
    "have yet; a recurrent layer that runs forwards works",
    layers.Flatten: "use it on the source only",
    layers.RepeatVector: "use it on the source only",
    layers.GroupNormalization: "it normalizes over all positions; "
    "`LayerNormalization` normalizes each position alone",
} | {
    kind: "use pooling on the source only"
    for kind in vars(layers).values()
    if isinstance(kind, type)
    and kind.__name__.startswith(("Global", "Adaptive"))
    and "Pooling" in kind.__name__
}
# Operations of `keras.ops` that reduce, move or mix along their axes. The axis
# None means all axes.
_ALONG_AXES = {
    "All",
    "Amax",
    "Amin",
    "Any",
    "Argmax",
    "Argmin",
    "Argpartition",
    "Argsort",
    "ArraySplit",
    "AssociativeScan",
    "Average",
    "CountNonzero",
    "Concatenate",
    "Cumprod",
    "Cumsum",
    "Diff",
    "Flip",
    "LogSoftmax",
    "Logsumexp",
    "Max",
    "Mean",
    "Median",
    "Min",
    "Moments",
    "Nanargmax",
    "Nanargmin",
    "Nancumprod",
    "Nancumsum",
    "Nanmax",
    "Nanmean",
    "Nanmedian",
    "Nanmin",
    "Nanpercentile",
    "Nanprod",
    "Nanquantile",
    "Nanstd",
    "Nansum",
    "Nanvar",
    "Norm",
    "Normalize",
    "Percentile",
    "Prod",
    "Ptp",
    "Quantile",
    "Repeat",
    "Roll",
    "Softmax",
    "Sort",
    "Sparsemax",
    "Split",
    "Std",
    "Sum",
    "Trapezoid",
    "Unstack",
    "Var",
}


def refuse_mixing(call):
    """Refuses a call that is known to mix positions of the target.

    Args:
        call: A `Call` that depends on the target. Axis 1 of its inputs and
            outputs is the target's.
    """
    advice = _layer_mixes(call.layer) or _operation_mixes(call)
    if advice:
        refuse(call.layer, f"mixes target positions; {advice}")


def _layer_mixes(layer):
    """Returns advice on a replacement, or `None` if the layer may pass."""
    if is_plain(layer, *_CONVOLUTIONS):
        if layer.kernel_size[0] == layer.strides[0] == 1 and _last(layer):
            return None
        return (
            'a causal convolution works, `Conv1D(..., padding="causal")`, or '
            "`ZeroPadding1D(((kernel_size - 1) * dilation_rate, 0))` before "
            'one with `padding="valid"`; and so do recurrent layers and '
            "causal self-attention"
        )
    if is_plain(layer, *_POOLING):
        if layer.pool_size[0] == layer.strides[0] == 1 and _last(layer):
            return None
        return "use pooling on the source only"
    for kind, (name, nothing) in _RESIZING.items():
        if is_plain(layer, kind):
            value = getattr(layer, name)  # for one axis, or one for each
            first = value[0] if isinstance(value, tuple) else value
            if nothing in (value, first) and _last(layer):
                return None
            return "it moves positions; use it on the source only"
    for kind, advice in _ALWAYS.items():
        if is_plain(layer, kind):
            return advice
    return None


def _last(layer):
    return getattr(layer, "data_format", "channels_last") == "channels_last"


def _operation_mixes(call):
    """Returns the advice for an operation of `keras.ops`, or `None`."""
    operation = call.layer
    if not is_operation_of_keras(operation):
        return None
    name, rank = type(operation).__name__, len(call.input_tensors[0].shape)
    if name == "GetItem":
        if _takes_all(call.arguments["key"], rank):
            return None
        return (
            "it takes some positions, or moves their axis; layers that treat "
            "each position alone work"
        )
    if name not in _ALONG_AXES:
        return None
    axis = getattr(operation, "axis", getattr(operation, "axes", rank - 1))
    axes = range(rank) if axis is None else np.atleast_1d(axis)
    if {int(x) % rank for x in axes} & {0, 1}:
        return (
            f"it works along axis={axis!r} of (batch, target, ...); use it "
            "along later axes, where it treats each position alone"
        )
    return None


def _takes_all(key, rank):
    """Whether indexing leaves the axes of batch and target unchanged."""
    # A loaded model has lists where a model has tuples.
    keys = list(key) if isinstance(key, (tuple, list)) else [key]
    for i, one in enumerate(keys):
        if one is Ellipsis:
            named = sum(x is not None for x in keys) - 1
            keys[i : i + 1] = [slice(None)] * (rank - named)
            break
    return all(
        isinstance(one, slice)
        and one.start in (None, 0)
        and one.stop is None
        and one.step in (None, 1)
        for one in keys[:2]
    )
