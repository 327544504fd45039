"""Clients that no one here wrote: grpc-js, grpcurl, curl, where they are."""

import json
import os
import pathlib
import shutil
import subprocess

import pytest
from google.protobuf import descriptor_pb2
from keras_attn_serving.server import Rest
from keras_attn_serving.server import Server
from support.serving import toy_model
from tensorflow_serving.apis import prediction_service_pb2

pytestmark = pytest.mark.system


def needs(name):
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed.")


def run(*command, **options):
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, **options
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def server(toy_path):
    with Server(toy_path.parent, toy_model.NAME, port=0, rest=Rest()) as server:
        yield server


def descriptors(*files):
    """Writes the files and those they import as one set, each after its own."""
    result, seen = descriptor_pb2.FileDescriptorSet(), set()

    def add(file):
        if file.name not in seen:
            seen.add(file.name)
            for other in file.dependencies:
                add(other)
            file.CopyToProto(result.file.add())

    for file in files:
        add(file)
    return result.SerializeToString()


SCRIPT = """
const grpc = require("@grpc/grpc-js");
const loader = require("@grpc/proto-loader");
const [set, address] = process.argv.slice(2);
const definition = loader.loadFileDescriptorSetFromBuffer(
  require("fs").readFileSync(set), {longs: String, enums: String});
const serving = grpc.loadPackageDefinition(definition).tensorflow.serving;
const client = new serving.PredictionService(
  address, grpc.credentials.createInsecure());
const text = ["hello cat", "gr\\u00fc\\u00df"].map((x) => Buffer.from(x));
const ask = (inputs, then) => client.Predict(
  {model_spec: {name: "toy"}, inputs}, {deadline: Date.now() + 60000}, then);
const tensor = {
  dtype: "DT_STRING", tensor_shape: {dim: [{size: 2}]}, string_val: text};
// Of a descriptor, names stay as they are and a map is a list of entries.
ask([{key: "text", value: tensor}], (error, answer) => {
  if (error) throw error;
  const {text, score} = Object.fromEntries(
    answer.outputs.map(({key, value}) => [key, value]));
  ask([], (refusal) => console.log(JSON.stringify({
    text: text.string_val.map(String), score: score.float_val,
    version: answer.model_spec.version.value,
    code: refusal.code, details: refusal.details})));
});
"""


def test_grpc_js_asks_a_model(server, tmp_path):
    needs("node")
    modules = os.environ.get("NODE_PATH", "")
    if not any(
        pathlib.Path(x, "@grpc", "proto-loader").is_dir()
        for x in modules.split(os.pathsep)
    ):
        pytest.skip(
            "NODE_PATH names no folder with @grpc/grpc-js and "
            "@grpc/proto-loader."
        )
    script, described = tmp_path / "ask.js", tmp_path / "set"
    script.write_text(SCRIPT)
    described.write_bytes(descriptors(prediction_service_pb2.DESCRIPTOR))
    found = json.loads(run("node", script, described, server.address))
    assert found["text"] == ["bonjour chat", "?"]
    assert found["score"] == [-1.0, -0.5]
    assert found["version"] == str(toy_model.VERSION)
    assert found["code"] == 3
    assert found["details"].startswith("input size does not match signature")


def test_grpcurl_describes_and_asks_without_any_proto(server):
    needs("grpcurl")

    def ask(*arguments):
        return run("grpcurl", "-plaintext", *arguments)

    service = "tensorflow.serving.PredictionService"
    assert service in ask(server.address, "list")
    described = ask(server.address, "describe", service)
    assert "rpc Predict (" in described
    health = ask(server.address, "grpc.health.v1.Health/Check")
    assert json.loads(health) == {"status": "SERVING"}
    request = {
        "model_spec": {"name": "toy"},
        "inputs": {
            "text": {
                "dtype": "DT_STRING",
                "tensor_shape": {"dim": [{"size": 1}]},
                "string_val": ["Y2F0"],
            }
        },
    }
    method = f"{service}/Predict"
    answer = json.loads(ask("-d", json.dumps(request), server.address, method))
    assert answer["outputs"]["text"]["stringVal"] == ["Y2hhdA=="]


def test_grpc_health_probe_finds_it_serving(server):
    needs("grpc_health_probe")
    run("grpc_health_probe", f"-addr={server.address}")


def test_curl_asks_by_rest(server):
    needs("curl")
    url = f"http://{server.rest_address}/v1/models/toy"
    body = '{"instances": ["hello cat", "grüß"]}'
    answer = run("curl", "--silent", "--fail", "-d", body, f"{url}:predict")
    assert json.loads(answer) == {
        "predictions": [
            {"text": "bonjour chat", "score": -1.0},
            {"text": "?", "score": -0.5},
        ]
    }
    status = run("curl", "--silent", "--fail", "--compressed", url)
    assert '"state": "AVAILABLE"' in status
