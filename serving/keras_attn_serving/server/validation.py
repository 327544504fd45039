"""Checks a request as TensorFlow Serving does, with the same error texts.

Requests that TensorFlow Serving refuses are refused here with the same code and
text. Shapes are the exception. TensorFlow Serving does not check them: it may
pass a scalar to an operation that expects a vector, which can crash the
process. This server refuses wrong shapes, with its own texts.
"""

from collections.abc import Iterable
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_attn_serving.server.errors import Code
from keras_attn_serving.server.errors import StatusError
from keras_attn_serving.server.errors import invalid_argument
from keras_attn_serving.server.limits import longest_row
from keras_attn_serving.server.signatures import Signature

# Inputs with more axes crash the process in TensorFlow's session (2.21).
_MOST_AXES = 32
# TensorFlow's C++ names of dtypes that differ from those in Python.
_CPP_NAMES = {"float16": "half", "float32": "float", "float64": "double"}


class Plan(NamedTuple):
    """The tensors that a valid request feeds and fetches.

    Attributes:
        feeds: Arrays by tensor name.
        outputs: Tensor names by output alias.
        longest: Elements of the longest row of an input.
    """

    feeds: dict[str, np.ndarray]
    outputs: dict[str, str]
    longest: int = 0

    @property
    def elements(self) -> int:
        """Elements of an input: its rows times the longest row."""
        rows = (len(x) for x in self.feeds.values() if x.ndim)
        return max(rows, default=1) * self.longest


def plan(
    signatures: Mapping[str, Signature],
    name: str,
    arrays: Mapping[str, np.ndarray],
    outputs: Iterable[str] = (),
) -> Plan:
    """Turns a request into feeds and fetches.

    Args:
        signatures: The model's signatures by name.
        name: Name of the signature.
        arrays: Arrays by input alias. They are read only after the names have
            been checked, so a mapping may make them on access.
        outputs: Aliases of the outputs to return; none for all.

    Raises:
        StatusError: If the request does not fit its signature.
    """
    if name not in signatures:
        raise StatusError(
            Code.FAILED_PRECONDITION,
            f'Serving signature key "{name}" not found.',
        )
    signature = signatures[name]
    _check_names(signature, arrays)
    inputs = _inputs(signature, arrays)
    wanted = _outputs(signature, outputs)
    _check_dtypes(signature, inputs)
    feeds, longest = {}, 0
    for alias, array in inputs.items():
        tensor = signature.inputs[alias]
        _check_shape(alias, tensor, array)
        feeds[tensor.name] = array
        longest = max(longest, longest_row(array, tensor))
    return Plan(feeds, wanted, longest)


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


def _inputs(signature, arrays):
    inputs = {}
    for alias, tensor in sorted(signature.inputs.items()):
        if alias in arrays:
            inputs[alias] = _as_array(arrays[alias])
            if inputs[alias].ndim > _MOST_AXES:
                raise invalid_argument(
                    f'Input "{alias}" may have at most {_MOST_AXES} axes. '
                    f"Received: {inputs[alias].ndim}."
                )
        elif alias in signature.defaults:
            inputs[alias] = signature.defaults[alias]
        else:
            raise invalid_argument(
                f"Signature input alias: {alias}(feed name: {tensor.name}) not "
                "found in request and no default value provided. Inputs "
                f"expected to be in the request {_set(arrays)}, or default "
                f"input alias set: {','.join(sorted(signature.defaults))}"
            )
    used = set(arrays) & set(signature.inputs)
    if len(used) != len(arrays):
        raise invalid_argument(
            "Inputs contains invalid name. Used request inputs: "
            f"{','.join(sorted(used))}, request input: "
            f"{','.join(sorted(arrays))}"
        )
    return inputs


def _as_array(value):
    array = np.asarray(value)
    # numpy's own strings lose everything after a NUL.
    return array.astype(object) if array.dtype.kind in "US" else array


def _outputs(signature, aliases):
    outputs = {}
    for alias in aliases:
        if alias not in signature.outputs:
            raise invalid_argument(
                f"output tensor alias not found in signature: {alias} Outputs "
                f"expected to be in the set {_set(signature.outputs)}."
            )
        if alias in outputs:
            raise invalid_argument(f"duplicate output tensor alias: {alias}")
        outputs[alias] = signature.outputs[alias].name
    if not outputs:
        for alias, tensor in sorted(signature.outputs.items()):
            outputs[alias] = tensor.name
    return outputs


def _check_dtypes(signature, arrays):
    # The session numbers its feeds by the order of their tensor names.
    feeds = sorted((signature.inputs[alias].name, alias) for alias in arrays)
    for index, (_, alias) in enumerate(feeds):
        wanted, given = signature.inputs[alias].dtype, arrays[alias].dtype
        try:
            dtype = tf.as_dtype(given)
        except TypeError as error:
            raise invalid_argument(
                f"Expects arg[{index}] to be {cpp_name(wanted)} but an array "
                f"of dtype {given} is provided"
            ) from error
        if dtype != wanted:
            raise invalid_argument(
                f"Expects arg[{index}] to be {cpp_name(wanted)} "
                f"but {cpp_name(dtype)} is provided"
            )


def cpp_name(dtype):
    return _CPP_NAMES.get(dtype.name, dtype.name)


def _check_shape(alias, tensor, array):
    wanted = tensor.shape
    if wanted is None:
        return
    if len(wanted) == array.ndim and all(
        size in (None, given)
        for size, given in zip(wanted, array.shape, strict=True)
    ):
        return
    shown = ", ".join("?" if size is None else str(size) for size in wanted)
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
