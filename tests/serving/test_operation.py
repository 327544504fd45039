"""Operating the server: swaps under load, reloads, TLS, sockets, an end."""

import concurrent.futures
import contextlib
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
import trustme
from grpc_health.v1 import health_pb2
from grpc_health.v1 import health_pb2_grpc
from keras_attn_serving import Client
from keras_attn_serving import ServingError
from keras_attn_serving.config import Batching
from keras_attn_serving.config import ModelConfig
from keras_attn_serving.config import Tls
from keras_attn_serving.server import Loading
from keras_attn_serving.server import Rest
from keras_attn_serving.server import Server
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


def free_port():
    with socket.create_server(("localhost", 0)) as other:
        return other.getsockname()[1]


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
