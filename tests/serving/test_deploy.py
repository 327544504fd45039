"""The files for TensorFlow Serving: its settings, images and Compose.

No container engine runs them here; see serving/README.md.
"""

import json
import pathlib
import re
import subprocess
import sys

import pytest
import yaml
from keras_attn_serving.server import config
from support.serving.deployed import DEPLOY
from support.serving.deployed import flags
from support.serving.deployed import read


def test_the_metrics_are_on():
    assert config.read_metrics_path(str(DEPLOY / "monitoring.pbtxt"))


def test_every_settings_file_is_copied_and_named_by_a_flag():
    copied = re.findall(
        r"^COPY ([^-].*) /etc/serving/$", read("Dockerfile"), re.MULTILINE
    )[0].split()
    named = {
        pathlib.PurePosixPath(value).name
        for value in flags().values()
        if value.startswith("/etc/serving/")
    }
    given_on_request = {"models.pbtxt"}
    assert set(copied) == named
    assert named | given_on_request == {x.name for x in DEPLOY.glob("*.pbtxt")}


def test_the_queue_is_full_before_the_threads_are():
    # A call of one text holds a thread while it runs or waits. Only one that
    # has a thread can be refused by the queue.
    batching = config.read_batching(str(DEPLOY / "batching.pbtxt"))
    batches = batching.num_batch_threads + batching.max_enqueued_batches
    texts = batches * batching.max_batch_size
    assert texts == 768  # the number in the Dockerfile and batching.pbtxt
    assert int(flags()["grpc_max_threads"]) >= texts + 256


def test_the_labels_name_versions_that_are_loaded():
    (model,) = config.read_models(str(DEPLOY / "models.pbtxt"))
    labels = dict(model.labels)
    assert set(labels) == {"stable", "canary"}
    assert set(labels.values()) == model.versions
    assert model.base_path == f"/models/{model.name}"  # where Compose mounts it


@pytest.fixture(scope="module")
def compose():
    return yaml.safe_load(read("compose.yaml"))


def test_compose_is_valid_by_its_schema():
    path = DEPLOY / "compose.yaml"
    command = "-m check_jsonschema --builtin-schema vendor.compose-spec"
    done = subprocess.run(
        [sys.executable, *command.split(), path], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_both_services_build_the_image_of_the_dockerfile(compose):
    stages = re.findall(r"^FROM .* AS (\S+)$", read("Dockerfile"), re.MULTILINE)
    images = {}
    for name, service in compose["services"].items():
        assert service["build"]["target"] in stages
        images[name] = service["build"]["args"]["SERVING_IMAGE"]
    assert images == {
        "cpu": "${SERVING_IMAGE:-tensorflow/serving:latest}",
        "gpu": "${SERVING_IMAGE:-tensorflow/serving:latest-gpu}",
    }
    assert "ARG SERVING_IMAGE=tensorflow/serving:latest\n" in read("Dockerfile")


def test_services_come_back_have_a_limit_and_stay_on_this_machine(compose):
    for service in compose["services"].values():
        assert service["restart"] == "unless-stopped"
        assert service["mem_limit"] == "${MEMORY:-4g}"
        assert len(service["ports"]) == 2
        for port in service["ports"]:
            assert port.startswith("${HOST:-127.0.0.1}:")
        assert all(volume["read_only"] for volume in service["volumes"])


def test_services_have_no_more_rights_than_they_need(compose):
    for service in compose["services"].values():
        assert service["read_only"] and service["tmpfs"] == ["/tmp"]
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        # As many threads as the flags ask for, and others.
        assert service["pids_limit"] >= 2 * int(flags()["grpc_max_threads"])


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
