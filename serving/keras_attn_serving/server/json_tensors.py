"""Converts the JSON of TensorFlow Serving's REST API to arrays and back.

It follows TensorFlow Serving's `json_tensor.cc`: what it accepts is accepted
and what it refuses is refused in its words. This server also refuses the
following, because a value would be lost silently or the document is unusual:

- duplicate keys, an input that the signature does not have, a number that its
  dtype cannot hold, bytes that are not UTF-8;
- lists hundreds deep, tensors of more than 64 axes, and NaN and infinity by
  other names than `NaN`, `Infinity` and `-Infinity`.

A string that is not UTF-8 is written with U+FFFD. TensorFlow Serving sends its
bytes as they are, which is not JSON.
"""

import base64
import itertools
import json
import math
import re
import threading
from collections.abc import Callable
from collections.abc import Mapping
from typing import NamedTuple
from typing import TypeVar

import numpy as np
import tensorflow as tf

from keras_attn_serving.server.errors import Code
from keras_attn_serving.server.errors import StatusError
from keras_attn_serving.server.errors import invalid_argument
from keras_attn_serving.server.limits import Limits
from keras_attn_serving.server.signatures import Signature
from keras_attn_serving.server.signatures import Tensor
from keras_attn_serving.server.validation import cpp_name
from keras_attn_serving.wire.previews import preview

_Result = TypeVar("_Result")

_SHOWN = 256  # characters of a value in an error
_MAX_RANK = 64  # numpy's own limit
# Most of these for each element that an input may have. A request has several
# inputs, and their fixed sizes do not count as elements.
_LISTS = 8  # lists, objects and keys
_VALUES = 16
_TURN = threading.Lock()
_LONGEST_ERROR = 16 * 1024  # characters
_AT_A_TIME = 1 << 16  # values whose texts are held at a time
# Characters of the longest numbers, "-1.23456789e-38" and
# "-1.2345678901234567e-308", and of their separator.
_WIDTHS = {"float32": 17, "float64": 26, "bool": 7}
_INTEGERS = (
    tf.int32,
    tf.int16,
    tf.int8,
    tf.uint8,
    tf.int64,
    tf.uint32,
    tf.uint64,
)
_FLOATS = (tf.float32, tf.float64)


class JsonRequest(NamedTuple):
    """A request to predict.

    Attributes:
        signature: Name of the signature; "" for the default.
        arrays: Arrays by the names of the inputs, strings as `bytes`.
        rows: Whether the request has `instances`, and the answer `predictions`;
            otherwise the request has `inputs`, and the answer `outputs`.
    """

    signature: str
    arrays: dict[str, np.ndarray]
    rows: bool


def read(
    text: bytes,
    find: Callable[[str], Signature],
    limits: Limits | None = None,
) -> JsonRequest:
    """Reads the body of a request.

    Args:
        text: The JSON.
        find: Returns the signature of a name.
        limits: How many rows and lists it may have; `None` for any number.
            They are counted before they are converted.

    Raises:
        StatusError: If it does not fit the signature.
    """
    document, name = _document(text, limits)
    inputs = find(name).inputs
    if not inputs:
        raise invalid_argument(
            f"Failed to get input map for signature: {name or 'DEFAULT'}"
        )
    if "instances" in document and "inputs" in document:
        raise _format_error(
            document,
            "Not formatted correctly expecting only one of 'inputs' or "
            "'instances' keys to exist ",
        )
    if "instances" in document:
        instances = document["instances"]
        if not isinstance(instances, list):
            raise _format_error(
                document, "Expecting 'instances' to be an list/array"
            )
        if not instances:
            raise _format_error(document, "No values in 'instances' array")
        _require_rows(limits, instances, inputs, inputs)
        return JsonRequest(name, _rows(instances, inputs), True)
    if "inputs" in document:
        arrays = _columns(document["inputs"], inputs, limits)
        return JsonRequest(name, arrays, False)
    raise invalid_argument("Missing 'inputs' or 'instances' key")


def read_signature(text: bytes, limits: Limits | None = None) -> str:
    """Reads the name of the signature in the body of a request; "" for none.

    Args:
        text: The JSON.
        limits: How many lists it may have; `None` for any number.

    Raises:
        StatusError: If it is not a request.
    """
    return _document(text, limits)[1]


def in_turn(function: Callable[[], _Result]) -> _Result:
    """Runs a function while no other one runs here; returns its result.

    Reading a long document takes up to ten times its bytes of memory, and holds
    Python's lock most of the time, so reading two at once would not be faster.

    Args:
        function: Reads a document. If it raises `StatusError`, the error comes
            without its traceback, whose frames would hold the document until
            it is answered.
    """
    with _TURN:
        try:
            return function()
        except StatusError as error:
            refusal = error
    refusal.__cause__ = refusal.__context__ = None
    try:
        raise refusal.with_traceback(None)
    finally:
        del refusal


def write(values: Mapping[str, np.ndarray], rows: bool) -> bytes:
    """Writes the body of an answer.

    Strings of outputs whose names end in `_bytes` are written in base64, others
    as text, with U+FFFD for bytes that are not UTF-8.

    Args:
        values: Arrays by the names of the outputs.
        rows: Whether to write `predictions`, a list of rows; otherwise
            `outputs`.

    Raises:
        StatusError: If an output cannot be written as JSON, or `rows` is `True`
            and the outputs have different numbers of rows.
    """
    if not values:
        raise invalid_argument("Cannot convert empty tensor map to JSON")
    named = len(values) > 1
    if not rows:
        outputs = [
            (f"{_string(name)}: " if named else "") + _written(name, array)
            for name, array in sorted(values.items())
        ]
        text = ",\n        ".join(outputs)
        text = f"{{\n        {text}\n    }}" if named else text
        return f'{{\n    "outputs": {text}\n}}'.encode()
    size = None
    for name, array in sorted(values.items()):
        if not array.ndim:
            raise invalid_argument(
                f"Tensor name: {name} has no shape information "
            )
        if size is not None and len(array) != size:
            raise invalid_argument(
                f"Tensor name: {name} has inconsistent batch size: "
                f"{len(array)} expecting: {size}"
            )
        size = len(array)
    columns = [
        [
            (f"{_string(name)}: " if named else "") + x
            for x in _each(name, array)
        ]
        for name, array in sorted(values.items())
    ]
    lines = [", ".join(row) for row in zip(*columns, strict=True)]
    if named:
        lines = [f"{{{line}}}" for line in lines]
    text = ",\n        ".join(lines)
    text = f"[\n        {text}\n    ]" if text else "[]"
    return f'{{\n    "predictions": {text}\n}}'.encode()


def width(dtype: np.dtype) -> int:
    """Returns the most bytes that `write` needs for a number."""
    if dtype.kind in "iu":
        ends = np.iinfo(dtype).min, np.iinfo(dtype).max
        return max(len(str(x)) for x in ends) + len(", ")
    return _WIDTHS.get(dtype.name, 0)  # others it refuses


def error(details: str) -> bytes:
    """Writes the body of an error.

    Long texts are cut, because they may quote megabytes of a request.
    """
    if len(details) > _LONGEST_ERROR:
        details = f"{details[:_LONGEST_ERROR]}...TRUNCATED"
    return f'{{\n    "error": {_string(details)}\n}}'.encode()


def _document(text, limits):
    """Returns the object of a request, and the signature that it names."""
    if limits is not None:
        _require_few(limits, text)
    document = _parse(text)
    if not isinstance(document, dict):
        raise _format_error(document, "Is not object")
    name = document.get("signature_name", "")
    if not isinstance(name, str):
        raise _format_error(
            document,
            "not formatted correctly. 'signature_name' key must be a string "
            "value.",
        )
    return document, name


def _parse(text):
    try:
        plain = text.decode("utf-8-sig")
        start = _SPACE.match(plain).end()
        if start == len(plain):
            raise _parse_error("The document is empty")
        # Anything after the document is ignored.
        document, _ = _DECODER.raw_decode(plain, start)
        if _SURROGATE.search(plain):  # one without its other half?
            json.dumps(document, ensure_ascii=False).encode()
        return document
    except UnicodeDecodeError as broken:
        raise _parse_error(
            f"Invalid encoding in string. at offset: {broken.start}"
        ) from broken
    except UnicodeEncodeError as broken:
        raise _parse_error(
            "The surrogate pair in string is invalid."
        ) from broken
    except RecursionError as deep:
        raise _parse_error(
            "lists or objects within each other are too deep"
        ) from deep
    except json.JSONDecodeError as broken:
        raise _parse_error(
            f"Invalid value. {broken.msg} at offset: {broken.pos}"
        ) from broken
    except ValueError as broken:  # an integer of thousands of digits
        raise _too_big() from broken


def _pairs(pairs):
    result = dict(pairs)
    if len(result) < len(pairs):
        seen = set()
        for name, _ in pairs:
            if name in seen:
                raise _parse_error(f"The key {_shown(name)} stands twice.")
            seen.add(name)
    return result


def _float(text):
    result = float(text)
    if math.isinf(result):
        raise _too_big()
    return result


def _parse_error(why):
    return invalid_argument(f"JSON Parse error: {why}")


def _too_big():
    return _parse_error("Number too big to be stored in double.")


_DECODER = json.JSONDecoder(object_pairs_hook=_pairs, parse_float=_float)
_SPACE = re.compile(r"[ \t\n\r]*")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def _require_few(limits, text):
    # Python's lock is held while JSON is parsed: 5 million empty lists, which
    # fit in 16 MiB, kept all other threads waiting for 12 s. Values take memory
    # too: 4 million numbers took 480 MB. These characters also count inside
    # texts, which are short enough for that.
    for marks, times, things in (
        (b"[{:", _LISTS, "lists, objects and keys"),
        (b",", _VALUES, "values"),
    ):
        most = times * limits.elements
        found = sum(map(text.count, marks))
        if found > most:
            raise invalid_argument(
                f"A request may have at most {most} {things}. Received: "
                f"{found}. Send several smaller ones, or start the server with "
                "a larger --max_elements."
            )


def _require_rows(limits, value, names, inputs):
    if limits is not None and isinstance(value, list):
        for name in names:
            limits.require_rows(name, [len(value)], inputs[name])


def _rows(instances, inputs):
    """Returns arrays from a list with an item for each row."""
    if not isinstance(instances[0], dict) and len(inputs) > 1:
        raise invalid_argument(
            "instances is a plain list, but expecting list of objects as "
            "multiple input tensors required as per tensorinfo_map"
        )
    objects = _is_object(instances[0])
    items: dict[str, list] = {name: [] for name in inputs}
    shapes: dict[str, tuple] = {}
    for row, element in enumerate(instances):
        if _is_object(element) != objects:
            raise invalid_argument(
                f"Expecting object but got list at item {row} of input list"
                if objects
                else f"Expecting value/list but got object at item {row} of "
                "input list"
            )
        named = element if objects else {next(iter(inputs)): element}
        failed = f"Failed to process element: {row}"
        for name, item in named.items():
            where = f"{failed} key: {name}" if objects else failed
            try:
                if name not in inputs:
                    raise invalid_argument(
                        f"JSON object: does not have named input: {name}"
                    )
                shape, flat = _flat(item, inputs[name])
                _require_same(shapes.setdefault(name, shape), shape)
            except StatusError as error:
                raise invalid_argument(
                    f"{where} of 'instances' list. Error: {error}"
                ) from error
            items[name] += flat
        if set(named) != set(inputs):
            raise invalid_argument(
                f"{failed} of 'instances' list. JSON object: {_shown(element)} "
                f"keys must be equal to: {','.join(sorted(inputs))}"
            )
    return {
        name: _array(name, flat, (len(instances), *shapes[name]), inputs[name])
        for name, flat in items.items()
    }


def _columns(value, inputs, limits):
    """Returns arrays from whole inputs."""
    if not _is_object(value):
        if len(inputs) > 1:
            raise invalid_argument(
                "inputs is a plain value/list, but expecting an object as "
                "multiple input tensors required as per tensorinfo_map"
            )
        value = {next(iter(inputs)): value}
    for name in inputs:
        if name not in value:
            raise invalid_argument(
                f"Missing named input: {name} in 'inputs' object."
            )
    if extra := sorted(set(value) - set(inputs)):
        raise invalid_argument(
            f"'inputs' object must have the keys {','.join(sorted(inputs))}. "
            f"It also has: {','.join(extra)}"
        )
    result = {}
    for name, tensor in inputs.items():
        _require_rows(limits, value[name], [name], inputs)
        shape, flat = _flat(value[name], tensor)
        result[name] = _array(name, flat, shape, tensor)
    return result


def _require_same(wanted, shape):
    if math.prod(wanted) != math.prod(shape):
        raise invalid_argument(
            f"Expecting tensor size: {math.prod(wanted)} but got: "
            f"{math.prod(shape)}"
        )
    if wanted != shape:
        raise invalid_argument(
            f"Expecting shape {_shape(wanted)} but got: {_shape(shape)}"
        )


def _flat(value, tensor):
    """Returns the shape of nested lists, and their values as a flat list."""
    shape, first = [], value
    while isinstance(first, list):
        shape.append(len(first))
        if not first:
            break
        first = first[0]
    level = [value]
    for depth, size in enumerate(shape):
        for each in level:
            if not isinstance(each, list):
                raise _misplaced(each, depth, len(shape))
            if len(each) != size:
                raise invalid_argument(
                    f"Encountered list at unexpected size: {len(each)} at "
                    f"level: {depth} expected size: {size}"
                )
        level = list(itertools.chain.from_iterable(level))
    convert = _converter(tensor.dtype)
    for each in level:
        if isinstance(each, list):
            raise invalid_argument(
                f"Encountered list at unexpected level: {len(shape)} expected "
                f"< {len(shape)}"
            )
    return tuple(shape), [convert(each) for each in level]


def _misplaced(value, depth, rank):
    return invalid_argument(
        f"JSON Value: {_shown(value)} found at incorrect level: {depth + 1} in "
        f"the JSON DOM. Expected at level: {rank}"
    )


def _converter(dtype):
    """Returns the function that converts a value of JSON to a dtype."""
    if dtype == tf.string:
        return _bytes
    if dtype == tf.bool:
        return lambda x: x if isinstance(x, bool) else _refuse(x, dtype)
    if dtype in _FLOATS:
        return lambda x: (
            _double(x) if type(x) in (int, float) else _refuse(x, dtype)
        )
    if dtype in _INTEGERS:
        low, high = dtype.min, dtype.max
        return lambda x: (
            x if type(x) is int and low <= x <= high else _refuse(x, dtype)
        )
    return lambda x: _refuse_dtype(x, dtype)


def _double(value):
    try:
        return float(value)
    except OverflowError as large:
        raise _too_big() from large


def _bytes(value):
    if isinstance(value, str):
        return value.encode()
    if not isinstance(value, dict):
        return _refuse(value, tf.string)
    if not _is_base64(value):
        raise invalid_argument(
            f"JSON Value: {_shown(value)} not formatted correctly for base64 "
            "data"
        )
    # Like TensorFlow Serving, this skips white space. The padding may be
    # missing, but only all of it.
    text = re.sub(r"\s", "", value["b64"], flags=re.ASCII)
    digits = text.rstrip("=.")
    padding = -len(digits) % 4
    try:
        if len(text) - len(digits) not in (0, padding):
            raise ValueError("The padding has another length.")
        return base64.b64decode(digits + "=" * padding, validate=True)
    except ValueError as broken:
        raise invalid_argument("Unable to base64 decode") from broken


def _refuse(value, dtype):
    raise invalid_argument(
        f"JSON Value: {_shown(value)} Type: {_kind(value)} is not of expected "
        f"type: {cpp_name(dtype)}"
    )


def _refuse_dtype(value, dtype):
    raise StatusError(
        Code.UNIMPLEMENTED,
        f"Conversion of JSON Value: {_shown(value)} to type: {cpp_name(dtype)}",
    )


def _array(name: str, flat: list, shape: tuple, tensor: Tensor) -> np.ndarray:
    if len(shape) > _MAX_RANK:
        raise invalid_argument(f"tensor parsing error: {name}")
    if tensor.dtype == tf.string:
        array = np.empty(len(flat), object)
        array[:] = flat
    else:
        assert tensor.dtype is not None
        with np.errstate(over="ignore"):  # to infinity, as in C++
            array = np.array(flat, tensor.dtype.as_numpy_dtype)
    return array.reshape(shape)


def _is_object(value):
    return isinstance(value, dict) and not _is_base64(value)


def _is_base64(value):
    return (
        isinstance(value, dict)
        and len(value) == 1
        and isinstance(value.get("b64"), str)
    )


def _each(name, array):
    """Returns the text of each row of an output."""
    if array.ndim > 1:
        return [_written(name, row) for row in array]
    return [_nested(x) for x in _texts(name, array)]


def _written(name, array):
    """Returns an output, or a row of it, as text."""
    if array.ndim > 1 and array.size > _AT_A_TIME:
        return f"[{', '.join(_written(name, each) for each in array)}]"
    texts = np.empty(array.size, object)
    texts[:] = _texts(name, array.reshape(-1))
    return _nested(texts.reshape(array.shape).tolist())


def _nested(value):
    if isinstance(value, str):
        return value
    return f"[{', '.join(map(_nested, value))}]"


def _texts(name, flat):
    """Returns each value of a vector as the text of its JSON."""
    kind = flat.dtype.kind
    if kind == "O":
        if name.endswith("_bytes"):
            return [
                f'{{"b64": "{base64.b64encode(x).decode()}"}}' for x in flat
            ]
        return [_string(x.decode("utf-8", "replace")) for x in flat]
    if kind == "b":
        return ["true" if x else "false" for x in flat.tolist()]
    dtype = tf.as_dtype(flat.dtype)
    if dtype in _INTEGERS:
        return list(map(str, flat.tolist()))
    if dtype in _FLOATS:
        return _decimals(flat)
    if not flat.size:
        return []
    raise invalid_argument(
        f"Failed to write JSON value for tensor type: {cpp_name(dtype)}"
    )


def _decimals(flat):
    """Writes numbers with six digits, or with as many as they need."""
    digits = 9 if flat.dtype == np.float32 else 17
    values = flat.tolist()
    short = [f"{x:g}" for x in values]
    with np.errstate(over="ignore"):
        same = np.array([float(x) for x in short]).astype(flat.dtype) == flat
    return [
        _decimal(text if exact else f"{value:.{digits}g}")
        for text, value, exact in zip(short, values, same, strict=True)
    ]


def _decimal(text):
    if "." in text or "e" in text:
        return text
    return _NOT_FINITE.get(text, f"{text}.0")


_NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def _string(text):
    return json.dumps(text, ensure_ascii=False)


def _format_error(value, why):
    return invalid_argument(f"JSON Value: {_shown(value)} {why}")


def _shown(value):
    return preview(value, _SHOWN)


def _kind(value):
    if value is None:
        return "Null"
    if isinstance(value, bool):
        return str(value)
    kinds = {dict: "Object", list: "Array", str: "String"}
    return kinds.get(type(value), "Number")


def _shape(sizes):
    return f"[{','.join(map(str, sizes))}]"
