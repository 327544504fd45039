"""TensorFlow Serving's JSON: requests to write, answers to read.

JSON has neither dtypes nor bytes. An answer's dtypes are those that the
model's metadata names. Strings that are not UTF-8, and outputs whose names end
in `_bytes`, are `{"b64": ...}`.
"""

import base64
import contextlib
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import grpc
import numpy as np

from keras_attn_serving.wire import wire_pb2 as wire
from keras_attn_serving.wire.grpc_messages import dtype_name
from keras_attn_serving.wire.previews import preview
from keras_attn_serving.wire.results import ServingError
from keras_attn_serving.wire.results import Signature
from keras_attn_serving.wire.results import TensorSpec
from keras_attn_serving.wire.results import VersionStatus
from keras_attn_serving.wire.transport import Metadata
from keras_attn_serving.wire.transport import ModelSpec
from keras_attn_serving.wire.transport import too_large

_SHOWN = 200  # characters of an answer in an error
_MOST_AXES = 64  # numpy's own limit
# An answer may have one list, object or key for so many bytes of its limit, and
# one value: half a gigabyte of Python objects at 64 MiB.
_LIST, _VALUE = 16, 8
# The codes for the HTTP statuses of a server or a proxy.
_CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    409: grpc.StatusCode.ABORTED,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    499: grpc.StatusCode.CANCELLED,
    500: grpc.StatusCode.INTERNAL,
    501: grpc.StatusCode.UNIMPLEMENTED,
    502: grpc.StatusCode.UNAVAILABLE,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}


def path(spec: ModelSpec) -> str:
    """Returns the path of a model."""
    found = f"/v1/models/{quote(spec.name, safe='')}"
    if isinstance(spec.version, str):
        return f"{found}/labels/{quote(spec.version, safe='')}"
    return found if spec.version is None else f"{found}/versions/{spec.version}"


def predict_request(signature: str, inputs: Mapping[str, np.ndarray]) -> bytes:
    """Returns the body of a request to run a signature.

    Raises:
        ValueError: If an array cannot be written as JSON.
    """
    document = {
        "signature_name": signature,
        "inputs": {name: _nested(name, x) for name, x in inputs.items()},
    }
    return json.dumps(document, ensure_ascii=False).encode()


def outputs(body: bytes, specs: Mapping[str, TensorSpec]) -> dict[str, Any]:
    """Returns the outputs of a signature, as gRPC does.

    Args:
        body: The answer.
        specs: The outputs' dtypes and shapes.

    Raises:
        ValueError: If the answer does not fit them.
    """
    with _parsed(body) as document:
        found = document["outputs"]
    if len(specs) == 1:  # a single output comes without its name
        found = dict.fromkeys(specs, found)
    if not isinstance(found, dict) or found.keys() != specs.keys():
        raise ValueError(
            f"The answer must have the outputs {sorted(specs)}. Received: "
            f"{preview(found, _SHOWN)}"
        )
    try:
        return {
            name: _output(found[name], specs[name]) for name in sorted(specs)
        }
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{preview(found, _SHOWN)} does not fit {specs}."
        ) from error


def require_few(body: bytes, most: int) -> None:
    """Checks how many values an answer holds, before it is parsed.

    Python needs 64 bytes for a list and 32 for a number: 30 MB of empty lists
    took 1.5 GB.

    Args:
        body: The answer.
        most: Most bytes that an answer may have.

    Raises:
        ServingError: If it holds too many for this limit.
    """
    for marks, size, things in (
        (b"[{:", _LIST, "lists, objects and keys"),
        (b",", _VALUE, "values"),
    ):
        found = sum(map(body.count, marks))
        if found > most // size:
            raise too_large(found, f"{most // size} {things}")


def metadata(body: bytes) -> Metadata:
    """Returns a model's signatures."""
    with _parsed(body) as found:
        signatures = found["metadata"]["signature_def"]["signature_def"]
        return Metadata(
            int(found["model_spec"]["version"]),
            {
                name: Signature(_specs(each["inputs"]), _specs(each["outputs"]))
                for name, each in sorted(signatures.items())
                if not name.startswith("__")  # the loader's own initialisation
            },
        )


def status(body: bytes) -> list[VersionStatus]:
    """Returns the states of a model's versions."""
    with _parsed(body) as found:
        return [
            VersionStatus(
                int(each["version"]),
                each["state"],
                _code_number(each["status"]["error_code"]),
                each["status"]["error_message"],
            )
            for each in found["model_version_status"]
        ]


def refusal(number: int, reason: str, body: bytes) -> ServingError:
    """Returns the error that an HTTP status and its body stand for."""
    code = _CODES.get(number, grpc.StatusCode.UNKNOWN)
    try:
        with _parsed(body) as found:
            message = str(found["error"])
    except ServingError:  # a proxy's, perhaps
        message = f"HTTP {number} {reason}: {_shown(body)}"
    if number == 413:
        message = f"Request larger than max (HTTP 413): {message}"
    return ServingError(code, message)


@contextlib.contextmanager
def _parsed(body):
    """Yields a body's JSON; invalid UTF-8 in it becomes U+FFFD."""
    try:
        yield json.loads(body.decode("utf-8", "replace"), strict=False)
    except (
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        RecursionError,
    ) as error:
        raise ServingError(
            grpc.StatusCode.UNKNOWN,
            f"The answer is not a model server's: {_shown(body)}",
        ) from error


def _shown(body):
    return body[:_SHOWN].decode("utf-8", "replace")


def _nested(name, array):
    """Returns an array as nested lists that JSON can represent."""
    if array.dtype == object:
        texts = np.empty(array.size, dtype=object)
        texts[:] = [_string(item) for item in array.reshape(-1)]
        return texts.reshape(array.shape).tolist()
    if array.dtype.name == "bfloat16":
        array = array.astype(np.float32)
    if array.dtype.kind not in "fiub":
        raise ValueError(
            f"The input {name!r} must be of strings, floats, integers or "
            f"booleans to be sent over REST. Received: dtype {array.dtype}. "
            "Use `Client`, which takes every dtype."
        )
    return array.tolist()


def _string(item):
    try:
        return item.decode("utf-8")
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(item).decode()}


def _output(value, spec):
    axes = _axes(value)
    if spec.shape is not None and axes not in (None, len(spec.shape)):
        raise ValueError(
            f"{preview(value, _SHOWN)} is not of shape {spec.shape}."
        )
    if spec.dtype == "string":
        return _strings(value, _MOST_AXES)
    dtype = np.dtype(spec.dtype)
    if not _fits(_first(value), dtype):
        raise ValueError(f"{preview(value, _SHOWN)} is not of dtype {dtype}.")
    try:
        array = np.array(value, dtype)
    except (OverflowError, TypeError) as error:
        raise ValueError(
            f"{preview(value, _SHOWN)} is not of {dtype}."
        ) from error
    return array if array.size else _shaped(array, spec.shape)


def _strings(value, axes):
    if isinstance(value, list):
        if not axes:
            raise ValueError(
                f"{preview(value, _SHOWN)} is in too many lists: a tensor may "
                f"have at most {_MOST_AXES} axes."
            )
        return [_strings(item, axes - 1) for item in value]
    if isinstance(value, dict):
        return base64.b64decode(value["b64"], validate=True)
    if not isinstance(value, str):
        raise ValueError(f"{preview(value, _SHOWN)} is not a string.")
    return value


def _axes(value):
    """Returns how deep lists are nested, `None` if the first has no values."""
    axes = 0
    while isinstance(value, list):
        if not value:
            return None
        value, axes = value[0], axes + 1
    return axes


def _first(value):
    """Returns a number in nested lists, `None` if the first list has none."""
    while isinstance(value, list):
        value = value[0] if value else None
    return value


def _fits(value, dtype):
    if value is None:
        return True
    if isinstance(value, bool) or dtype.kind == "b":
        return isinstance(value, bool) and dtype.kind == "b"
    return isinstance(value, int if dtype.kind in "iu" else int | float)


def _shaped(array, shape):
    """Returns an empty array with all its axes.

    JSON has only the first: `[]` may be of shape `(0,)` or `(0, 5)`.
    """
    if shape is None or len(shape) <= array.ndim:
        return array
    rest = [size or 0 for size in shape[array.ndim :]]
    return array.reshape(array.shape + tuple(rest))


def _specs(tensors):
    return {
        name: TensorSpec(
            dtype_name(wire.DataType.Value(info["dtype"])),
            _shape(info["tensor_shape"]),
        )
        for name, info in sorted(tensors.items())
    }


def _shape(shape):
    if shape.get("unknown_rank"):
        return None
    sizes = [int(dim["size"]) for dim in shape.get("dim", [])]
    return tuple(None if size < 0 else size for size in sizes)


def _code_number(name):
    """Returns the number of a code, given by its name or as a number."""
    if isinstance(name, int):
        return name
    return {"OK": 0}.get(name) or getattr(
        grpc.StatusCode, name, grpc.StatusCode.UNKNOWN
    ).value[0]
