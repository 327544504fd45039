"""Our messages beside TensorFlow's: the same bytes, in one process."""

import pathlib
import subprocess
import sys

import keras_attn_serving
import pytest
from google.protobuf import descriptor
from keras_attn_serving.wire import wire_pb2 as wire
from tensorflow.core.framework import tensor_pb2
from tensorflow.core.framework import tensor_shape_pb2
from tensorflow.core.framework import types_pb2
from tensorflow.core.protobuf import meta_graph_pb2
from tensorflow_serving.apis import get_model_metadata_pb2
from tensorflow_serving.apis import get_model_status_pb2
from tensorflow_serving.apis import model_pb2
from tensorflow_serving.apis import predict_pb2
from tensorflow_serving.apis import status_pb2

OFFICIAL = {
    "TensorShapeProto": tensor_shape_pb2,
    "TensorProto": tensor_pb2,
    "TensorInfo": meta_graph_pb2,
    "SignatureDef": meta_graph_pb2,
    "ModelSpec": model_pb2,
    "PredictRequest": predict_pb2,
    "PredictResponse": predict_pb2,
    "SignatureDefMap": get_model_metadata_pb2,
    "GetModelMetadataRequest": get_model_metadata_pb2,
    "GetModelMetadataResponse": get_model_metadata_pb2,
    "GetModelStatusRequest": get_model_status_pb2,
    "GetModelStatusResponse": get_model_status_pb2,
    "ModelVersionStatus": get_model_status_pb2,
    "StatusProto": status_pb2,
}
PACKAGE = pathlib.Path(keras_attn_serving.__file__).parent


def fields(message):
    """Everything that shapes the bytes, by field name, maps included."""
    field_type = descriptor.FieldDescriptor
    result = {}
    for field in message.fields:
        kind = field.type
        if kind == field_type.TYPE_ENUM:  # an integer on the wire
            kind = field_type.TYPE_INT32
        inner = field.message_type
        entry = inner is not None and inner.GetOptions().map_entry
        result[field.name] = (
            field.number,
            kind,
            field.is_repeated,
            field.containing_oneof and field.containing_oneof.name,
            inner.name if inner else None,
            fields(inner) if entry or inner and inner.name == "Dim" else None,
        )
    return result


@pytest.mark.parametrize("name", wire.DESCRIPTOR.message_types_by_name)
def test_our_fields_are_theirs(name):
    theirs = fields(getattr(OFFICIAL[name], name).DESCRIPTOR)
    for field, shape in fields(getattr(wire, name).DESCRIPTOR).items():
        # `TensorInfo.name` is alone in its oneof here; the bytes are equal.
        if (name, field) == ("TensorInfo", "name"):
            shape = (*shape[:3], "encoding", *shape[4:])
        assert shape == theirs[field]


def test_our_enums_are_theirs():
    for name, number in wire.DataType.items():
        assert types_pb2.DataType.Value(name) == number
    theirs = get_model_status_pb2.ModelVersionStatus.State
    assert dict(wire.ModelVersionStatus.State.items()) == dict(theirs.items())


def test_no_name_of_ours_is_theirs():
    assert wire.DESCRIPTOR.package == "keras_attn_serving"
    assert wire.DESCRIPTOR.name == "keras_attn_serving/wire/wire.proto"


def test_generated_code_accepts_the_oldest_protobuf_allowed():
    generated = (PACKAGE / "wire" / "wire_pb2.py").read_text()
    assert "# Protobuf Python Version: 6.31.1\n" in generated


def test_generated_code_is_of_this_proto():
    # Every field and number of the source is in the descriptor, in order.
    source = (PACKAGE / "wire" / "wire.proto").read_text()
    for message in wire.DESCRIPTOR.message_types_by_name.values():
        body = source.split(f"message {message.name} {{")[1].split("\n}")[0]
        for field in message.fields:
            assert f" {field.name} = {field.number};" in body
        inner = sum(
            len(each.fields) for each in message.nested_types
        ) - 2 * sum(
            each.GetOptions().map_entry for each in message.nested_types
        )
        enums = sum(len(each.values) for each in message.enum_types)
        assert body.count(" = ") == len(message.fields) + inner + enums


ROUND_TRIP = """
from tensorflow_serving.apis import predict_pb2
from keras_attn_serving.wire import protocol
from keras_attn_serving.wire import wire_pb2 as wire

ours = wire.PredictRequest(output_filter=["score"])
ours.model_spec.name = "toy"
ours.model_spec.version.value = 3
protocol.encode(["cat", b"\\xff"], ours.inputs["text"])
theirs = predict_pb2.PredictRequest.FromString(ours.SerializeToString())
assert theirs.model_spec.version.value == 3
assert list(theirs.inputs["text"].string_val) == [b"cat", b"\\xff"]
assert wire.PredictRequest.FromString(theirs.SerializeToString()) == ours
"""


def run(code):
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.full
@pytest.mark.parametrize(
    "imports",
    [
        "import keras_attn_serving, tensorflow",
        "import tensorflow, tensorflow_serving.apis.predict_pb2\n"
        "import keras_attn_serving",
    ],
    ids=["client first", "tensorflow first"],
)
def test_client_and_tensorflow_share_a_process(imports):
    result = run(imports + ROUND_TRIP)
    assert result.returncode == 0, result.stderr


def test_client_needs_only_grpc_numpy_and_protobuf():
    # The modules that the import adds, by their distribution.
    result = run(
        "import sys\n"
        "before = set(sys.modules)\n"
        "import keras_attn_serving\n"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(*sorted(new - sys.stdlib_module_names))"
    )
    assert result.returncode == 0, result.stderr
    names = {name for name in result.stdout.split() if name[0] != "_"}
    # grpc itself imports its tools and services where they are installed.
    ours = {"google", "grpc", "keras_attn_serving", "numpy"}
    grpcs = {
        "cython_runtime",
        "grpc_channelz",
        "grpc_health",
        "grpc_reflection",
        "grpc_status",
        "grpc_tools",
        "typing_extensions",
    }
    assert ours <= names <= ours | grpcs


def test_the_server_says_which_extra_it_misses():
    result = run(
        "import sys\n"
        "sys.modules['tensorflow'] = None\n"
        "import keras_attn_serving.server.server"
    )
    assert "pip install 'keras-attn-serving[server]'" in result.stderr
    assert "The server needs 'tensorflow" in result.stderr
