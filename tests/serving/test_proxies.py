"""The clients take the same way through a proxy, by gRPC and by REST."""

import asyncio
import base64

import pytest
from keras_attn_serving import AsyncClient
from keras_attn_serving import Client
from keras_attn_serving import RestClient
from keras_attn_serving.wire.proxies import Proxy as Found
from keras_attn_serving.wire.proxies import proxy_for
from support.serving import toy_model
from support.serving.tiny_proxy import Proxy

VARIABLES = "http_proxy", "https_proxy", "no_proxy", "grpc_proxy"


@pytest.fixture
def environment(monkeypatch):
    """Sets variables; those that this machine has are gone."""
    for name in (*VARIABLES, "all_proxy", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    return monkeypatch


@pytest.fixture
def proxy(environment):
    with Proxy() as proxy:
        yield proxy


def by_grpc(host, toy_server):
    with Client(f"{host}:{toy_server.port}", "toy", timeout=20) as client:
        return client.predict(["cat"])["text"]


def by_asyncio(host, toy_server):
    async def ask():
        address = f"{host}:{toy_server.port}"
        async with AsyncClient(address, "toy", timeout=20) as client:
            return (await client.predict(["cat"]))["text"]

    return asyncio.run(ask())


def by_rest(host, toy_server):
    address = f"http://{host}:{toy_server.rest_port}"
    with RestClient(address, "toy", timeout=20) as client:
        return client.predict(["cat"])["text"]


@pytest.fixture(params=[by_grpc, by_asyncio, by_rest])
def ask(request, ours, toy_server):
    return lambda host: request.param(host, toy_server)


def test_http_proxy_is_the_way_of_every_client(ask, proxy, environment):
    environment.setenv("http_proxy", proxy.url)
    environment.setenv("https_proxy", "http://nowhere.test:1")
    assert ask("model.test") == ["chat"]  # a name that the proxy alone knows
    assert {place.split(":")[0] for _, place in proxy.asked} == {"model.test"}


def test_hosts_of_no_proxy_and_this_machine_are_asked_directly(
    ask, proxy, environment
):
    environment.setenv("http_proxy", proxy.url)
    assert ask("localhost") == ["chat"]
    environment.setenv("no_proxy", "other.test,127.0.0.0/8")
    assert ask("127.0.0.1") == ["chat"]
    assert not proxy.asked


def test_a_proxy_gets_its_user(ask, proxy, environment):
    user = proxy.url.replace("://", "://me:p%40ss@")
    environment.setenv("http_proxy", user)
    assert ask("model.test") == ["chat"]
    wanted = base64.b64encode(b"me:p@ss").decode().lower()
    assert {x.split()[1] for x in proxy.users} == {wanted}


def test_grpcs_own_variables_count_no_more_than_by_rest(ask, environment):
    environment.setenv("grpc_proxy", "http://nowhere.test:1")
    environment.setenv("https_proxy", "http://nowhere.test:1")
    assert ask("localhost") == ["chat"]


@pytest.mark.parametrize(
    ("listed", "direct"),
    [
        ("", False),
        ("a.test", True),
        (".test", True),
        ("*.test", True),
        ("other.test, TEST", True),
        ("*", True),
        ("a.test:8500", True),
        ("a.test:8501", False),
        ("xa.test", False),
        ("st", False),
    ],
)
def test_no_proxy_lists_hosts_and_domains(environment, listed, direct):
    environment.setenv("HTTP_PROXY", "proxy.test:3128")
    environment.setenv("NO_PROXY", listed)
    wanted = None if direct else Found("proxy.test", 3128)
    assert proxy_for("http", "a.test", 8500) == wanted


def test_no_proxy_lists_networks(environment):
    environment.setenv("https_proxy", "http://[::2]")
    environment.setenv("no_proxy", "10.0.0.0/8,fd00::/8")
    for host in ("10.2.3.4", "fd00::1", "127.0.0.1", "::1", "localhost"):
        assert proxy_for("https", host, 1) is None
    assert proxy_for("https", "11.0.0.1", 1).url == "http://[::2]:80"
    assert proxy_for("http", "11.0.0.1", 1) is None


def test_a_unix_socket_has_no_proxy(environment):
    environment.setenv("http_proxy", "http://nowhere.test:1")
    with Client("unix:/nowhere", toy_model.NAME, timeout=5) as client:
        with pytest.raises(Exception, match="No such file"):
            client.predict(["cat"])


@pytest.mark.parametrize("value", ["socks5://u:secret@a.test:1", "http://"])
def test_what_is_no_http_proxy_is_refused_without_its_password(
    environment, value
):
    environment.setenv("http_proxy", value)
    for client, address in (
        (Client, "a.test:1"),
        (RestClient, "http://a.test"),
    ):
        with pytest.raises(ValueError, match="http_proxy must be") as caught:
            client(address, "toy")
        assert "secret" not in str(caught.value)
