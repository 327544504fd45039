"""The settings for TensorFlow Serving: well-formed, and complete.

No container engine runs them here; see serving/README.md.
"""

import json
import pathlib
import re
import subprocess

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
        "${SERVING_IMAGE:-tensorflow/serving:latest}",
        "${SERVING_IMAGE:-tensorflow/serving:latest-gpu}",
    ]
    assert "ARG SERVING_IMAGE=tensorflow/serving:latest\n" in read("Dockerfile")


def test_the_ports_are_those_of_this_machine_alone():
    ports = re.findall(r'^ +- "(.*:\d+)"', read("compose.yaml"), re.MULTILINE)
    assert len(ports) == 2
    assert all(x.startswith("${HOST:-127.0.0.1}:") for x in ports)


# As TensorFlow Serving writes them.
STATES = {
    "AVAILABLE": 0,
    "UNAVAILABLE": 1,
    "LOADING": 1,
    "END": 1,
}


@pytest.mark.parametrize("state", STATES)
def test_the_health_check_knows_the_state(state):
    (command,) = re.findall(
        r"^HEALTHCHECK .* CMD \\\n +(\[.*\])$", read("Dockerfile"), re.MULTILINE
    )
    *_, script = json.loads(command)
    asks, _, grep = script.partition("grep ")
    assert "GET /v1/models/%s HTTP/1.0" in asks
    answer = (
        'HTTP/1.0 200 OK\r\n\r\n{\n "model_version_status": [\n  {\n   '
        f'"version": "1",\n   "state": "{state}",\n   "status": {{\n    '
        '"error_code": "OK",\n    "error_message": ""\n   }\n  }\n ]\n}\n'
    )
    done = subprocess.run(
        ["bash", "-c", "grep " + grep.replace("<&3", "")],
        input=answer.encode(),
    )
    assert done.returncode == STATES[state]
