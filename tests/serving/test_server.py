"""The development server: what it loads, how it starts and how it ends."""

import ast
import json
import logging
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import grpc
import keras_attn_serving
import pytest
import tensorflow as tf
from grpc_health.v1 import health_pb2
from grpc_health.v1 import health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha import reflection_pb2_grpc
from keras_attn_serving import Client
from keras_attn_serving import ServingError
from keras_attn_serving.command.serve import main
from keras_attn_serving.server import Loading
from keras_attn_serving.server import Server
from keras_attn_serving.server.errors import Code
from keras_attn_serving.server.model import LoadError
from keras_attn_serving.server.model import Model
from keras_attn_serving.server.model import versions_at
from support.serving import toy_model
from tensorflow_serving.apis import get_model_metadata_pb2
from tensorflow_serving.apis import predict_pb2
from tensorflow_serving.apis import prediction_log_pb2


def serve(base_path, **options):
    return Server(base_path, toy_model.NAME, port=0, **options)


@pytest.fixture
def versions(toy_path, tmp_path):
    """A base path, and a function that adds the toy model to it."""

    def add(version):
        path = tmp_path / str(version)
        shutil.copytree(toy_path, path)
        return path

    add.base_path = tmp_path
    return add


def warm_up(path, *logs):
    folder = path / "assets.extra"
    folder.mkdir()
    file = folder / "tf_serving_warmup_requests"
    with tf.io.TFRecordWriter(str(file)) as writer:
        for log in logs:
            writer.write(log.SerializeToString())
    return file


def predict_log(texts, signature=""):
    request = predict_pb2.PredictRequest()
    request.model_spec.signature_name = signature
    request.inputs["text"].CopyFrom(tf.make_tensor_proto(texts))
    return prediction_log_pb2.PredictionLog(
        predict_log=prediction_log_pb2.PredictLog(request=request)
    )


def test_metadata_lists_the_signatures(client):
    metadata = client.metadata()
    assert metadata["serving_default"].inputs == {"text": ("string", (None,))}
    assert metadata["serving_default"].outputs == {
        "text": ("string", (None,)),
        "score": ("float32", (None,)),
    }
    assert metadata["add"].inputs["ids"] == ("int32", (None, 2))
    assert metadata["echo"].inputs["float16"] == ("float16", None)
    assert not any(name.startswith("__") for name in metadata)


def test_official_metadata_carries_the_whole_signature(prediction):
    request = get_model_metadata_pb2.GetModelMetadataRequest(
        metadata_field=["signature_def"]
    )
    request.model_spec.name = toy_model.NAME
    response = prediction.GetModelMetadata(request)
    assert response.model_spec.name == toy_model.NAME
    assert response.model_spec.version.value == toy_model.VERSION
    assert not response.model_spec.signature_name
    signatures = get_model_metadata_pb2.SignatureDefMap()
    assert response.metadata.keys() == {"signature_def"}
    assert response.metadata["signature_def"].Unpack(signatures)
    assert "__saved_model_init_op" in signatures.signature_def
    signature = signatures.signature_def["serving_default"]
    assert signature.inputs["text"].name == "serving_default_text:0"
    assert signature.method_name == "tensorflow/serving/predict"


@pytest.mark.parametrize("version", [None, toy_model.VERSION])
def test_the_loaded_version_is_available(client, version):
    assert client.status(version=version) == [
        (toy_model.VERSION, "AVAILABLE", 0, "")
    ]


@pytest.mark.parametrize("service", ["", "PredictionService", "ModelService"])
def test_health_is_serving_by_every_name(ours, channel, service):
    stub = health_pb2_grpc.HealthStub(channel)
    response = stub.Check(health_pb2.HealthCheckRequest(service=service))
    assert response.status == health_pb2.HealthCheckResponse.SERVING


@pytest.mark.parametrize(
    "service", ["nobody", "tensorflow.serving.PredictionService"]
)
def test_health_of_a_stranger_is_not_found(ours, channel, service):
    stub = health_pb2_grpc.HealthStub(channel)
    with pytest.raises(grpc.RpcError) as caught:
        stub.Check(health_pb2.HealthCheckRequest(service=service))
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND


def test_reflection_lists_the_services(ours, channel):
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    (response,) = stub.ServerReflectionInfo(iter([request]))
    assert {each.name for each in response.list_services_response.service} == {
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
        "tensorflow.serving.ModelService",
        "tensorflow.serving.PredictionService",
    }


def test_a_version_is_a_number_with_a_model_in_it(tmp_path):
    for name in ("3", "10", "007", "latest", ".tmp-11", "-12", "1.5", "²"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "saved_model.pb").touch()
    (tmp_path / "13").write_text("a file is no version")
    (tmp_path / "14" / "variables").mkdir(parents=True)  # half written
    assert versions_at(str(tmp_path)) == {
        number: str(tmp_path / name)
        for number, name in ((3, "3"), (10, "10"), (7, "007"))
    }


def test_the_newest_version_is_served(versions):
    versions(2)
    versions(12)
    with serve(versions.base_path) as server:
        assert server.version == 12
        with Client(server.address, toy_model.NAME) as client:
            assert client.predict(["cat"]).version == 12


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nowhere", "is not a directory"),
        ("empty", "directory for each version"),
        ("itself", "directory above the versions"),
        ("half", "directory for each version.*with saved_model.pb in it"),
        ("broken", "Version 1 of model 'toy' .* cannot be loaded"),
    ],
)
def test_a_directory_without_a_model_is_refused_with_advice(
    tmp_path, name, words
):
    (tmp_path / "empty").mkdir()
    (tmp_path / "itself").mkdir()
    (tmp_path / "itself" / "saved_model.pb").touch()
    (tmp_path / "half" / "1").mkdir(parents=True)
    (tmp_path / "broken" / "1").mkdir(parents=True)
    (tmp_path / "broken" / "1" / "saved_model.pb").write_text("no model")
    with pytest.raises(LoadError, match=words):
        serve(tmp_path / name)


@pytest.mark.parametrize("damage", ["saved_model.pb", "variables"])
def test_a_damaged_version_is_refused(versions, damage):
    path = versions(1)
    if damage == "variables":
        shutil.rmtree(path / damage)
    else:
        (path / damage).write_bytes(b"\xff not a model")
    with pytest.raises(LoadError, match="cannot be loaded"):
        serve(versions.base_path)


def cut(file):
    file.write_bytes(file.read_bytes()[:1000])


DAMAGES = {
    "saved_model.pb": lambda path: cut(path / "saved_model.pb"),
    "no graph": lambda path: (path / "saved_model.pb").write_bytes(b""),
    "index": lambda path: (path / "variables/variables.index").write_text("x"),
    "values": lambda path: shutil.copy(os.devnull, values(path)),
    "no values": lambda path: values(path).unlink(),
    "no asset": lambda path: shutil.rmtree(path / "assets"),
    "asset": lambda path: next(path.glob("assets/*")).write_bytes(b"\xff"),
}


def values(path):
    return path / "variables" / "variables.data-00000-of-00001"


# In a process of its own, as it switches XLA off for good.
PROGRAM = """
import json, pathlib, sys
import tensorflow_text
from support import c_loader
codes = {}
for path in pathlib.Path(sys.argv[1]).iterdir():
    try:
        c_loader.CLoader(path)
    except c_loader.CLoaderError as error:
        codes[path.name] = error.args[0]
print(json.dumps(codes))
"""


@pytest.mark.full
def test_a_damaged_version_has_the_code_of_tensorflows_c_loader(
    toy_path, tmp_path
):
    ours = {}
    for name, damage in DAMAGES.items():
        path = shutil.copytree(toy_path, tmp_path / name)
        damage(path)
        with pytest.raises(LoadError) as caught:
            Model(toy_model.NAME, 1, str(path))
        ours[name] = caught.value.code
    # Python cannot read the text of this error, which is no UTF-8.
    assert ours.pop("asset") == Code.INVALID_ARGUMENT
    shutil.rmtree(tmp_path / "asset")
    tests = pathlib.Path(__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, tmp_path],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tests)},
    )
    assert done.returncode == 0, done.stderr
    assert ours == json.loads(done.stdout)


def test_the_status_has_the_code_of_a_version_that_fails(versions):
    versions(1)
    loading = Loading(poll_seconds=0.02, retries=1, retry_seconds=0.02)
    with serve(versions.base_path, loading=loading) as server:
        DAMAGES["index"](versions(2))
        with Client(server.address, toy_model.NAME) as client:
            deadline = time.monotonic() + 30
            while client.status()[0][:2] != (2, "END"):
                assert time.monotonic() < deadline
                time.sleep(0.02)
            assert client.status()[0].error_code == Code.DATA_LOSS


def test_warm_up_requests_are_replayed(versions):
    warm_up(versions(1), predict_log(["cat"]), predict_log(["1"], "number"))
    with serve(versions.base_path) as server:
        assert server.version == 1


@pytest.mark.sample_cases(1)
@pytest.mark.parametrize(
    ("log", "words"),
    [
        (predict_log(["cat"], "number"), "record 2 .*could not correctly"),
        (predict_log(["cat"], "nothing"), 'key "nothing" not found'),
        (
            prediction_log_pb2.PredictionLog(
                session_run_log=prediction_log_pb2.SessionRunLog()
            ),
            "must be a predict_log. Received: session_run_log",
        ),
    ],
    ids=["failing", "unknown signature", "other kind"],
)
def test_a_failing_warm_up_request_fails_the_load(versions, log, words):
    warm_up(versions(1), predict_log(["cat"]), log)
    with pytest.raises(LoadError, match=words):
        serve(versions.base_path)
    with serve(versions.base_path, loading=Loading(warm_up=False)) as server:
        assert server.version == 1


def test_the_log_tells_what_is_loaded_and_warmed_up(versions, caplog):
    path = versions(1)
    warm_up(path, predict_log(["cat"]), predict_log(["1"], "number"))
    with caplog.at_level(logging.INFO), serve(versions.base_path):
        pass
    said = [
        x.getMessage() for x in caplog.records if "model=" in x.getMessage()
    ]
    assert said[:3] == [
        f"loading model=toy version=1 path={path}",
        "warming up model=toy version=1 record=1/2 signature=serving_default",
        "warming up model=toy version=1 record=2/2 signature=number",
    ]
    assert said[3].startswith("warmed up model=toy version=1 records=2 seconds")
    assert said[4].startswith("loaded model=toy version=1 seconds=")


@pytest.mark.parametrize(
    "content", [b"", b"not a TFRecord file", b"\0" * 40], ids=len
)
def test_a_damaged_warm_up_file_fails_the_load(versions, content):
    file = warm_up(versions(1), predict_log(["cat"]))
    file.write_bytes(content)
    if not content:  # no records
        serve(versions.base_path).stop()
        return
    with pytest.raises(LoadError, match="TFRecord format"):
        serve(versions.base_path)


@pytest.mark.full
def test_a_thousand_and_one_warm_up_requests_are_too_many(versions):
    warm_up(versions(1), *[predict_log(["cat"])] * 1001)
    with pytest.raises(LoadError, match=r"exceeds the maximum \(1000\)"):
        serve(versions.base_path)


def test_two_servers_do_not_share_a_port(toy_path):
    with serve(toy_path.parent) as server:
        with pytest.raises(OSError, match=f"cannot listen.*{server.port}"):
            Server(toy_path.parent, toy_model.NAME, port=server.port)


def test_a_stopped_server_answers_no_more(toy_path):
    server = serve(toy_path.parent)
    with Client(server.address, toy_model.NAME) as client:
        assert client.predict(["cat"])["text"] == ["chat"]
        server.stop()
        with pytest.raises(ServingError) as caught:
            client.predict(["cat"])
    assert caught.value.code == grpc.StatusCode.UNAVAILABLE


def test_stopping_twice_does_no_harm(toy_path):
    with serve(toy_path.parent) as server:
        server.stop()


def test_a_run_past_its_deadline_gives_its_thread_back(toy_path):
    with (
        serve(toy_path.parent, threads=1) as server,
        Client(server.address, toy_model.NAME) as client,
    ):
        client.predict(["cat"])
        forever = {"steps": [10**15]}
        with pytest.raises(ServingError) as caught:
            client.predict(forever, "slow", timeout=0.3)
        assert caught.value.code == grpc.StatusCode.DEADLINE_EXCEEDED
        # This answers only if the single thread is free again.
        assert client.predict(["cat"], timeout=30)["text"] == ["chat"]


def test_the_distribution_imports_neither_keras_nor_keras_attn():
    folder = pathlib.Path(keras_attn_serving.__file__).parent
    names = set()
    for file in folder.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0
                names.add(node.module)
    assert {name.partition(".")[0] for name in names} & {
        "keras",
        "keras_attn",
        "tf_keras",
    } == set()
    assert "tensorflow" in names


# TensorFlow itself imports Keras, where there is one; what counts is that the
# server works when, from there on, nobody can.
WITHOUT_KERAS = """
import sys
import tensorflow, tensorflow_text

class Nowhere:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("keras", "keras_attn", "tf_keras"):
            raise ModuleNotFoundError(name)

for name in list(sys.modules):
    if name.partition(".")[0] in ("keras", "keras_attn", "tf_keras"):
        del sys.modules[name]
sys.meta_path.insert(0, Nowhere())

from keras_attn_serving import Client
from keras_attn_serving.server import Server

with Server(sys.argv[1], "toy", port=0) as server:
    print(Client(server.address, "toy").predict(["cat"])["text"])
"""


@pytest.mark.full
def test_the_server_runs_where_keras_cannot_be_imported(toy_path):
    result = subprocess.run(
        [sys.executable, "-c", WITHOUT_KERAS, str(toy_path.parent)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout == "['chat']\n"


def command(*flags):
    python = [sys.executable, "-W", "error::DeprecationWarning"]
    return [*python, "-m", "keras_attn_serving", *flags]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGTERM to send.")
def test_the_command_serves_until_it_is_told_to_end(toy_path):
    process = subprocess.Popen(
        command(
            f"--model_base_path={toy_path.parent}",
            "--model_name=toy",
            "--port=0",
        ),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        line = process.stdout.readline()
        start = f"serving model toy version {toy_model.VERSION} at localhost:"
        assert line.startswith(start), process.communicate(timeout=30)
        with Client(line.split()[-1], "toy", timeout=60) as client:
            assert client.predict(["hello cat"])["text"] == ["bonjour chat"]
            # As in TensorFlow Serving, XLA is off.
            with pytest.raises(ServingError) as caught:
                client.predict({"x": [1.0]}, "compiled")
        assert caught.value.code == grpc.StatusCode.INTERNAL
        assert "XLA compilation disabled" in caught.value.message
        process.send_signal(signal.SIGTERM)
        rest, log = process.communicate(timeout=60)
        assert process.returncode == 0
        assert not rest  # one line, and the log beside it
        assert "importing TensorFlow" in log
        assert "--xla_cpu_compilation_enabled" in log
    finally:
        process.kill()
        process.communicate()


@pytest.mark.full
def test_a_warm_up_that_needs_xla_says_how_to_start_the_server(versions):
    request = predict_pb2.PredictRequest()
    request.model_spec.signature_name = "compiled"
    request.inputs["x"].CopyFrom(tf.make_tensor_proto([1.0]))
    log = prediction_log_pb2.PredictLog(request=request)
    warm_up(versions(1), prediction_log_pb2.PredictionLog(predict_log=log))
    done = subprocess.run(
        command(f"--model_base_path={versions.base_path}", "--port=0"),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1
    assert "--xla_cpu_compilation_enabled" in done.stderr
    assert "error: Warm-up record 1 of 1" in done.stderr


@pytest.mark.parametrize(
    "flag",
    [
        "--max_rows=0",
        "--max_run_seconds=inf",
        "--max_run_seconds=nan",
        "--max_message_bytes=9999999999",
        "--grpc_max_threads=-2",
        "--port=99999",
        "--port=-1",
    ],
)
def test_a_number_that_cannot_be_is_refused(flag, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["--model_base_path=x", flag])
    assert "must be" in capsys.readouterr().err


def test_the_command_explains_its_flags_without_tensorflow():
    result = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys\n"
            "sys.modules['tensorflow'] = None\n"
            "from keras_attn_serving.command.serve import main\n"
            "main(['--help'])",
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 0, result.stderr
    for flag in ("--model_base_path", "--rest_api_port", "--port", "--host"):
        assert flag in result.stdout


def test_the_command_says_why_it_cannot_serve(
    tmp_path, monkeypatch, caplog, capsys
):
    # In this process, so XLA stays on and the log level is given back.
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "1")
    with caplog.at_level(logging.ERROR, "tensorflow"):
        status = main(
            [
                f"--model_base_path={tmp_path / 'nowhere'}",
                "--xla_cpu_compilation_enabled",
            ]
        )
    assert status == 1
    error = capsys.readouterr().err
    assert error.startswith("error: The model's base path must be a directory")
