"""Operating the server: swaps under load, reloads, TLS, sockets, an end."""

import concurrent.futures
import contextlib
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.request

import grpc
import numpy as np
import pytest
import tensorflow as tf
import trustme
from grpc_health.v1 import health_pb2
from grpc_health.v1 import health_pb2_grpc
from keras_attn_serving import Client
from keras_attn_serving import RestClient
from keras_attn_serving import ServingError
from keras_attn_serving.server import Loading
from keras_attn_serving.server import Rest
from keras_attn_serving.server import Server
from keras_attn_serving.server.config import Batching
from keras_attn_serving.server.config import ConfigError
from keras_attn_serving.server.config import ModelConfig
from keras_attn_serving.server.config import Tls
from keras_attn_serving.server.limits import Limits
from support.serving.configurations import NESTED
from support.serving.helpers import free_port
from tensorflow_serving.apis import model_management_pb2
from tensorflow_serving.apis import model_service_pb2_grpc

QUICK = Loading(poll_seconds=0.05)


@pytest.fixture
def add(toy_path, tmp_path):
    """A base path, and a function that adds the toy model to it, whole."""

    def add(version, model="toy"):
        base = tmp_path / model
        base.mkdir(exist_ok=True)
        shutil.copytree(toy_path, base / ".writing")
        (base / ".writing").rename(base / str(version))
        return base

    add.base_path = tmp_path / "toy"
    return add


@pytest.mark.parametrize(
    "batching",
    [pytest.param(None, marks=pytest.mark.full), Batching()],
    ids=["alone", "batch"],
)
def test_a_swap_under_load_fails_no_request(add, batching):
    add(1)
    ended = threading.Event()
    with (
        Server(
            add.base_path, "toy", port=0, loading=QUICK, batching=batching
        ) as server,
        Client(server.address, "toy", timeout=60) as client,
        concurrent.futures.ThreadPoolExecutor(4) as pool,
    ):
        answered = []

        def ask():
            while not ended.is_set():
                result = client.predict(["cat", "hello world"])
                assert result["text"] == ["chat", "bonjour monde"]
                answered.append(result.version)

        def wait_for(version):
            for _ in range(1200):  # at most 60 s
                if answered[-8:] == [version] * 8:
                    return
                time.sleep(0.05)
            raise AssertionError(f"{version} never answered")

        asking = [pool.submit(ask) for _ in range(4)]
        try:
            for version in (2, 3):
                add(version)
                wait_for(version)
            shutil.rmtree(add.base_path / "3")  # roll back
            wait_for(2)
        finally:
            ended.set()
        for each in asking:
            each.result()  # none failed
        assert server.version == 2


def test_several_models_are_served_and_reloaded(add):
    add(1, "a")
    add(1, "b")
    add(2, "b")
    base = add.base_path.parent
    models = [
        ModelConfig("a", str(base / "a")),
        ModelConfig("b", str(base / "b"), latest=2),
    ]
    with (
        Server(models=models, port=0) as server,
        Client(server.address) as client,
        grpc.insecure_channel(server.address) as channel,
    ):
        assert client.predict(["cat"], model="a").version == 1
        assert client.predict(["cat"], model="b").version == 2
        assert client.predict(["cat"], model="b", version=1).version == 1
        stub = model_service_pb2_grpc.ModelServiceStub(channel)
        request = model_management_pb2.ReloadConfigRequest()
        config = request.config.model_config_list.config.add(
            name="b",
            base_path=str(base / "b"),
            model_platform="tensorflow",
        )
        config.model_version_policy.all.SetInParent()
        config.version_labels["stable"] = 1
        stub.HandleReloadConfigRequest(request)
        answer = client.predict(["cat"], model="b", version="stable")
        assert answer.version == 1
        with pytest.raises(ServingError, match="Latest"):
            client.predict(["cat"], model="a")
        assert [x.state for x in client.status(model="a")] == ["END"]

        config.version_labels["stable"] = 9
        with pytest.raises(grpc.RpcError) as caught:
            stub.HandleReloadConfigRequest(request)
        assert caught.value.code() == grpc.StatusCode.FAILED_PRECONDITION
        assert "assign label to version 9" in caught.value.details()
        with pytest.raises(grpc.RpcError) as caught:
            stub.HandleReloadConfigRequest(
                model_management_pb2.ReloadConfigRequest()
            )
        assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert "type not supported" in caught.value.details()


def test_a_server_needs_one_of_a_path_and_models(add):
    for wrong in ({}, {"model_base_path": "x", "models": []}):
        with pytest.raises(ValueError, match="needs either"):
            Server(port=0, **wrong)


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


def pem(*blobs):
    return b"".join(each.bytes() for each in blobs)


def tls(authority, verify_client=False):
    certificate = authority.issue_cert("localhost")
    return Tls(
        pem(certificate.private_key_pem),
        pem(*certificate.cert_chain_pems),
        pem(authority.cert_pem),
        verify_client,
    )


def test_the_port_is_encrypted(toy_path, authority):
    with Server(toy_path.parent, "toy", port=0, tls=tls(authority)) as server:
        trusted = grpc.ssl_channel_credentials(pem(authority.cert_pem))
        with Client(server.address, "toy", credentials=trusted) as client:
            assert client.predict(["cat"])["text"] == ["chat"]
        others = grpc.ssl_channel_credentials(pem(trustme.CA().cert_pem))
        for credentials in (None, others):
            with Client(
                server.address, "toy", credentials=credentials, timeout=10
            ) as client:
                with pytest.raises(ServingError) as caught:
                    client.predict(["cat"])
                assert caught.value.code == grpc.StatusCode.UNAVAILABLE


def test_clients_show_who_they_are(toy_path, authority):
    mine = authority.issue_cert("client@example.org")
    known = grpc.ssl_channel_credentials(
        pem(authority.cert_pem),
        pem(mine.private_key_pem),
        pem(*mine.cert_chain_pems),
    )
    unknown = grpc.ssl_channel_credentials(pem(authority.cert_pem))
    with Server(
        toy_path.parent, "toy", port=0, tls=tls(authority, True)
    ) as server:
        with Client(server.address, "toy", credentials=known) as client:
            assert client.predict(["cat"])["text"] == ["chat"]
        with Client(
            server.address, "toy", credentials=unknown, timeout=10
        ) as client:
            with pytest.raises(ServingError):
                client.predict(["cat"])


@pytest.mark.skipif(sys.platform == "win32", reason="no Unix sockets")
def test_a_unix_socket_answers_too(toy_path, tmp_path_factory):
    path = tmp_path_factory.mktemp("s") / "s"
    with Server(
        toy_path.parent, "toy", port=0, socket_path=str(path)
    ) as server:
        for address in (f"unix:{path}", server.address):
            with Client(address, "toy") as client:
                assert client.predict(["cat"])["text"] == ["chat"]
    with pytest.raises(OSError, match="needs a path for its Unix socket"):
        Server(
            toy_path.parent, "toy", port=0, socket_path=str(path / "no" / "s")
        )


def test_a_port_that_is_taken_for_one_address_is_noticed(toy_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(OSError, match=f"cannot listen.*{port}"):
            Server(toy_path.parent, "toy", port=port)
        with pytest.raises(OSError, match=f"cannot listen.*{port}"):
            Server(toy_path.parent, "toy", port=0, rest=Rest(port))


def test_open_health_streams_do_not_hold_up_the_end(toy_path):
    server = Server(toy_path.parent, "toy", port=0, rest=Rest())
    with grpc.insecure_channel(server.address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        watching = stub.Watch(health_pb2.HealthCheckRequest())
        serving = health_pb2.HealthCheckResponse.SERVING
        assert next(watching).status == serving
        started = time.monotonic()
        server.stop(grace=60.0)
        assert time.monotonic() - started < 30
        with contextlib.suppress(grpc.RpcError):
            assert next(watching).status != serving


def test_calls_in_flight_are_answered_before_the_end(toy_path):
    server = Server(toy_path.parent, "toy", port=0)
    with (
        Client(server.address, "toy", timeout=60) as client,
        concurrent.futures.ThreadPoolExecutor(1) as pool,
    ):
        client.predict({"steps": np.array([1])}, "slow")
        steps = np.array([20_000])
        call = pool.submit(client.predict, {"steps": steps}, "slow")
        while not server._executor._active:
            assert not call.done()
        server.stop(grace=60.0)
        assert call.result()["count"][0] == 20_000


@pytest.fixture
def command(request):
    processes = []

    def run(*flags):
        process = subprocess.Popen(
            [sys.executable, "-m", "keras_attn_serving", *flags],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        line = process.stdout.readline()
        assert line.startswith("serving "), process.communicate(timeout=30)
        return line

    yield run
    for process in processes:
        process.kill()
        process.communicate()


@pytest.mark.full
def test_the_command_serves_a_config_file_with_everything(
    add, authority, tmp_path, command
):
    base = add(1).parent
    add(2)
    certificate = authority.issue_cert("localhost")

    def quoted(*blobs):
        return pem(*blobs).decode().replace("\n", "\\n")

    files = {
        "models": f"""model_config_list {{ config {{
            name: 'toy' base_path: '{base / "toy"}'
            model_platform: 'tensorflow'
            model_version_policy {{ all {{}} }}
            version_labels {{ key: 'stable' value: 1 }}
            version_labels {{ key: 'canary' value: 2 }} }} }}""",
        "batching": "max_batch_size { value: 2 }",
        "monitoring": "prometheus_config { enable: true }",
        "ssl": f'server_key: "{quoted(certificate.private_key_pem)}" '
        f'server_cert: "{quoted(*certificate.cert_chain_pems)}"',
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    rest = free_port()
    line = command(
        "--port=0",
        f"--rest_api_port={rest}",
        f"--model_config_file={tmp_path / 'models'}",
        "--model_config_file_poll_wait_seconds=0.05",
        "--allow_version_labels_for_unavailable_models",
        "--enable_batching",
        f"--batching_parameters_file={tmp_path / 'batching'}",
        f"--monitoring_config_file={tmp_path / 'monitoring'}",
        f"--ssl_config_file={tmp_path / 'ssl'}",
        "--grpc_max_threads=256",
    )
    assert "models toy at localhost:" in line
    assert f"(REST: localhost:{rest})" in line
    address = line.split(" at ")[1].split()[0]
    trusted = grpc.ssl_channel_credentials(pem(authority.cert_pem))
    with Client(address, "toy", credentials=trusted, timeout=60) as client:
        for label, version in (("stable", 1), ("canary", 2)):
            assert client.predict(["cat"], version=label).version == version
        # Refused once, for its size, and then sent in parts.
        assert client.predict(["cat"] * 3)["text"] == ["chat"] * 3
        (tmp_path / "models").write_text(
            files["models"].replace("value: 1", "value: 2")
        )
        for _ in range(600):  # at most 30 s
            if client.predict(["cat"], version="stable").version == 2:
                break
            time.sleep(0.05)
        assert client.predict(["cat"], version="stable").version == 2
    page = urllib.request.urlopen(
        f"http://localhost:{rest}/monitoring/prometheus/metrics"
    ).read()
    count = b'request_count{model_name="toy",status="INVALID_ARGUMENT"} 1.0'
    assert count in page


@pytest.fixture
def changing(tmp_path):
    """A base path with version 1 of a model, and a way to version 2."""
    text = tf.TensorSpec([None], tf.string, "text")
    length = tf.TensorSpec([None], tf.int32, "width")
    further = tf.TensorSpec([None], tf.int32, "max_length")
    prefix = tf.TensorSpec([None], tf.string, "prefix")

    def save(version, **signatures):
        module = tf.Module()
        module.functions = {
            name: tf.function(function).get_concrete_function(*specs)
            for name, (function, *specs) in signatures.items()
        }
        path = tmp_path / f"writing{version}"
        tf.saved_model.save(module, str(path), signatures=module.functions)
        path.rename(tmp_path / "m" / str(version))

    def one(version):
        save(
            version,
            serving_default=(lambda text: {"text": text}, text),
            one=(lambda text: {"a": tf.strings.length(text)}, text),
            options=(
                lambda text, prefix, width: {
                    "text": prefix + text,
                    "error": tf.where(width > 0, "", ""),
                },
                *(text, prefix, length),
            ),
        )

    def two(version):
        save(
            version,
            serving_default=(
                lambda text: {"text": text, "more": text + text},
                text,
            ),
            one=(lambda text: {"b": text}, text),
            nbest=(lambda text: {"texts": text[:, None]}, text),
            options=(
                lambda text, prefix, width, max_length: {
                    "text": prefix + text,
                    "error": tf.where(width + max_length > 0, "", ""),
                },
                *(text, prefix, length, further),
            ),
        )

    (tmp_path / "m").mkdir()
    one(1)
    return tmp_path / "m", two


@pytest.mark.parametrize("kind", ["rest", "grpc"])
def test_clients_see_that_another_version_has_taken_over(changing, kind):
    base, two = changing
    with Server(base, "m", port=0, rest=Rest(), loading=QUICK) as server:
        if kind == "rest":
            client = RestClient(server.rest_address, "m")
        else:
            client = Client(server.address, "m")
        with client:
            assert client.predict(["a"])["text"] == ["a"]
            assert client.predict(["a"], "one")["a"].tolist() == [1]
            found = client.translate(["a"], ["x"], options={"width": 2})
            assert found["text"] == ["xa"]
            two(2)
            wait_for(lambda: server.version == 2)
            assert client.predict(["a"], "nbest")["texts"] == [["a"]]
            assert client.predict(["a"])["more"] == ["aa"]
            assert client.predict(["a"], "one")["b"] == ["a"]
            for name in "width", "num_beams":
                found = client.translate(["a"], ["x"], options={name: 2})
                assert found["text"] == ["xa"]
            both = {"width": 2, "num_beams": 2}
            with pytest.raises(ValueError, match="two names of one option"):
                client.translate(["a"], options=both)
            client.translate(["a"], options={"max_length": 2})
            with pytest.raises(ValueError, match="may hold.*'max_length'"):
                client.translate(["a"], options={"nothing": 2})


def wait_for(what, seconds=60):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end
        time.sleep(0.02)


def request_counts(server):
    """Returns the requests counted, by model and status."""
    url = f"http://{server.rest_address}/metrics"
    with urllib.request.urlopen(url) as answer:
        text = answer.read().decode()
    return {
        tuple(re.findall('="([^"]*)"', line)[:1])
        + tuple(re.findall('status="([^"]*)"', line)): float(line.split()[-1])
        for line in text.splitlines()
        if "request_count{" in line
    }


def test_calls_that_were_not_answered_are_counted_as_what_they_were(toy_path):
    limits = Limits(queued_calls=1)
    rest = Rest(metrics_path="/metrics")
    with (
        Server(
            toy_path.parent, "toy", port=0, threads=1, limits=limits, rest=rest
        ) as server,
        Client(server.address, "toy") as client,
        concurrent.futures.ThreadPoolExecutor(3) as pool,
    ):

        def code(seconds):
            with pytest.raises(ServingError) as caught:
                client.predict(LONG_RUN, "slow", timeout=seconds)
            return caught.value.code.name

        asked = [pool.submit(code, 3.0) for _ in range(3)]
        names = sorted(each.result() for each in asked)
        assert names.count("UNAVAILABLE") >= 1
        wait_for(lambda: sum(request_counts(server).values()) == 3)
        counts = request_counts(server)
        assert {model for model, _ in counts} == {"toy"}
        assert not any(status == "OK" for _, status in counts)


LONG_RUN = {"steps": np.array([10**9])}


@pytest.mark.full
def test_a_configuration_that_is_put_back_is_served_again(add, tmp_path):
    add(1, "a")
    add(1, "b")
    (tmp_path / "broken" / "1").mkdir(parents=True)
    (tmp_path / "broken" / "1" / "saved_model.pb").write_bytes(b"\xff" * 9)
    file, log = tmp_path / "models.pbtxt", tmp_path / "log"

    def write(**models):
        text = " ".join(
            f"config {{ name: '{name}' base_path: '{tmp_path / folder}' "
            "model_platform: 'tensorflow' }"
            for name, folder in models.items()
        )
        new = file.with_suffix(".new")
        new.write_text(f"model_config_list {{ {text} }}")
        new.replace(file)

    write(a="a", b="b")
    command = [sys.executable, "-m", "keras_attn_serving", "--port=0"]
    command.append(f"--model_config_file={file}")
    command.append("--model_config_file_poll_wait_seconds=0.5")
    with (
        open(log, "w") as errors,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process,
    ):
        try:
            address = process.stdout.readline().split()[-1]
            with Client(address) as client:
                client.predict(["cat"], model="b")
                write(a="a", x="broken")
                wait_for(lambda: "is not served" in log.read_text())
                file.write_text(NESTED)
                wait_for(lambda: "nested too deeply" in log.read_text())
                write(a="a", b="b")

                def served():
                    status = client.status(model="b")
                    return status[0].state == "AVAILABLE"

                wait_for(served)
                client.predict(["cat"], model="b")
            with grpc.insecure_channel(address) as channel:
                reload = channel.unary_unary(
                    "/tensorflow.serving.ModelService/HandleReloadConfigRequest"
                )
                with pytest.raises(grpc.RpcError):
                    reload(b"\x0b" * 5000, timeout=30)  # groups in groups
            with Client(address) as client:
                client.predict(["cat"], model="b")
        finally:
            process.terminate()


@pytest.mark.parametrize("wrong", ["other key", "key", "authority"])
def test_keys_that_grpc_refuses_are_named(toy_path, authority, wrong):
    one, two = (authority.issue_cert("localhost") for _ in range(2))
    key = {
        "other key": two.private_key_pem.bytes(),
        "key": b"-----BEGIN nonsense",
    }.get(wrong, one.private_key_pem.bytes())
    junk = b"junk" if wrong == "authority" else None
    tls = Tls(key, pem(*one.cert_chain_pems), junk, junk is not None)
    with pytest.raises(ConfigError, match="key must fit its certificate"):
        Server(toy_path.parent, "toy", port=0, tls=tls)
