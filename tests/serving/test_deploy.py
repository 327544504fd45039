"""The settings for TensorFlow Serving: well-formed, and complete.

No container engine runs them here; see serving/README.md.
"""

import json
import pathlib
import re

import pytest
from google.protobuf import descriptor_pb2
from google.protobuf import descriptor_pool
from google.protobuf import message_factory
from google.protobuf import text_format
from google.protobuf import wrappers_pb2

DEPLOY = pathlib.Path(__file__).parents[2] / "serving" / "deploy"

# As declared in TensorFlow Serving's session_bundle_config.proto and
# monitoring_config.proto, which its Python package leaves out.
FIELDS = {
    "batching.pbtxt": {
        "max_batch_size": (1, "Int64Value"),
        "batch_timeout_micros": (2, "Int64Value"),
        "max_enqueued_batches": (3, "Int64Value"),
        "num_batch_threads": (4, "Int64Value"),
        "allowed_batch_sizes": (6, "int64s"),
        "pad_variable_length_inputs": (7, "bool"),
    },
    "monitoring.pbtxt": {"prometheus_config": (1, "PrometheusConfig")},
}


def message(name):
    """Returns an empty message with the fields of a settings file."""
    file = descriptor_pb2.FileDescriptorProto(
        name=f"deploy/{name}", package="deploy", syntax="proto3"
    )
    file.dependency.append("google/protobuf/wrappers.proto")
    inner = file.message_type.add(name="PrometheusConfig")
    inner.field.add(name="enable", number=1, type="TYPE_BOOL")
    inner.field.add(name="path", number=2, type="TYPE_STRING")
    outer = file.message_type.add(name="Settings")
    for field, (number, kind) in FIELDS[name].items():
        added = outer.field.add(name=field, number=number)
        if kind == "bool":
            added.type = added.TYPE_BOOL
        elif kind == "int64s":
            added.type, added.label = added.TYPE_INT64, added.LABEL_REPEATED
        else:
            added.type = added.TYPE_MESSAGE
            package = "deploy" if kind in {inner.name} else "google.protobuf"
            added.type_name = f".{package}.{kind}"
    for each in inner.field:
        each.label = each.LABEL_OPTIONAL
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(wrappers_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    descriptor = pool.FindMessageTypeByName("deploy.Settings")
    return message_factory.GetMessageClass(descriptor)()


def read(name):
    return (DEPLOY / name).read_text()


@pytest.mark.parametrize("name", FIELDS)
def test_settings_parse_as_tensorflow_serving_declares_them(name):
    settings = text_format.Parse(read(name), message(name))
    assert settings.ListFields()


def flags():
    (command,) = re.findall(
        r"^CMD (\[.*?\])$", read("Dockerfile"), re.DOTALL | re.MULTILINE
    )
    return dict(
        each.removeprefix("--").split("=")
        for each in json.loads(command.replace("\\\n", ""))
    )


def test_every_settings_file_is_copied_and_named_by_a_flag():
    copied = re.findall(
        r"^COPY ([^-].*) /etc/serving/$", read("Dockerfile"), re.MULTILINE
    )[0].split()
    named = {
        pathlib.PurePosixPath(value).name
        for value in flags().values()
        if value.startswith("/etc/serving/")
    }
    assert (
        set(copied) == named == {each.name for each in DEPLOY.glob("*.pbtxt")}
    )


def test_threads_suffice_for_two_full_batches():
    settings = text_format.Parse(
        read("batching.pbtxt"), message("batching.pbtxt")
    )
    threads = int(flags()["grpc_max_threads"])
    assert threads >= 2 * settings.max_batch_size.value


def test_both_services_build_the_image_of_the_dockerfile():
    compose = read("compose.yaml")
    stages = re.findall(r"^FROM .* AS (\S+)$", read("Dockerfile"), re.MULTILINE)
    assert set(re.findall(r"target: (serving)\b", compose)) <= set(stages)
    images = re.findall(r"SERVING_IMAGE: (\S+)", compose)
    assert images == [
        "tensorflow/serving:2.21.0",
        "tensorflow/serving:2.20.0-gpu",
    ]
    assert f"ARG SERVING_IMAGE={images[0]}\n" in read("Dockerfile")
