"""Calls a user's own layers with symbolic tensors.

The layers and operations inside become nodes of a graph. Nothing of this stays
in the layers, and other threads that call them are not affected.
"""

import contextlib
import functools
import inspect
import threading
from typing import Any
from typing import NamedTuple

import keras
from keras import layers

from keras_attn.keras_internals import compute_output_spec
from keras_attn.keras_internals import get_keras_mask
from keras_attn.keras_internals import is_functional
from keras_attn.keras_internals import layers_within
from keras_attn.keras_internals import losses_of
from keras_attn.keras_internals import set_keras_mask

# These layers remove the masks from the tensors that they read.
_REMOVE_MASKS = (layers.MultiHeadAttention,)


class Constant(NamedTuple):
    """The result of a layer whose arguments hold no symbolic tensor."""

    value: Any
    layer: keras.Layer
    args: tuple
    kwargs: dict


def call_inside(layer, args, kwargs, constants) -> Any:
    """Runs the `call` of a layer on symbolic tensors; returns its outputs.

    Args:
        layer: A built layer or model.
        args, kwargs: Arguments of its call, with symbolic tensors.
        constants: Dictionary to fill with the `Constant`s that layers inside
            return, by the `id` of the value.
    """
    bound = inspect.signature(layer.call).bind(*args, **kwargs)
    given = dict(bound.arguments)
    kwargs = kwargs | _masks(bound.signature.parameters, given)
    if "training" in bound.signature.parameters:
        kwargs["training"] = False
    first = next(iter(given.values()))
    previous = kwargs.get("mask")
    if previous is None:
        previous = keras.tree.map_structure(_mask_of, first)
    with unchanged(layer):
        for x in layers_within(layer)[1:]:
            _watch(x, constants)
        outputs = layer.call(*args, **kwargs)
        if layer.supports_masking or (
            type(layer).compute_mask is not keras.Layer.compute_mask
        ):
            _set_masks(outputs, layer.compute_mask(first, previous))
    return outputs


def remove_masks(layer, args, kwargs) -> None:
    """Removes masks from tensors as a call of a layer does when it runs."""
    if isinstance(layer, _REMOVE_MASKS):
        for x in keras.tree.flatten((args, kwargs)):
            if isinstance(x, keras.KerasTensor):
                set_keras_mask(x, None)


def _masks(parameters, given):
    """Returns the masks that Keras adds to the arguments of a call."""
    tensors = {
        name: x
        for name, x in given.items()
        if any(isinstance(y, keras.KerasTensor) for y in keras.tree.flatten(x))
    }
    wanted = {f"{name}_mask": x for name, x in tensors.items()}
    if len(tensors) == 1:
        wanted = {"mask": next(iter(tensors.values()))}
    return {
        name: keras.tree.map_structure(_mask_of, x)
        for name, x in wanted.items()
        if name in parameters and given.get(name) is None
    }


def _mask_of(x):
    return get_keras_mask(x) if isinstance(x, keras.KerasTensor) else None


def _set_masks(outputs, masks):
    flat = keras.tree.flatten(outputs)
    if all(_mask_of(x) is None for x in flat):
        for x, mask in zip(flat, keras.tree.flatten(masks), strict=False):
            if isinstance(x, keras.KerasTensor) and mask is not None:
                set_keras_mask(x, mask)


@contextlib.contextmanager
def unchanged(layer):
    """Undoes what calls of a layer store in it, and in those inside."""
    within = layers_within(layer) if isinstance(layer, keras.Layer) else []
    before = [dict(vars(x)) for x in within]
    losses = [list(losses_of(x)) for x in within]
    try:
        yield
    finally:
        for x, attributes, lost in zip(within, before, losses, strict=True):
            # `setattr` would make Keras track them.
            for name in set(vars(x)) - set(attributes):
                vars(x).pop(name)
            vars(x).update(attributes)
            losses_of(x)[:] = lost


def _watch(layer, constants):
    """Records constants, and removes masks, in calls of this thread."""
    thread = threading.get_ident()
    call, spec = layer.call, layer.compute_output_spec

    @functools.wraps(call)
    def watched_call(*args, **kwargs):
        found = call(*args, **kwargs)
        if threading.get_ident() == thread and not isinstance(found, tuple):
            # A `Dropout` may return what another layer returned.
            constants.setdefault(
                id(found), Constant(found, layer, args, kwargs)
            )
        return found

    @functools.wraps(spec)
    def watched_spec(*args, **kwargs):
        try:
            found = spec(*args, **kwargs)
        except ValueError:
            # A model inside that was built for one length runs on others.
            if not is_functional(layer):
                raise
            found = compute_output_spec(layer.call, *args, **kwargs)
        if threading.get_ident() == thread:
            remove_masks(layer, args, kwargs)
        return found

    vars(layer)["call"] = watched_call
    vars(layer)["compute_output_spec"] = watched_spec
