"""How clients connect: TLS, restarts, forks, and what they say of failures."""

import asyncio
import pathlib
import socket
import subprocess
import sys
import threading

import grpc
import pytest
from keras_attn_serving import AsyncClient
from keras_attn_serving import Client
from keras_attn_serving import ServingError
from keras_attn_serving.client.hints import hint
from support.serving import tiny_server
from support.serving.certificates import self_signed

TINY = pathlib.Path(tiny_server.__file__)


def ask_async(*arguments, **options):
    """Makes a call with an `AsyncClient`."""

    async def ask():
        async with AsyncClient(*arguments, **options) as client:
            return await client.predict(["a"])

    return asyncio.run(ask())


def ask_sync(*arguments, **options):
    with Client(*arguments, **options) as client:
        return client.predict(["a"])


BOTH = pytest.mark.parametrize("ask", [ask_sync, ask_async])


def hint_of(ask, *arguments, **options):
    with pytest.raises(ServingError) as caught:
        ask(*arguments, "m", timeout=20, **options)
    assert caught.value.code == grpc.StatusCode.UNAVAILABLE, caught.value
    return caught.value.hint


@pytest.fixture
def plain():
    server, port = tiny_server.serve()
    yield f"localhost:{port}"
    server.stop(0)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A self-signed certificate of "localhost" and its key, in PEM."""
    files = self_signed(tmp_path_factory.mktemp("tls"))
    return [x.read_bytes() for x in files]


@pytest.fixture(scope="module")
def tls(certificate):
    """The port of a server with TLS, and credentials for it."""
    key, cert = certificate
    server, port = tiny_server.serve(grpc.ssl_server_credentials([(key, cert)]))
    yield port, grpc.ssl_channel_credentials(cert)
    server.stop(0)


@BOTH
def test_a_client_with_credentials_speaks_tls(ask, tls):
    port, credentials = tls
    address = f"localhost:{port}"
    assert ask(address, "m", credentials=credentials)["text"] == ["a"]


@BOTH
def test_a_client_without_tls_is_told_that_the_server_may_have_it(ask, tls):
    port, _ = tls
    hint = hint_of(ask, f"localhost:{port}")
    assert "A server with TLS does so: give the client" in hint


@BOTH
def test_a_client_with_tls_is_told_that_the_server_has_none(ask, tls, plain):
    _, credentials = tls
    hint = hint_of(ask, plain, credentials=credentials)
    assert "does not speak TLS" in hint and plain in hint


def test_who_waits_for_a_server_in_vain_is_told_why(tls, plain):
    _, credentials = tls

    async def wait():
        async with AsyncClient(plain, credentials=credentials) as client:
            await client.wait_until_ready(0.3)

    for wait_for in (
        lambda: asyncio.run(wait()),
        lambda: Client(plain, credentials=credentials).wait_until_ready(0.3),
    ):
        with pytest.raises(ServingError, match="within 0.3 seconds") as caught:
            wait_for()
        assert "does not speak TLS" in caught.value.hint


def test_a_client_is_told_of_a_certificate_that_it_does_not_trust(tls):
    port, _ = tls
    strange = grpc.ssl_channel_credentials()
    hint = hint_of(ask_sync, f"localhost:{port}", credentials=strange)
    assert "not signed by an authority that this client trusts" in hint


def test_a_client_is_told_of_a_certificate_for_another_name(tls):
    port, credentials = tls
    hint = hint_of(ask_sync, f"127.0.0.1:{port}", credentials=credentials)
    assert "is for another name" in hint


def test_a_server_that_wants_a_clients_certificate_is_guessed(certificate):
    key, cert = certificate
    server, port = tiny_server.serve(
        grpc.ssl_server_credentials([(key, cert)], cert, True)
    )
    address = f"localhost:{port}"
    mutual = grpc.ssl_channel_credentials(cert, key, cert)
    assert ask_sync(address, "m", credentials=mutual)["text"] == ["a"]
    without = grpc.ssl_channel_credentials(cert)
    hint = hint_of(ask_sync, address, credentials=without)
    assert "TLS settings" in hint or "certificate of the client" in hint
    server.stop(0)


@BOTH
def test_a_server_that_is_absent_is_told_from_one_that_has_gone(ask):
    server, port = tiny_server.serve()
    address = f"localhost:{port}"

    async def ask_twice():
        async with AsyncClient(address, "m") as client:
            await client.predict(["a"])
            server.stop(0).wait()
            await client.predict(["a"])

    with pytest.raises(ServingError) as caught:
        if ask is ask_async:
            asyncio.run(ask_twice())
        with Client(address, "m") as client:
            client.predict(["a"])
            server.stop(0).wait()
            client.predict(["a"])
    assert "answered before. It has stopped, or restarts" in caught.value.hint
    hint = hint_of(ask, address)
    assert hint.startswith(f"Is a server running at {address!r}?")


def test_a_refusal_is_an_answer_too():
    server, port = tiny_server.serve()
    with Client(f"localhost:{port}", "m") as client:
        with pytest.raises(ServingError) as caught:
            client.metadata()
        assert caught.value.code == grpc.StatusCode.UNIMPLEMENTED
        server.stop(0).wait()
        with pytest.raises(ServingError, match="answered before"):
            client.predict(["a"])


def test_the_rest_port_is_told_from_the_grpc_port():
    with socket.create_server(("localhost", 0)) as listener:

        def answer():
            connection, _ = listener.accept()
            with connection:
                connection.recv(100)
                connection.sendall(b"HTTP/1.1 505 Not here\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        address = f"localhost:{listener.getsockname()[1]}"
        assert "Is it the REST port?" in hint_of(ask_sync, address)
        thread.join()


def test_a_name_that_is_unknown_is_named():
    hint = hint_of(ask_sync, "nowhere.invalid:8500")
    assert "The name in 'nowhere.invalid:8500' is unknown" in hint


def start(*port):
    """Starts a server in a process of its own; returns that and its port."""
    process = subprocess.Popen(
        [sys.executable, TINY, *map(str, port)],
        stdout=subprocess.PIPE,
        text=True,
    )
    return process, int(process.stdout.readline())


def end(process):
    process.kill()
    process.communicate()


@BOTH
def test_retries_carry_a_call_through_a_restart(ask):
    process, port = start()
    again = []

    def restart():
        end(process)
        gone.set()
        # The call below has begun by then, and waits.
        waits.wait(60)
        again.append(start(port)[0])

    gone, waits = threading.Event(), threading.Event()
    address = f"localhost:{port}"

    async def ask_twice():
        async with AsyncClient(address, "m", retries=1) as client:
            await client.predict(["a"])
            thread.start()
            gone.wait(60)
            asyncio.get_running_loop().call_later(0.5, waits.set)
            return await client.predict(["b"])

    thread = threading.Thread(target=restart)
    try:
        if ask is ask_async:
            found = asyncio.run(ask_twice())
        else:
            with Client(address, "m", retries=1) as client:
                client.predict(["a"])
                thread.start()
                gone.wait(60)
                timer = threading.Timer(0.5, waits.set)
                timer.start()
                found = client.predict(["b"])
                timer.join()
        assert found["text"] == ["b"]
    finally:
        thread.join()
        for each in again:
            end(each)


FORKED = """
import os, sys
from keras_attn_serving import Client
client = Client(sys.argv[1], "m", timeout=30)
assert client.predict(["parent"])["text"] == ["parent"]
# Two in five of the first calls failed when a child had its parent's channel.
for number in range(24):
    child = os.fork()
    if not child:
        status = 1
        try:
            for _ in range(2):
                assert client.predict([str(number)])["text"] == [str(number)]
            # Also one made after the fork, to the same server.
            with Client(sys.argv[1], "m", timeout=30) as other:
                other.predict(["child"])
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert client.predict(["parent"])["text"] == ["parent"]
print("done")
"""


@pytest.mark.full
@pytest.mark.skipif(not hasattr(sys, "getdlopenflags"), reason="No forks here.")
def test_a_client_works_in_processes_that_fork():
    process, port = start()
    try:
        done = subprocess.run(
            [sys.executable, "-c", FORKED, f"localhost:{port}"],
            capture_output=True,
            text=True,
            timeout=100,
        )
        assert done.stdout == "done\n", done.stderr
    finally:
        end(process)


def test_an_async_client_serves_one_event_loop_after_the_other(plain):
    client = AsyncClient(plain, "m")  # outside of any

    async def ask():
        return (await client.predict(["a"]))["text"]

    assert asyncio.run(ask()) == ["a"]
    assert asyncio.run(ask()) == ["a"]
    asyncio.run(client.close())


def test_tasks_share_an_async_client(plain):
    async def ask():
        async with AsyncClient(plain, "m") as client:
            calls = [client.predict([str(n)]) for n in range(50)]
            return [x["text"] for x in await asyncio.gather(*calls)]

    assert asyncio.run(ask()) == [[str(n)] for n in range(50)]


def test_a_blocking_client_works_inside_an_event_loop(plain):
    async def ask():
        return ask_sync(plain, "m")["text"]

    assert asyncio.run(ask()) == ["a"]


LOADED = """
import sys
import keras_attn_serving
names = {name.partition(".")[0] for name in sys.modules}
print(*sorted(names - sys.stdlib_module_names))
"""


def test_the_clients_import_little():
    """So they are there at once; TensorFlow alone would take seconds."""
    found = subprocess.run(
        [sys.executable, "-c", LOADED],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    ours = {"grpc", "google", "keras_attn_serving", "numpy"}
    with_grpc = {"cython_runtime", "grpc_health", "grpc_reflection"}
    with_grpc.add("typing_extensions")
    assert ours <= set(found)
    public = {name for name in found if not name.startswith("_")}
    assert public <= ours | with_grpc


@pytest.mark.parametrize(
    ("address", "code", "message", "said"),
    [
        (
            "localhost",
            "UNAVAILABLE",
            "failed to connect to all addresses",
            "has no port",
        ),
        *(
            (
                address,
                "UNAVAILABLE",
                "failed to connect to all addresses",
                "Is a server running",
            )
            for address in ("[::1]:8500", "unix:/run/x", "http://localhost")
        ),
        (
            "localhost:1",
            "INVALID_ARGUMENT",
            "Unrecognized servable version label: 3",
            "For a version's number pass 3.",
        ),
        (
            "localhost:1",
            "INTERNAL",
            "XLA compilation disabled",
            "--xla_cpu_compilation_enabled",
        ),
        (
            "localhost:1",
            "DEADLINE_EXCEEDED",
            "A run may take at most 3 seconds. ... --max_run_seconds",
            None,
        ),
    ],
)
def test_an_error_with_a_known_remedy_has_it(address, code, message, said):
    error = ServingError(grpc.StatusCode[code], message)
    found = hint(error, address, 60.0, False)
    assert said in found if said else not found
