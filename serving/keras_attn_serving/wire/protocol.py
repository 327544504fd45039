"""Converts numpy arrays to TensorFlow Serving's tensor messages and back.

A `TensorProto` holds its values in one of two ways: in the typed field of its
dtype (`float_val`, `string_val`, ...), or as raw bytes in `tensor_content`.
Servers and clients use either, so `decode` reads both. `encode` writes typed
fields, which every reader understands. The two functions follow TensorFlow's
C++ `Tensor::FromProto` and `Tensor::AsProtoField`, edge cases included. Tests
compare them with `tf.io.parse_tensor`, which runs the same C++ code.

They take any message with the fields of `wire.proto`'s `TensorProto`, so the
client uses them with our messages and the server with TensorFlow's.
"""

import math
from typing import Any
from typing import NamedTuple

import numpy as np

from keras_attn_serving.wire import wire_pb2 as wire

# A message of a few bytes can declare any shape, which its last value fills by
# repetition. A tensor larger than any gRPC message is refused.
MAX_TENSOR_BYTES = 2**31 - 1
MAX_RANK = 254  # TensorFlow's own limit
# Values that are converted to Python's objects at a time. Each takes 32 bytes.
_AT_A_TIME = 1 << 16
# Bytes that Python needs for a string besides its own, with its place in a
# list.
_STRING = 64
# Within a list of values.
_PARTS = list | tuple | str | bytes | np.ndarray
_NUMBERS = int | float | complex | np.number | np.bool_


class Kind(NamedTuple):
    """The name of a dtype, and how its values are stored.

    Attributes:
        name: TensorFlow's C++ name of the dtype, as in its error messages.
        stored: Dtype of one element in `tensor_content`; `None` for strings.
        field: The typed field that holds the values.
    """

    name: str
    stored: np.dtype | None
    field: str


def _kind(name, stored, field):
    return Kind(name, np.dtype(stored).newbyteorder("<"), field)


KINDS: dict[int, Kind] = {
    wire.DT_FLOAT: _kind("float", np.float32, "float_val"),
    wire.DT_DOUBLE: _kind("double", np.float64, "double_val"),
    wire.DT_INT32: _kind("int32", np.int32, "int_val"),
    wire.DT_UINT8: _kind("uint8", np.uint8, "int_val"),
    wire.DT_INT16: _kind("int16", np.int16, "int_val"),
    wire.DT_INT8: _kind("int8", np.int8, "int_val"),
    wire.DT_STRING: Kind("string", None, "string_val"),
    wire.DT_COMPLEX64: _kind("complex64", np.complex64, "scomplex_val"),
    wire.DT_INT64: _kind("int64", np.int64, "int64_val"),
    wire.DT_BOOL: _kind("bool", np.bool_, "bool_val"),
    wire.DT_QINT8: _kind("qint8", np.int8, "int_val"),
    wire.DT_QUINT8: _kind("quint8", np.uint8, "int_val"),
    wire.DT_QINT32: _kind("qint32", np.int32, "int_val"),
    # numpy has no bfloat16. Its bits are the upper half of a float32's.
    wire.DT_BFLOAT16: _kind("bfloat16", np.uint16, "half_val"),
    wire.DT_QINT16: _kind("qint16", np.int16, "int_val"),
    wire.DT_QUINT16: _kind("quint16", np.uint16, "int_val"),
    wire.DT_UINT16: _kind("uint16", np.uint16, "int_val"),
    wire.DT_COMPLEX128: _kind("complex128", np.complex128, "dcomplex_val"),
    wire.DT_HALF: _kind("half", np.float16, "half_val"),
    wire.DT_UINT32: _kind("uint32", np.uint32, "uint32_val"),
    wire.DT_UINT64: _kind("uint64", np.uint64, "uint64_val"),
}

# The dtype that a numpy array is sent as. Quantised dtypes share numpy's
# integers, so they can be read but never sent. bfloat16 arrays exist if
# ml_dtypes is installed.
_SENT_AS = {
    kind.stored.name: dtype
    for dtype, kind in KINDS.items()
    if kind.stored is not None
    and dtype != wire.DT_BFLOAT16
    and "q" not in kind.name
} | {"bfloat16": wire.DT_BFLOAT16}


def dtype_name(dtype: int) -> str:
    """Returns TensorFlow's C++ name of a `DataType`, such as `"float"`."""
    if dtype in KINDS:
        return KINDS[dtype].name
    if dtype in wire.DataType.values():
        return wire.DataType.Name(dtype).removeprefix("DT_").lower()
    return f"unknown dtype enum {dtype}"


def size(tensor: Any) -> int:
    """Returns the bytes that the decoded values of a `TensorProto` take.

    A message of a few bytes may declare millions of them.

    Raises:
        ValueError: As `decode`, for its dtype or shape.
    """
    kind, shape = _read_header(tensor)
    count = math.prod(shape)
    if kind.stored is not None:
        wider = 2 if tensor.dtype == wire.DT_BFLOAT16 else 1  # as float32
        return count * kind.stored.itemsize * wider
    given = list(map(len, tensor.string_val[:count]))
    repeated = (count - len(given)) * (given[-1] if given else 0)
    texts = sum(given) + repeated + len(tensor.tensor_content)
    return count * _STRING + texts


def decode(tensor: Any) -> np.ndarray:
    """Returns the values of a `TensorProto`.

    Strings come as an object array of `bytes`, bfloat16 as float32 (lossless).

    Raises:
        ValueError: If TensorFlow refuses the message too: an unknown dtype or
            shape, or `tensor_content` of the wrong length. Also for dtypes
            without a numpy counterpart (float8, int4, resource, variant).
    """
    kind, shape = _read_header(tensor)
    count = math.prod(shape)
    size = 8 if kind.stored is None else kind.stored.itemsize
    if count * size > MAX_TENSOR_BYTES:
        raise ValueError(
            f"A tensor must be smaller than {MAX_TENSOR_BYTES} bytes. "
            f"Received: dtype {kind.name}, shape {shape}."
        )
    if kind.stored is None:
        flat = _read_strings(tensor, count)
    elif count and tensor.tensor_content:
        flat = _read_content(tensor.tensor_content, kind.stored, count)
    else:
        flat = _read_field(getattr(tensor, kind.field), kind.stored, count)
    if tensor.dtype == wire.DT_BFLOAT16:
        flat = (flat.astype(np.uint32) << 16).view(np.float32)
    return flat.reshape(shape)


def encode(values: Any, tensor: Any) -> None:
    """Writes `values` into an empty `TensorProto`, in its typed field.

    Args:
        values: Anything `as_array` takes.
        tensor: The message to fill: ours or TensorFlow's.
    """
    array = as_array(values)
    if array.dtype == object:
        dtype: int = wire.DT_STRING
        flat = array.reshape(-1)
    elif array.dtype.name not in _SENT_AS:
        raise ValueError(
            f"An array must be of strings or of one of: {', '.join(_SENT_AS)}."
            f" Received: dtype {array.dtype}, which cannot be sent. Convert "
            "it, `array.astype(dtype)`."
        )
    else:
        dtype = _SENT_AS[array.dtype.name]
        flat = _as_field(array.reshape(-1), dtype)
    tensor.dtype = dtype
    tensor.tensor_shape.SetInParent()  # a scalar has a shape, without dims
    for size in array.shape:
        tensor.tensor_shape.dim.add(size=size)
    field = getattr(tensor, KINDS[dtype].field)
    for start in range(0, flat.size, _AT_A_TIME):
        field.extend(flat[start : start + _AT_A_TIME].tolist())


def as_array(values: Any) -> np.ndarray:
    """Returns `values` as an array that `encode` can send.

    Text becomes an object array of UTF-8 `bytes`. So does an empty list, which
    is taken for an empty batch of texts. Python numbers become int32 (int64 if
    int32 cannot hold them) and float32, as in TensorFlow. Numpy arrays keep
    their dtype.
    """
    if isinstance(values, np.ndarray | np.generic) and values.dtype != object:
        array = np.asarray(values)
        # One by one: numpy strips trailing NULs from the items of an `S`
        # array, but not from bytes in an object array.
        return _as_bytes(array) if array.dtype.kind in "UST" else array
    try:
        array = np.array(values, dtype=object)
    except ValueError:  # lists whose lengths differ below the first level
        raise _ragged(values) from None
    items = array.reshape(-1).tolist()
    if all(isinstance(item, str | bytes) for item in items):
        return _as_bytes(array)
    if any(isinstance(item, _PARTS) for item in items):
        raise _ragged(values)
    whole = all(isinstance(item, int | np.integer) for item in items)
    array = np.array(array.tolist())
    if whole and array.dtype.kind in "fO" and items:
        raise ValueError(
            "Whole numbers must fit int64. Received: "
            f"{max(map(int, items), key=abs)}."
        )
    if array.dtype == object:
        others = (x for x in items if not isinstance(x, _NUMBERS))
        odd = next(others, items[0])
        raise ValueError(
            f"Inputs must be texts or numbers. Received: {odd!r:.200} of the "
            f"type {type(odd).__name__}. Convert it first."
        )
    if array.dtype == np.float64:
        return array.astype(np.float32)
    if array.dtype == np.int64:
        narrow = array.astype(np.int32)
        return narrow if np.array_equal(narrow, array) else array
    return array


def _ragged(values):
    return ValueError(
        "Inputs must be texts only or numbers only, in lists of equal length. "
        f"Received: {values!r:.200}"
    )


def _as_bytes(array):
    flat = [
        item.encode("utf-8") if isinstance(item, str) else bytes(item)
        for item in array.reshape(-1).tolist()
    ]
    result = np.empty(len(flat), dtype=object)
    result[:] = flat
    return result.reshape(array.shape)


def _as_field(flat, dtype):
    if dtype == wire.DT_BFLOAT16:
        flat = flat.astype(np.float32).view(np.uint32) >> 16
    elif dtype == wire.DT_HALF:
        flat = flat.astype(np.float16).view(np.uint16)
    elif dtype == wire.DT_COMPLEX64:
        flat = flat.astype(np.complex64).view(np.float32)
    elif dtype == wire.DT_COMPLEX128:
        flat = flat.astype(np.complex128).view(np.float64)
    return flat


def _read_header(tensor):
    if tensor.dtype not in KINDS:
        raise ValueError(
            "The dtype of a tensor must be one of: "
            f"{', '.join(kind.name for kind in KINDS.values())}. Received: "
            f"{dtype_name(tensor.dtype)}, which cannot be read."
        )
    return KINDS[tensor.dtype], _read_shape(tensor.tensor_shape)


def _read_shape(shape):
    # `unknown_rank` is ignored, as in C++.
    if len(shape.dim) > MAX_RANK:
        raise ValueError(
            f"A tensor may have at most {MAX_RANK} axes. Received: "
            f"{len(shape.dim)}."
        )
    sizes = tuple(dim.size for dim in shape.dim)
    if any(size < 0 for size in sizes):
        raise ValueError(f"A tensor's shape must be known. Received: {sizes}.")
    return sizes


def _read_content(content, stored, count):
    if len(content) != count * stored.itemsize:
        raise ValueError(
            f"tensor_content must hold {count * stored.itemsize} bytes. "
            f"Received: {len(content)}."
        )
    if stored == np.bool_:
        return np.frombuffer(content, np.uint8) != 0
    return np.frombuffer(content, stored)


def _read_field(values, stored, count):
    if stored.kind == "c":  # real and imaginary parts alternate
        part = np.dtype(f"<f{stored.itemsize // 2}")
        parts = np.fromiter(values, part, len(values))
        flat = parts[: len(parts) // 2 * 2].view(stored)
    elif stored == np.float16:  # an int holds its bits
        bits = np.fromiter(values, np.int32, len(values))
        flat = bits.astype(np.uint16).view(np.float16)
    elif stored.kind in "iu" and stored.itemsize < 4:  # wraps, as in C++
        flat = np.fromiter(values, np.int32, len(values)).astype(stored)
    else:
        flat = np.fromiter(values, stored, len(values))
    return _fill(flat[:count], count, np.zeros(1, flat.dtype))


def _read_strings(tensor, count):
    if count and tensor.tensor_content:
        return _objects(_split_strings(tensor.tensor_content, count))
    values = _objects(tensor.string_val[:count])
    return _fill(values, count, _objects([b""]))


def _objects(strings):
    array = np.empty(len(strings), dtype=object)
    array[:] = strings
    return array


def _fill(flat, count, zero):
    # Repeats the last value; without any value, zeros. One value for all, as
    # a few bytes may ask, takes no memory until the model runs.
    last = flat[-1:] if flat.size else zero
    if len(flat) < 2:
        return np.broadcast_to(last, (count,))
    return np.concatenate([flat, np.repeat(last, count - flat.size)])


def _split_strings(content, count):
    # `count` lengths as varints, then the strings without separators.
    position, lengths = 0, []
    for _ in range(count):
        length = shift = 0
        while True:
            if position >= len(content) or shift > 28:
                raise ValueError("tensor_content holds too few strings.")
            byte = content[position]
            position += 1
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        lengths.append(length & 0xFFFFFFFF)
    if sum(lengths) != len(content) - position:
        raise ValueError("tensor_content holds strings of other lengths.")
    strings = []
    for length in lengths:
        strings.append(content[position : position + length])
        position += length
    return strings
