"""Checks a Predict request as TensorFlow Serving does, and in its words.

What TensorFlow Serving refuses is refused here with the same code and text.
Shapes are the exception: it does not check them, and hands a scalar where a
vector is due to the first operation, which may crash the process. This server
refuses them first, in words of its own.
"""

from collections.abc import Iterable
from typing import Any
from typing import NamedTuple

import grpc
import numpy as np
import tensorflow as tf

from keras_attn_serving import protocol
from keras_attn_serving.errors import StatusError
from keras_attn_serving.errors import invalid_argument


class Plan(NamedTuple):
    """What a valid request asks the session for.

    Attributes:
        signature: Name of the signature, resolved.
        feeds: Arrays by tensor name.
        outputs: Tensor names by output alias.
    """

    signature: str
    feeds: dict[str, np.ndarray]
    outputs: dict[str, str]


def plan(signatures: dict[str, Any], request: Any) -> Plan:
    """Turns a `PredictRequest` into feeds and fetches.

    Args:
        signatures: The model's `SignatureDef` messages by name.
        request: The `PredictRequest`.

    Raises:
        StatusError: If the request does not fit its signature.
    """
    name = (
        request.model_spec.signature_name
        or tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY
    )
    if name not in signatures:
        raise StatusError(
            grpc.StatusCode.FAILED_PRECONDITION,
            f'Serving signature key "{name}" not found.',
        )
    signature = signatures[name]
    _check_names(signature, request.inputs)
    tensors = _inputs(signature, request.inputs)
    outputs = _outputs(signature, request.output_filter)
    _check_dtypes(signature, tensors)
    feeds = {}
    for alias, (_, array) in tensors.items():
        info = signature.inputs[alias]
        _check_shape(alias, info, array)
        feeds[info.name] = array
    return Plan(name, feeds, outputs)


def _check_names(signature, inputs):
    wanted, sent = set(signature.inputs), set(inputs)
    if len(sent) > len(wanted) or (
        len(sent) < len(wanted) and not signature.defaults
    ):
        raise invalid_argument(
            "input size does not match signature: "
            f"{len(sent)}!={len(wanted)} len({_set(sent)}) != "
            f"len({_set(wanted)}). Sent extra: {_set(sent - wanted)}. "
            f"Missing but required: {_set(wanted - sent)}."
        )


def _inputs(signature, inputs):
    tensors = {}
    for alias, info in sorted(signature.inputs.items()):
        if alias in inputs:
            tensor = inputs[alias]
        elif alias in signature.defaults:
            tensor = signature.defaults[alias]
        else:
            raise invalid_argument(
                f"Signature input alias: {alias}(feed name: {info.name}) not "
                "found in request and no default value provided. Inputs "
                f"expected to be in the request {_set(inputs)}, or default "
                f"input alias set: {','.join(sorted(signature.defaults))}"
            )
        try:
            tensors[alias] = tensor.dtype, protocol.decode(tensor)
        except ValueError as error:
            raise invalid_argument(f"tensor parsing error: {alias}") from error
    used = set(inputs) & set(signature.inputs)
    if len(used) != len(inputs):
        raise invalid_argument(
            "Inputs contains invalid name. Used request inputs: "
            f"{','.join(sorted(used))}, request input: "
            f"{','.join(sorted(inputs))}"
        )
    return tensors


def _outputs(signature, output_filter):
    outputs = {}
    for alias in output_filter:
        if alias not in signature.outputs:
            raise invalid_argument(
                f"output tensor alias not found in signature: {alias} Outputs "
                f"expected to be in the set {_set(signature.outputs)}."
            )
        if alias in outputs:
            raise invalid_argument(f"duplicate output tensor alias: {alias}")
        outputs[alias] = signature.outputs[alias].name
    if not outputs:
        for alias, info in sorted(signature.outputs.items()):
            outputs[alias] = info.name
    return outputs


def _check_dtypes(signature, tensors):
    # The session numbers its feeds in the order of their tensor names.
    feeds = sorted(
        (signature.inputs[alias].name, alias, dtype)
        for alias, (dtype, _) in tensors.items()
    )
    for index, (_, alias, dtype) in enumerate(feeds):
        wanted = signature.inputs[alias].dtype
        if dtype != wanted:
            raise invalid_argument(
                f"Expects arg[{index}] to be {protocol.dtype_name(wanted)} "
                f"but {protocol.dtype_name(dtype)} is provided"
            )


def _check_shape(alias, info, array):
    if info.tensor_shape.unknown_rank:
        return
    wanted = [dim.size for dim in info.tensor_shape.dim]
    if len(wanted) == array.ndim and all(
        size in (-1, given)
        for size, given in zip(wanted, array.shape, strict=True)
    ):
        return
    shown = ", ".join("?" if size < 0 else str(size) for size in wanted)
    received = ", ".join(map(str, array.shape))
    advice = ""
    if len(wanted) == 1 and array.ndim == 0:
        advice = " Send a list, even for a single value."
    elif len(wanted) == 1 and array.ndim > 1:
        advice = " Send one flat list, a value for each row of the batch."
    raise invalid_argument(
        f'Input "{alias}" must have shape [{shown}] (? is any size). '
        f"Received shape: [{received}].{advice}"
    )


def _set(names: Iterable[str]) -> str:
    return "{" + ",".join(sorted(names)) + "}"
