"""The tensor codec, compared with TensorFlow's (`Tensor::FromProto`)."""

import re
from decimal import Decimal

import hypothesis
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st
from keras_attn_serving.wire import grpc_messages
from keras_attn_serving.wire import protocol
from keras_attn_serving.wire import wire_pb2 as wire
from tensorflow.core.framework import tensor_pb2

# Seeded, and without a deadline: an operation's first call is slow.
settings = hypothesis.settings(
    derandomize=True, deadline=None, max_examples=300, database=None
)

# TensorFlow's quantised dtypes have no plain numpy form to compare with.
READABLE = [
    dtype for dtype, kind in protocol.KINDS.items() if "q" not in kind.name
]
RANGES = {
    "float_val": st.floats(width=32, allow_nan=False),
    "scomplex_val": st.floats(width=32, allow_nan=False),
    "double_val": st.floats(allow_nan=False),
    "dcomplex_val": st.floats(allow_nan=False),
    "half_val": st.integers(0, 0x7BFF),  # finite halves and bfloat16s
    "int_val": st.integers(-(2**31), 2**31 - 1),
    "int64_val": st.integers(-(2**63), 2**63 - 1),
    "uint32_val": st.integers(0, 2**32 - 1),
    "uint64_val": st.integers(0, 2**64 - 1),
    "bool_val": st.booleans(),
    "string_val": st.binary(max_size=5),
}


def theirs(tensor):
    """Returns the array that TensorFlow reads, or None if it refuses."""
    try:
        array = tf.io.parse_tensor(
            tensor.SerializeToString(), tf.as_dtype(tensor.dtype)
        ).numpy()
    except tf.errors.InvalidArgumentError:
        return None
    if tensor.dtype == wire.DT_STRING:  # a scalar comes as plain bytes
        return np.array(array, dtype=object)
    if array.dtype == ml_dtypes.bfloat16:
        return array.astype(np.float32)
    return array


def ours(tensor):
    # By way of the bytes, so that wire.proto is on trial too.
    message = wire.TensorProto.FromString(tensor.SerializeToString())
    try:
        return protocol.decode(message)
    except ValueError:
        return None


def assert_same(tensor):
    expected, received = theirs(tensor), ours(tensor)
    if expected is None or received is None:
        assert received is expected is None
        return
    assert received.dtype == expected.dtype
    assert received.shape == expected.shape
    if expected.dtype == object:
        assert received.tolist() == expected.tolist()
    else:  # bits, so that -0.0 is not 0.0
        assert received.tobytes() == expected.tobytes()


def tensor_proto(dtype, shape):
    tensor = tensor_pb2.TensorProto(dtype=dtype)
    for size in shape:
        tensor.tensor_shape.dim.add(size=size)
    return tensor


shapes = st.lists(st.integers(-1, 3), max_size=3)


@settings
@hypothesis.given(st.data())
def test_typed_fields_are_read_as_tensorflow_reads_them(data):
    # Too few values, too many, none; sizes of 0 and below.
    dtype = data.draw(st.sampled_from(READABLE))
    tensor = tensor_proto(dtype, data.draw(shapes))
    field = protocol.KINDS[dtype].field
    values = data.draw(st.lists(RANGES[field], max_size=9))
    getattr(tensor, field).extend(values)
    assert_same(tensor)


@settings
@hypothesis.given(st.data())
def test_tensor_content_is_read_as_tensorflow_reads_it(data):
    # Mostly of the right length, sometimes a byte or more off.
    dtype = data.draw(st.sampled_from([d for d in READABLE if d != 7]))
    shape = data.draw(shapes)
    size = protocol.KINDS[dtype].stored.itemsize * int(np.prod(shape))
    size = max(size + data.draw(st.sampled_from([0, 0, 0, 0, 1, -1])), 0)
    tensor = tensor_proto(dtype, shape)
    byte = st.integers(0, 1 if dtype == wire.DT_BOOL else 0x3B)
    tensor.tensor_content = bytes(
        data.draw(st.lists(byte, min_size=size, max_size=size))
    )
    assert_same(tensor)


@settings
@hypothesis.given(st.data())
def test_strings_in_tensor_content_are_read_as_tensorflow_reads_them(data):
    strings = data.draw(st.lists(st.binary(max_size=3), max_size=4))
    content = bytes(map(len, strings)) + b"".join(strings)
    content += data.draw(st.sampled_from([b"", b"", b"", b"\x01", b"\x80"]))
    count = data.draw(st.sampled_from([len(strings), len(strings) + 1]))
    tensor = tensor_proto(wire.DT_STRING, [count])
    tensor.tensor_content = content
    assert_same(tensor)


def test_long_strings_in_tensor_content_have_long_lengths():
    tensor = tensor_proto(wire.DT_STRING, [2])
    # 300 = 0b10_0101100: a varint of two bytes.
    tensor.tensor_content = b"\xac\x02\x01" + b"a" * 300 + b"b"
    assert ours(tensor).tolist() == [b"a" * 300, b"b"]
    assert_same(tensor)


@pytest.mark.parametrize(
    "tensor",
    [
        tensor_pb2.TensorProto(),
        tensor_pb2.TensorProto(dtype=wire.DT_FLOAT),
        tensor_pb2.TensorProto(
            dtype=wire.DT_FLOAT, tensor_shape={"unknown_rank": True}
        ),
        tensor_pb2.TensorProto(dtype=101, float_val=[1]),
    ],
    ids=["empty", "no shape", "no rank", "reference dtype"],
)
def test_odd_messages_are_read_as_tensorflow_reads_them(tensor):
    if tensor.dtype == 0:  # `parse_tensor` cannot be asked for DT_INVALID
        assert ours(tensor) is None
    else:
        assert_same(tensor)


@pytest.mark.parametrize("dtype", [wire.DT_RESOURCE, wire.DT_FLOAT8_E5M2, 999])
def test_dtypes_without_a_numpy_form_are_refused_by_name(dtype):
    with pytest.raises(ValueError, match="resource|float8_e5m2|enum 999"):
        protocol.decode(wire.TensorProto(dtype=dtype))


def test_quantised_integers_are_read_as_integers():
    tensor = wire.TensorProto(dtype=wire.DT_QUINT8, int_val=[255])
    assert protocol.decode(tensor) == 255
    assert protocol.decode(tensor).dtype == np.uint8


def test_a_few_bytes_cannot_fill_the_memory():
    tensor = tensor_proto(wire.DT_FLOAT, [2**20, 2**20])
    tensor.float_val.append(1)
    with pytest.raises(ValueError, match="smaller than 2147483647 bytes"):
        protocol.decode(tensor)


@settings
@hypothesis.given(st.data())
def test_what_is_encoded_tensorflow_reads_back(data):
    kinds = [tf.as_dtype(d) for d in READABLE if d != wire.DT_STRING]
    dtype = data.draw(st.sampled_from(kinds))
    shape = data.draw(st.lists(st.integers(0, 3), max_size=3))
    raw = data.draw(
        st.lists(
            st.integers(0, 100),
            min_size=int(np.prod(shape)),
            max_size=int(np.prod(shape)),
        )
    )
    array = np.array(raw).astype(dtype.as_numpy_dtype).reshape(shape)
    tensor = tensor_pb2.TensorProto()
    protocol.encode(array, tensor)
    assert tensor.dtype == dtype.as_datatype_enum
    assert not tensor.tensor_content
    parsed = tf.io.parse_tensor(tensor.SerializeToString(), dtype).numpy()
    np.testing.assert_array_equal(parsed, array)
    assert parsed.shape == array.shape


@settings
@hypothesis.given(
    st.lists(st.one_of(st.binary(max_size=5), st.text(max_size=5)), max_size=4)
)
def test_texts_become_their_utf8_bytes(texts):
    tensor = tensor_pb2.TensorProto()
    protocol.encode(texts, tensor)
    assert tensor.dtype == wire.DT_STRING
    assert [dim.size for dim in tensor.tensor_shape.dim] == [len(texts)]
    assert tf.io.parse_tensor(
        tensor.SerializeToString(), tf.string
    ).numpy().tolist() == [
        text.encode() if isinstance(text, str) else text for text in texts
    ]


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([1, 2], np.int32),
        ([2**40], np.int64),
        (2**31, np.int64),
        ([1, 2.5], np.float32),
        (True, np.bool_),
        ([1j], np.complex128),
        (np.array([1, 2]), np.int64),
        (np.float64(1), np.float64),
        ([np.int8(1)], np.int8),
        ([], object),
        ("cat", object),
        (np.array(["cat"]), object),
        (np.array([b"cat"]), object),
        (np.array(["cat"], np.dtypes.StringDType()), object),
    ],
)
def test_python_values_take_tensorflows_dtypes(values, dtype):
    assert protocol.as_array(values).dtype == dtype


def test_a_scalar_is_sent_with_a_shape_of_no_sizes():
    tensor = wire.TensorProto()
    protocol.encode(1.0, tensor)
    assert tensor.HasField("tensor_shape")
    assert not tensor.tensor_shape.dim


def test_nested_texts_keep_their_shape():
    array = protocol.as_array([["a", "bc"], ["", "\0"]])
    assert array.tolist() == [[b"a", b"bc"], [b"", b"\0"]]


@pytest.mark.parametrize(
    "values",
    [
        ["a", 1],
        [["a"], ["b", "c"]],
        [["a"], "b"],
        [[1], [2, 3]],
        [[[1]], [2]],
        [np.zeros((3, 2)), np.zeros((5, 2))],
    ],
)
def test_mixed_and_ragged_lists_are_refused(values):
    with pytest.raises(ValueError, match="lists of equal length"):
        protocol.as_array(values)


@pytest.mark.parametrize(
    "values",
    [[None], [object()], {"a"}, [1.5, None], [1.5, Decimal(2)]],
)
def test_what_is_neither_text_nor_number_is_refused(values):
    odd = values if isinstance(values, set) else values[-1]
    words = f"texts or numbers. Received: {odd!r} of the type"
    with pytest.raises(ValueError, match=re.escape(words)):
        protocol.as_array(values)


@pytest.mark.parametrize("values", [[1, 2**64], [-1, 2**63]])
def test_whole_numbers_beyond_int64_are_refused(values):
    with pytest.raises(ValueError, match=f"int64. Received: {values[1]}."):
        protocol.as_array(values)


def test_the_numbers_of_an_answer_can_be_changed():
    response = wire.PredictResponse()
    protocol.encode(np.float32([1.5]), response.outputs["score"])
    content = response.outputs["content"]
    content.dtype = wire.DT_FLOAT
    content.tensor_shape.dim.add(size=2)
    content.tensor_content = np.float32([1, 2]).tobytes()
    for array in grpc_messages.result(response, 1000).values():
        array *= 2
        assert array[0] in (2, 3)


def test_dates_are_refused_by_name():
    with pytest.raises(ValueError, match=r"datetime64.*cannot be sent"):
        protocol.encode(np.array(["2026-01-01"], "M8[D]"), wire.TensorProto())
