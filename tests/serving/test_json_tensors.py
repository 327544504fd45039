"""JSON to arrays and back, as TensorFlow Serving's own tests have it.

`READ`, `REFUSED`, `WRITTEN` and `UNWRITABLE` hold the cases of its
`json_tensor_test.cc` for predict: 29 of 31 requests, all 16 answers, 16 of 28
messages. These do not apply:

- Two requests with 500,000 lists within each other, one of them with a
  message: they are refused here.
- The 11 requests to classify and to regress (nine messages), and the four
  answers to them (two messages): the development server does neither.
"""

import base64
import gc
import json
import math
import sys
import tracemalloc
import weakref

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import example
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from keras_attn_serving.server import json_tensors
from keras_attn_serving.server.errors import Code
from keras_attn_serving.server.errors import StatusError
from keras_attn_serving.server.limits import Limits
from keras_attn_serving.server.signatures import Signature
from keras_attn_serving.server.signatures import Tensor
from keras_attn_serving.wire.previews import preview

INT, TEXT = {"x": tf.int32}, {"x": tf.string}
FLOAT, DOUBLE = {"x": tf.float32}, {"x": tf.float64}
INT_AND_TEXT = {"int": tf.int32, "str": tf.string}

INTEGERS = (
    tf.int8,
    tf.int16,
    tf.int32,
    tf.int64,
    tf.uint8,
    tf.uint32,
    tf.uint64,
)
WITHOUT_JSON = (
    tf.float16,
    tf.bfloat16,
    tf.uint16,
    tf.complex64,
    tf.complex128,
)


def read(text, limits=None, **dtypes):
    """Reads a request for a signature with inputs of these dtypes."""
    inputs = {name: Tensor(f"{name}:0", x, None) for name, x in dtypes.items()}
    raw = text if isinstance(text, bytes) else text.encode()
    return json_tensors.read(raw, lambda _: Signature(inputs, {}, {}), limits)


def refusal(text, code=Code.INVALID_ARGUMENT, **dtypes):
    with pytest.raises(StatusError) as caught:
        read(text, **dtypes)
    assert caught.value.code is code
    return caught.value.details


def strings(values):
    """An array of `bytes`, which numpy's own strings are not."""
    shape = np.array(values).shape
    result = np.empty(math.prod(shape), object)
    result[:] = np.array(values, object).reshape(-1)
    return result.reshape(shape)


def assert_same(found, expected):
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    np.testing.assert_array_equal(found, expected)
    if found.dtype.kind == "f":
        np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))


# TensorFlow Serving's cases: requests

PAIRS = "[[1,2],[3,4],[5,6]]"
LARGEST, LEAST = np.finfo("d").max, np.finfo("d").tiny

# case: dtypes, JSON, arrays
READ = {
    "unnamed": (
        INT,
        f'{{"instances": {PAIRS}}}',
        {"x": np.int32([[1, 2], [3, 4], [5, 6]])},
    ),
    "numbers of both kinds for a float": (
        FLOAT,
        '{"instances": [1, 2.0, 3, 4, 5.003, 0.007, 0.0]}',
        {"x": np.float32([1, 2, 3, 4, 5.003, 0.007, 0])},
    ),
    "numbers of both kinds for a double": (
        DOUBLE,
        '{"instances": [1.0, 2, 3, 4, 0.662, 0, 0.0]}',
        {"x": np.float64([1, 2, 3, 4, 0.662, 0, 0])},
    ),
    "an integer that no float holds": (
        FLOAT,
        '{"instances": [1435774380]}',
        {"x": np.float32([1435774380])},
    ),
    "a decimal that no float holds": (
        FLOAT,
        '{"instances": [1435774380.0]}',
        {"x": np.float32([1435774380])},
    ),
    "too large for a float": (
        FLOAT,
        f'{{"instances": [{LARGEST}]}}',
        {"x": np.float32([np.inf])},
    ),
    "too large for a float, negative": (
        FLOAT,
        f'{{"instances": [{-LARGEST}]}}',
        {"x": np.float32([-np.inf])},
    ),
    "too small for a float": (
        FLOAT,
        f'{{"instances": [{LEAST}]}}',
        {"x": np.float32([0.0])},
    ),
    "too small for a float, negative": (
        FLOAT,
        f'{{"instances": [{-LEAST}]}}',
        {"x": np.float32([-0.0])},
    ),
    "with a signature": (
        INT,
        '{"signature_name": "predict_images", "instances": [[1,2]]}',
        {"x": np.int32([[1, 2]])},
    ),
    "with something behind it": (
        INT,
        f'{{"instances": {PAIRS}}}X',
        {"x": np.int32([[1, 2], [3, 4], [5, 6]])},
    ),
    "base64": (
        TEXT,
        '{"instances": [{"b64": "aGVsbG8="}, {"b64": "d29ybGQ="}]}',
        {"x": strings([b"hello", b"world"])},
    ),
    "lists of base64": (
        TEXT,
        '{"instances": [[{"b64": "aGVsbG8="}], [{"b64": "d29ybGQ="}]]}',
        {"x": strings([[b"hello"], [b"world"]])},
    ),
    "named base64": (
        TEXT,
        '{"instances": [{"x": [[{"b64": "aGVsbG8="}], '
        '[{"b64": "d29ybGQ="}]]}]}',
        {"x": strings([[[b"hello"], [b"world"]]])},
    ),
    "several": (
        {
            "int": tf.int32,
            "str": tf.string,
            "float": tf.float32,
            "double": tf.float64,
        },
        '{"instances": [{"int": [[1,2],[3,4],[5,6]], "str": ["foo", "bar"],'
        ' "float": [1.0, NaN], "double": [NaN]},'
        ' {"int": [[7,8],[9,0],[1,2]], "str": ["baz", "bat"],'
        ' "float": [2.0, Infinity], "double": [2.0]}]}',
        {
            "int": np.int32(
                [[[1, 2], [3, 4], [5, 6]], [[7, 8], [9, 0], [1, 2]]]
            ),
            "str": strings([[b"foo", b"bar"], [b"baz", b"bat"]]),
            "float": np.float32([[1, np.nan], [2, np.inf]]),
            "double": np.float64([[np.nan], [2]]),
        },
    ),
    "columns, named": (
        INT,
        f'{{"inputs": {{"x": [{PAIRS}]}}}}',
        {"x": np.int32([[[1, 2], [3, 4], [5, 6]]])},
    ),
    "columns": (
        INT,
        f'{{"inputs": [{PAIRS}]}}',
        {"x": np.int32([[[1, 2], [3, 4], [5, 6]]])},
    ),
    "several columns": (
        INT_AND_TEXT | {"bin": tf.string},
        f'{{"inputs": {{"int": [{PAIRS}], "str": ["foo", "bar"],'
        ' "bin": {"b64": "aGVsbG8="}}}',
        {
            "int": np.int32([[[1, 2], [3, 4], [5, 6]]]),
            "str": strings([b"foo", b"bar"]),
            "bin": strings(b"hello"),
        },
    ),
}


@pytest.mark.parametrize("case", READ)
def test_a_request_is_read_as_by_tensorflow_serving(case):
    dtypes, text, expected = READ[case]
    found = read(text, **dtypes)
    assert found.rows == ("instances" in text)
    assert found.signature == json.loads(text.rstrip("X")).get(
        "signature_name", ""
    )
    assert found.arrays.keys() == expected.keys()
    for name, array in expected.items():
        assert_same(found.arrays[name], array)


RAGGED = "[[1,2],[3,4],[5,6,7]]"

# case: dtypes, JSON, a part of the message
REFUSED = {
    "nothing": (INT, "", "document is empty"),
    "a number for a signature": (
        INT,
        f'{{"signature_name": 5, "instances": {RAGGED}}}',
        "must be a string value",
    ),
    "rows and columns": (
        INT,
        f'{{"instances": {RAGGED}, "inputs": {RAGGED}}}',
        "Not formatted correctly",
    ),
    "a longer row": (
        INT,
        f'{{"instances": {RAGGED}}}',
        "Expecting tensor size: 2 but got: 3",
    ),
    "a deeper row": (
        INT,
        '{"instances": [[1,2],[3,4],[[5,6]]]}',
        "Expecting shape [2] but got: [1,2]",
    ),
    "a row and a value": (
        INT,
        '{"instances": [1, [1]]}',
        "Expecting shape [] but got: [1]",
    ),
    "texts among numbers": (
        INT,
        '{"instances": [[1,2],["a","b"]]}',
        'JSON Value: "a" Type: String is not of expected type: int32',
    ),
    "a named row that is deeper": (
        INT_AND_TEXT,
        f'{{"instances": [{{"int": {PAIRS}, "str": ["foo", "bar"]}},'
        ' {"int": [[[7,8],[9,0],[1,2]]], "str": ["baz", "bat"]}]}',
        "Expecting shape [3,2] but got: [1,3,2]",
    ),
    "a named row that is shorter": (
        INT_AND_TEXT,
        '{"instances": [{"int": [[1,2],[3,4],[5,6],[7,8]], "str": ["a", "b"]},'
        ' {"int": [[7,8],[9,0],[1,2]], "str": ["baz", "bat"]}]}',
        "Failed to process element: 1 key: int of 'instances' list. Error: "
        "INVALID_ARGUMENT: Expecting tensor size: 8 but got: 6",
    ),
    "a list among named rows": (
        INT_AND_TEXT,
        f'{{"instances": [{{"int": {PAIRS}, "str": ["a", "b"]}}, [1, 20, 30],'
        ' {"int": [[[7,8],[9,0],[1,2]]], "str": ["baz", "bat"]}]}',
        "Expecting object but got list at item 1 of input list",
    ),
    "a named row among lists": (
        TEXT,
        '{"instances": [["baz", "bar"], {"x": ["baz", "bat"]}]}',
        "Expecting value/list but got object at item 1 of input list",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_request_is_refused_in_tensorflow_servings_words(case):
    dtypes, text, said = REFUSED[case]
    assert said in refusal(text, **dtypes)


# TensorFlow Serving's cases: answers

CUBE = np.int32([[[1, 2], [3, 4], [5, 6]], [[7, 8], [9, 0], [1, 2]]])
WORDS = strings([[b"hello", b"world"], [b"tf", b"serving"]])
IN_BASE64 = [
    [{"b64": "aGVsbG8="}, {"b64": "d29ybGQ="}],
    [{"b64": "dGY="}, {"b64": "c2VydmluZw=="}],
]
SEVERAL = {
    "double": np.float64([8, 9]),
    "float": np.float32([[1], [2]]),
    "int": CUBE,
    "str": strings([[b"foo", b"bar"], [b"baz", b"bat"]]),
    "str_bytes": WORDS,
}

# case: arrays, whether by rows, what the JSON says
WRITTEN = {
    "rows": ({"x": CUBE}, True, CUBE.tolist()),
    "columns": ({"x": CUBE}, False, CUBE.tolist()),
    "rows of a value": ({"x": np.int32([1, 2, 3])}, True, [1, 2, 3]),
    "a column of values": ({"x": np.int32([1, 2, 3])}, False, [1, 2, 3]),
    "bytes": ({"x_bytes": WORDS}, True, IN_BASE64),
    "named rows": (
        SEVERAL,
        True,
        [
            {
                "double": 8.0,
                "float": [1.0],
                "int": [[1, 2], [3, 4], [5, 6]],
                "str": ["foo", "bar"],
                "str_bytes": IN_BASE64[0],
            },
            {
                "double": 9.0,
                "float": [2.0],
                "int": [[7, 8], [9, 0], [1, 2]],
                "str": ["baz", "bat"],
                "str_bytes": IN_BASE64[1],
            },
        ],
    ),
    "named columns": (
        SEVERAL,
        False,
        {
            "double": [8.0, 9.0],
            "float": [[1.0], [2.0]],
            "int": CUBE.tolist(),
            "str": [["foo", "bar"], ["baz", "bat"]],
            "str_bytes": IN_BASE64,
        },
    ),
    "no row": ({"x": np.zeros([0, 2], "i")}, True, []),
    "no row of several": (
        {"x": strings(np.zeros([0, 1, 2])), "y": np.zeros([0, 3, 4], "f")},
        True,
        [],
    ),
}


@pytest.mark.parametrize("case", WRITTEN)
def test_an_answer_is_written_as_by_tensorflow_serving(case):
    arrays, rows, expected = WRITTEN[case]
    found = json.loads(json_tensors.write(arrays, rows))
    assert found == {"predictions" if rows else "outputs": expected}


# case: array, the text of each value
NUMBERS = {
    "six digits": (
        np.float32([[9e6, 999_999, 0.5], [0.0003, 0.00003, 555_557.5]]),
        "[9e+06,999999.0,0.5],[0.0003,3e-05,555557.5]",
    ),
    "not finite": (
        np.float32([[np.nan, np.inf], [3, -np.inf]]),
        "[NaN,Infinity],[3.0,-Infinity]",
    ),
}


@pytest.mark.parametrize("case", NUMBERS)
def test_a_number_is_written_as_by_tensorflow_serving(case):
    array, expected = NUMBERS[case]
    found = json_tensors.write({"x": array}, rows=True).decode()
    assert "".join(found.split()) == f'{{"predictions":[{expected}]}}'


# case: arrays, a part of the message
UNWRITABLE = {
    "nothing": ({}, "Cannot convert empty tensor map to JSON"),
    "complex numbers": ({"x": np.complex64([1, 2])}, "type: complex64"),
    "a scalar": ({"x": np.int32(1)}, "Tensor name: x has no shape information"),
    "another number of rows": (
        {"x": np.zeros([2, 3], "i"), "y": strings([[b"a", b"b", b"c"]])},
        "Tensor name: y has inconsistent batch size: 1 expecting: 2",
    ),
    "no row and a row": (
        {"x": np.zeros([0, 2], "i"), "y": strings([[b"foo", b"bar"]])},
        "Tensor name: y has inconsistent batch size: 1 expecting: 0",
    ),
}


@pytest.mark.parametrize("case", UNWRITABLE)
def test_an_answer_is_refused_in_tensorflow_servings_words(case):
    arrays, said = UNWRITABLE[case]
    with pytest.raises(StatusError) as caught:
        json_tensors.write(arrays, rows=True)
    assert caught.value.code is Code.INVALID_ARGUMENT
    assert said in caught.value.details


@pytest.mark.parametrize(
    "details", ['Bad key: "key"', "Bad key: 'key'", "\0\n\\ \u2028 é 🙂"]
)
def test_a_refusal_is_an_object_with_its_text(details):
    assert json.loads(json_tensors.error(details)) == {"error": details}


# Documents


@pytest.mark.parametrize("depth", [1_000, 500_000])
@pytest.mark.parametrize("key", ["inputs", "signature_name", "nested"])
def test_lists_hundreds_deep_are_refused(depth, key):
    # Of these TensorFlow Serving answers "nested", which it does not read.
    text = f'{{"instances": [1], "{key}": {"[" * depth}{"]" * depth}}}'
    assert "too deep" in refusal(text, **INT)


@pytest.mark.parametrize("key", ["instances", "inputs"])
def test_a_tensor_has_at_most_64_axes(key):
    def lists(depth):
        return f'{{"{key}": {"[" * depth}1{"]" * depth}}}'

    assert read(lists(64), **INT).arrays["x"].shape == (1,) * 64
    assert refusal(lists(65), **INT) == "tensor parsing error: x"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (" \n\t\r", "JSON Parse error: The document is empty"),
        ("\ufeff", "JSON Parse error: The document is empty"),
        ("instances = [1, 2]", "JSON Parse error: Invalid value."),
        ("{'instances': [1]}", "at offset: 1"),
        ('{"instances": [1],}', "JSON Parse error: Invalid value."),
        ('{"instances": [1', "at offset: 16"),
        ('{"instances": [01]}', "at offset: 16"),
        ('{"instances": [+1]}', "at offset: 15"),
        ('{"instances": [1.]}', "at offset: 16"),
        ('{"instances": [.5]}', "at offset: 15"),
        ('{"instances": [0x1]}', "at offset: 16"),
        ('{"instances": [Inf]}', "at offset: 15"),
        ('{"instances": [nan]}', "at offset: 15"),
        ('{"instances": ["a\nb"]}', "at offset: 17"),
        ('{"instances": ["\\x41"]}', "JSON Parse error: Invalid value."),
        ('/**/{"instances": [1]}', "at offset: 0"),
        ('\u00a0{"instances": [1]}', "at offset: 0"),
        ("[1]", "JSON Value: [1] Is not object"),
        ('"instances"', 'JSON Value: "instances" Is not object'),
        ("null", "JSON Value: null Is not object"),
        ("{}", "Missing 'inputs' or 'instances' key"),
        ('{"instance": [1]}', "Missing 'inputs' or 'instances' key"),
        ('{"instances": 1}', "Expecting 'instances' to be an list/array"),
        ('{"instances": null}', "Expecting 'instances' to be an list/array"),
        ('{"instances": {"x": 1}}', "Expecting 'instances' to be an list/arr"),
        ('{"instances": []}', "No values in 'instances' array"),
        ('{"signature_name": null}', "'signature_name' key must be a string"),
        ('{"signature_name": ["a"]}', "'signature_name' key must be a string"),
    ],
)
def test_a_document_that_is_no_request_is_refused(text, said):
    assert said in refusal(text, **FLOAT)


@pytest.mark.parametrize(
    "text",
    [
        '\ufeff{"instances": [1]}',
        ' \r\n\t{"instances": [1]}',
        '{"instances": [1]}\0',
        '{"instances": [1]}{"instances": [2]}',
        '{"instances": [1], "other": {"a": [null, {"instances": 2}]}}',
        '{"signature_name": "", "instances": [1]}',
        '{"\\u0069nstances": [1]}',
    ],
)
def test_what_stands_around_a_request_does_not_count(text):
    assert read(text, **INT).arrays["x"].tolist() == [1]


def test_a_long_value_is_cut_in_an_error():
    details = refusal(json.dumps(["x" * 10_000]), **INT)
    assert len(details) < 300


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('{"instances": [1], "instances": [2]}', "instances"),
        ('{"instances": [{"x": 1, "x": 2}]}', "x"),
        ('{"inputs": {"x": 1, "\\u0078": 2}}', "x"),
        ('{"instances": [1], "a": {"b": 1, "b": 1}}', "b"),
    ],
)
def test_a_key_that_stands_twice_is_refused(text, key):
    said = f'JSON Parse error: The key "{key}" stands twice.'
    assert refusal(text, **INT) == said


def test_a_key_that_stands_twice_among_many_is_found_as_fast():
    # This took minutes when each key was looked for among all.
    keys = ", ".join(f'"{number}": 0' for number in range(100_000))
    assert '"99999" stands twice' in refusal(f'{{{keys}, "99999": 0}}', **INT)


def test_a_signature_without_inputs_is_refused():
    said = "Failed to get input map for signature: "
    assert refusal('{"instances": [1]}') == said + "DEFAULT"
    assert refusal('{"signature_name": "a"}') == said + "a"


def test_the_signature_is_looked_for_before_the_inputs():
    def find(name):
        raise StatusError(Code.NOT_FOUND, f"no {name}")

    with pytest.raises(StatusError, match="no a"):
        json_tensors.read(b'{"signature_name": "a", "inputs": "?"}', find)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('{"examples": []}', ""),
        ('{"signature_name": "a", "examples": 1}', "a"),
    ],
)
def test_the_signature_of_any_request_can_be_read(text, name):
    assert json_tensors.read_signature(text.encode()) == name
    for broken in (b"", b"[]", b'{"signature_name": ["hello"]}'):
        with pytest.raises(StatusError):
            json_tensors.read_signature(broken)


# Names


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            '{"instances": [[1]]}',
            "instances is a plain list, but expecting list of objects",
        ),
        (
            '{"inputs": [1]}',
            "inputs is a plain value/list, but expecting an object",
        ),
        ('{"inputs": {"b64": "YQ=="}}', "inputs is a plain value/list"),
        ('{"inputs": {"int": 1}}', "Missing named input: str in 'inputs'"),
        (
            '{"inputs": {"int": 1, "str": "a", "z": 1}}',
            "'inputs' object must have the keys int,str. It also has: z",
        ),
        (
            '{"instances": [{"int": 1}]}',
            "Failed to process element: 0 of 'instances' list. JSON object: "
            '{"int": 1} keys must be equal to: int,str',
        ),
        ('{"instances": [{}]}', "JSON object: {} keys must be equal to: int"),
        (
            '{"instances": [{"int": 1, "str": "a"}, {"int": 1, "z": "a"}]}',
            "Failed to process element: 1 key: z of 'instances' list. Error: "
            "INVALID_ARGUMENT: JSON object: does not have named input: z",
        ),
        (
            '{"instances": [{"b64": "YQ=="}]}',
            "Failed to process element: 0 of 'instances' list.",
        ),
    ],
)
def test_the_names_must_be_those_of_the_signature(text, said):
    assert said in refusal(text, **INT_AND_TEXT)


def test_one_input_needs_no_name_but_may_have_it():
    for text in (
        '{"instances": ["a"]}',
        '{"instances": [{"x": "a"}]}',
        '{"inputs": ["a"]}',
        '{"inputs": {"x": ["a"]}}',
    ):
        assert_same(read(text, **TEXT).arrays["x"], strings([b"a"]))


def test_an_input_may_be_called_b64():
    found = read('{"instances": [{"b64": 1}, {"b64": 2}]}', b64=tf.int32)
    assert_same(found.arrays["b64"], np.int32([1, 2]))


# Shapes


@pytest.mark.parametrize(
    ("key", "value", "shape"),
    [
        ("inputs", "1", ()),
        ("inputs", "[]", (0,)),
        ("inputs", "[[], []]", (2, 0)),
        ("inputs", "[[[]], [[]], [[]]]", (3, 1, 0)),
        ("instances", "[[]]", (1, 0)),
        ("instances", "[[], []]", (2, 0)),
        ("instances", "[[[], []]]", (1, 2, 0)),
        ("instances", '[{"x": []}]', (1, 0)),
        ("instances", "[1]", (1,)),
    ],
)
@pytest.mark.parametrize("dtype", [tf.int32, tf.float64, tf.bool, tf.string])
def test_a_shape_is_that_of_the_lists(key, value, shape, dtype):
    value = value.replace(
        "1", {tf.bool: "true", tf.string: '"a"'}.get(dtype, "1")
    )
    found = read(f'{{"{key}": {value}}}', x=dtype).arrays["x"]
    assert found.shape == shape
    assert found.dtype == dtype.as_numpy_dtype


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        (
            "inputs",
            "[[], [1]]",
            "Encountered list at unexpected size: 1 at level: 1 expected "
            "size: 0",
        ),
        (
            "inputs",
            "[[1], []]",
            "Encountered list at unexpected size: 0 at level: 1 expected "
            "size: 1",
        ),
        (
            "inputs",
            "[1, [2]]",
            "Encountered list at unexpected level: 1 expected < 1",
        ),
        (
            "inputs",
            "[[1], 2]",
            "JSON Value: 2 found at incorrect level: 2 in the JSON DOM. "
            "Expected at level: 2",
        ),
        ("inputs", "[[[1]], [2]]", "JSON Value: 2 found at incorrect level: 3"),
        ("instances", "[[], [1]]", "Expecting tensor size: 0 but got: 1"),
        (
            "instances",
            "[[[], []], [[]]]",
            "Expecting shape [2,0] but got: [1,0]",
        ),
        ("instances", "[[[1], 2]]", "found at incorrect level: 2"),
    ],
)
def test_lists_of_unequal_length_or_depth_are_refused(key, value, said):
    assert said in refusal(f'{{"{key}": {value}}}', **INT)


def test_many_rows_are_read_and_written():
    values = list(range(10_000))
    found = read(json.dumps({"instances": values}), **INT)
    assert found.arrays["x"].tolist() == values
    written = json.loads(json_tensors.write(found.arrays, rows=True))
    assert written == {"predictions": values}


@pytest.mark.parametrize("form", ['"instances": [{}]', '"inputs": [{}]'])
def test_rows_are_counted_before_they_are_converted(form):
    limits = Limits(rows=4)
    wanted = Signature({"x": Tensor("x:0", tf.int32, (None,))}, {}, {})

    def read_rows(value, count):
        text = form.format(", ".join([value] * count))
        json_tensors.read(f"{{{text}}}".encode(), lambda _: wanted, limits)

    read_rows("1", 4)
    with pytest.raises(StatusError, match="at most 4 rows. Received: 5"):
        read_rows('"no number"', 5)


# Values


@pytest.mark.parametrize("dtype", INTEGERS)
def test_an_integer_keeps_every_digit_up_to_the_limits_of_its_dtype(dtype):
    low, high = dtype.min, dtype.max
    found = read(f'{{"inputs": [{low}, {high}, -0]}}', x=dtype)
    expected = np.array([low, high, 0], dtype.as_numpy_dtype)
    assert_same(found.arrays["x"], expected)
    written = json_tensors.write({"y": expected}, rows=False)
    assert json.loads(written) == {"outputs": [low, high, 0]}


@pytest.mark.parametrize("dtype", INTEGERS)
def test_what_an_integer_does_not_hold_is_refused(dtype):
    said = f"Type: Number is not of expected type: {dtype.name}"
    wrong = (dtype.min - 1, dtype.max + 1, 10**400, "1.0", "1e2", "-0.0")
    for value in (*wrong, "NaN", "Infinity"):
        assert said in refusal(f'{{"inputs": [{value}]}}', x=dtype)


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
def test_a_float_takes_any_number_up_to_the_largest_double(dtype):
    texts = ["1", "-1.5", "1e2", "1E-400", "-0.0", "NaN", "-Infinity"]
    found = read(f'{{"inputs": [{", ".join(texts)}]}}', x=dtype)
    expected = np.array(list(map(float, texts)), dtype.as_numpy_dtype)
    assert_same(found.arrays["x"], expected)
    for large in ("1e400", "-1e400", "9" * 400, "9" * 5000):
        assert refusal(f'{{"inputs": [{large}]}}', x=dtype) == (
            "JSON Parse error: Number too big to be stored in double."
        )


@pytest.mark.parametrize(
    ("value", "kind", "dtypes"),
    [
        ("null", "Null", "int32 float double bool string"),
        ("true", "True", "int32 float double string"),
        ("false", "False", "uint64 float double string"),
        ('"1"', "String", "int32 float double bool"),
        ("0", "Number", "bool string"),
        ("1.5", "Number", "int64 bool string"),
        ('{"b64": "YQ=="}', "Object", "int32 float double bool"),
        ('{"a": 1}', "Object", "int32 float double bool"),
    ],
)
def test_a_value_of_another_kind_is_refused(value, kind, dtypes):
    names = {"float": "float32", "double": "float64"}
    for name in dtypes.split():
        text = f'{{"inputs": {{"x": [{value}]}}}}'
        dtype = tf.as_dtype(names.get(name, name))
        assert refusal(text, x=dtype) == (
            f"JSON Value: {value} Type: {kind} is not of expected type: {name}"
        )


def test_truth_values_are_true_and_false():
    found = read('{"inputs": [[true], [false]]}', x=tf.bool)
    assert_same(found.arrays["x"], np.array([[True], [False]]))
    written = json_tensors.write(found.arrays, rows=False)
    assert json.loads(written) == {"outputs": [[True], [False]]}


@pytest.mark.parametrize("dtype", WITHOUT_JSON)
def test_a_dtype_without_json_is_refused_as_input_and_as_output(dtype):
    name = {"float16": "half"}.get(dtype.name, dtype.name)
    said = f"Conversion of JSON Value: 1 to type: {name}"
    columns, rows = '{"inputs": [1]}', '{"instances": [1]}'
    assert refusal(columns, Code.UNIMPLEMENTED, x=dtype) == said
    # TensorFlow Serving gives every row's error this code.
    assert refusal(rows, x=dtype) == (
        "Failed to process element: 0 of 'instances' list. Error: "
        f"UNIMPLEMENTED: {said}"
    )
    array = np.zeros([2], dtype.as_numpy_dtype)
    for rows in (True, False):
        with pytest.raises(StatusError) as caught:
            json_tensors.write({"y": array}, rows)
        assert caught.value.code is Code.INVALID_ARGUMENT
        assert caught.value.details == (
            f"Failed to write JSON value for tensor type: {name}"
        )


@pytest.mark.parametrize("dtype", WITHOUT_JSON)
def test_without_values_any_dtype_has_json(dtype):
    found = read('{"inputs": []}', x=dtype).arrays
    assert_same(found["x"], np.zeros([0], dtype.as_numpy_dtype))
    for rows, key in ((True, "predictions"), (False, "outputs")):
        assert json.loads(json_tensors.write(found, rows)) == {key: []}


# Numbers as text


def bits(array):
    return array.view(f"u{array.itemsize}")


def floats(width):
    return hnp.arrays(f"f{width // 8}", st.integers(1, 30))


@given(st.one_of(floats(32), floats(64)), st.booleans())
@example(np.float32([1e-45, 1.1754944e-38, 3.4028235e38, -0.0]), True)
@example(np.float32([0.1, 1 / 3, 16777216, 16777217, 123456.7]), True)
@example(np.float64([5e-324, 2.2250738585072014e-308, 1 / 3, -0.0]), False)
@example(np.float64([1.7976931348623157e308, 0.1 + 0.2, 2**53 + 2]), False)
def test_a_float_reads_back_bit_for_bit(array, rows):
    text = json_tensors.write({"x": array}, rows)
    (values,) = json.loads(text).values()
    assert all(isinstance(value, float) for value in values)
    with np.errstate(over="raise"):
        found = np.array(values, array.dtype)
    real = ~np.isnan(array)
    np.testing.assert_array_equal(np.isnan(found), ~real)
    np.testing.assert_array_equal(bits(found)[real], bits(array)[real])
    # What is written as an answer can be sent as a request.
    text = text.replace(b"predictions", b"instances").replace(b"outp", b"inp")
    again = read(text, x=tf.as_dtype(array.dtype)).arrays["x"]
    np.testing.assert_array_equal(again, found)


@given(floats(32))
def test_a_float_has_no_more_digits_than_it_needs(array):
    text = json_tensors.write({"x": array}, rows=False).decode()
    values = text.partition("[")[2].partition("]")[0].split(", ")
    for value, number in zip(values, array, strict=True):
        if np.isfinite(number):
            short = f"{float(number):g}"
            enough = np.float32(short) == number
            assert len(value) <= (len(short) + 2 if enough else 16)


# Strings

HOSTILE = [
    "",
    "quotes \" and ' and \\ and /",
    "".join(map(chr, range(0x20))) + "\x7f",
    "line\u2028paragraph\u2029next\x85",
    "\ufeffmark \ufffe \uffff",
    "Ελληνικά, 日本語, 🙂, e\u0301",
    "</script>",
    "\\u0041",
    "{'b64': 'YQ=='}",
]


@pytest.mark.parametrize("escaped", [True, False])
def test_any_text_comes_through(escaped):
    text = json.dumps({"instances": HOSTILE}, ensure_ascii=escaped)
    found = read(text, **TEXT).arrays["x"]
    assert found.tolist() == [x.encode() for x in HOSTILE]
    written = json_tensors.write({"y": found}, rows=True)
    assert json.loads(written) == {"predictions": HOSTILE}
    named = json_tensors.write({x: found for x in HOSTILE}, rows=False)
    assert json.loads(named) == {
        "outputs": {
            x: [{"b64": base64.b64encode(y).decode()} for y in found]
            if x.endswith("_bytes")
            else HOSTILE
            for x in HOSTILE
        }
    }


@given(st.lists(st.binary(), max_size=5))
@example([b"\xff", b"\xc3(", b"\xed\xa0\x80", b"\0", b"\xf0\x9f\x99\x82"])
def test_bytes_come_through_in_base64(values):
    sent = [{"b64": base64.b64encode(x).decode()} for x in values]
    found = read(json.dumps({"inputs": sent}), **TEXT).arrays["x"]
    assert found.tolist() == values
    written = json_tensors.write({"y_bytes": found}, rows=False)
    assert json.loads(written) == {"outputs": sent}
    # As text, what is no UTF-8 is marked.
    written = json_tensors.write({"y": found}, rows=False)
    assert json.loads(written) == {
        "outputs": [x.decode("utf-8", "replace") for x in values]
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", b""),
        ("aGVsbG8=", b"hello"),
        ("aGVsbG8", b"hello"),
        ("aGVsbG8.", b"hello"),
        (" aGV\\tsbG8\\n=\\r\\n", b"hello"),
        ("YQ==", b"a"),
        ("YQ", b"a"),
        ("+/+/", b"\xfb\xff\xbf"),
        ("AAA=", b"\0\0"),
    ],
)
def test_base64_needs_no_padding(text, expected):
    found = read(f'{{"inputs": {{"b64": "{text}"}}}}', **TEXT)
    assert_same(found.arrays["x"], strings(expected))


@pytest.mark.parametrize(
    "text",
    [
        "-_-_",  # web-safe
        "YQ=",
        "YQ===",
        "aGVsbG8==",
        "Y",
        "====",
        "aGVs=bG8=",
        "YQ==YQ==",
        "aGVs!bG8",
        "aGVsbG8\u00a0",
        "aGVsbGé=",
        "\\u0000",
    ],
)
def test_what_is_no_base64_is_refused(text):
    said = refusal(f'{{"inputs": {{"b64": "{text}"}}}}', **TEXT)
    assert said == "Unable to base64 decode"


@pytest.mark.parametrize(
    "value", ['{"b64": 1}', '{"b64": "YQ==", "a": 1}', '{"a": "YQ=="}', "{}"]
)
def test_an_object_that_is_no_base64_is_refused(value):
    said = refusal(f'{{"inputs": [{value}]}}', **TEXT)
    assert said == (
        f"JSON Value: {value} not formatted correctly for base64 data"
    )


@pytest.mark.parametrize(
    ("text", "offset"),
    [
        (b'{"instances": ["\xff"]}', 16),
        (b'{"instances": ["\xc3"]}', 16),
        (b'{"instances": ["\xed\xa0\x80"]}', 16),  # a surrogate
        (b'{"inst\xffances": ["a"]}', 6),
        (b'\xff\xfe{\0"\0i\0', 0),  # UTF-16
    ],
)
def test_bytes_that_are_no_utf8_are_refused(text, offset):
    assert refusal(text, **TEXT) == (
        f"JSON Parse error: Invalid encoding in string. at offset: {offset}"
    )


@pytest.mark.parametrize("half", ["\\ud83d", "\\uDE42", "\\ude42\\ud83d"])
@pytest.mark.parametrize(
    "text",
    [
        '{{"instances": ["a{}b"]}}',
        '{{"instances": [{{"{}": "a"}}]}}',
        '{{"signature_name": "{}", "instances": ["a"]}}',
        '{{"instances": ["a"], "other": [{{"a": "{}"}}]}}',
        '{{"instances": [{{"b64": "{}"}}]}}',
    ],
)
def test_half_a_surrogate_pair_is_refused_wherever_it_stands(text, half):
    assert refusal(text.format(half), **TEXT) == (
        "JSON Parse error: The surrogate pair in string is invalid."
    )


def test_a_whole_surrogate_pair_is_a_character():
    found = read('{"inputs": ["\\ud83d\\ude42", "\\\\ud83d"]}', **TEXT)
    assert found.arrays["x"].tolist() == ["🙂".encode(), b"\\ud83d"]


# Anything at all

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=())),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["b64", "int", "str"])
            | st.text(st.characters(exclude_categories=())),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)
DOCUMENTS = VALUES | st.dictionaries(
    st.sampled_from(["instances", "inputs", "signature_name", "other"]), VALUES
)


@given(DOCUMENTS.map(lambda x: json.dumps(x).encode()) | st.binary())
@pytest.mark.parametrize("dtypes", [TEXT, INT_AND_TEXT, {"b64": tf.float16}])
def test_any_body_is_read_or_refused_in_words_that_can_be_sent(dtypes, body):
    try:
        found = read(body, **dtypes)
    except StatusError as refused:
        assert json.loads(json_tensors.error(refused.details))
    else:
        assert found.arrays.keys() == dtypes.keys()


# What a refusal costs


LONG = json.dumps({"instances": [], "x": [1.5] * 300_000}).encode()


@pytest.mark.parametrize(
    "value",
    [
        json.loads(LONG),
        {"b": {"b64": "é\n"}, "c": [None, True, float("nan")], "d": []},
        "é" * 200,
        [[["x"] * 3] * 9] * 9,
    ],
    ids=["long", "values", "text", "lists"],
)
def test_a_preview_is_the_beginning_of_the_whole(value):
    for most in (1, 256):
        assert preview(value, most) == json.dumps(value)[:most]


def test_a_preview_of_lists_hundreds_deep_is_their_beginning():
    deep = []
    for _ in range(2 * sys.getrecursionlimit()):
        deep = [deep]
    assert preview(deep, 20) == "[" * 20
    assert set(preview(deep, 10**6)) == {"["}


def test_a_refusal_does_not_write_the_whole_document():
    document = json.loads(LONG)
    tracemalloc.start()
    try:
        preview(document, 256)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < len(LONG) / 10


def test_a_refusal_does_not_hold_the_document():
    class List(list):
        """A list that can be referred to weakly."""

    held = []

    def read():
        document = List(json.loads(LONG)["x"])
        held.append(weakref.ref(document))
        raise json_tensors._format_error(document, "is long")

    gc.disable()  # references alone must free it
    try:
        with pytest.raises(StatusError, match="is long") as caught:
            json_tensors.in_turn(read)
        assert held[0]() is None
    finally:
        gc.enable()
    assert caught.value.__context__ is None
