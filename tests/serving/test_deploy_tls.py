"""TLS: serving/deploy/ssl_config.sh, and the commands of the README for it."""

import pathlib
import re
import shutil
import subprocess

import grpc
import pytest
from keras_attn_serving import Client
from keras_attn_serving import ServingError
from keras_attn_serving.command import cli
from keras_attn_serving.server import Server
from keras_attn_serving.server import config
from support.serving import toy_model
from support.serving.deployed import DEPLOY

README = DEPLOY.parent / "README.md"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder in which the README's commands have run."""
    if not shutil.which("openssl"):
        pytest.skip("needs openssl")
    (commands,) = re.findall(
        r"```sh\n(openssl .*?)```", README.read_text(), re.DOTALL
    )
    path = tmp_path_factory.mktemp("tls")
    subprocess.run(
        ["bash", "-euc", commands.replace("serving/deploy", str(DEPLOY))],
        cwd=path,
        check=True,
        capture_output=True,
    )
    return path


def pem(folder, name):
    return (folder / name).read_bytes()


def test_the_file_holds_what_the_pem_files_do(folder):
    assert config.read_tls(str(folder / "ssl.pbtxt")) == config.Tls(
        pem(folder, "server.key"),
        pem(folder, "server.pem"),
        pem(folder, "client.pem"),
        verify_client=True,
    )


def test_without_an_authority_no_client_is_asked_for_a_certificate(folder):
    with open(folder / "open.pbtxt", "w") as file:
        subprocess.run(
            [DEPLOY / "ssl_config.sh", "server.key", "server.pem"],
            cwd=folder,
            stdout=file,
            check=True,
        )
    tls = config.read_tls(str(folder / "open.pbtxt"))
    assert tls.authority is None and not tls.verify_client


def test_what_stands_around_the_blocks_of_a_file_is_left_out(folder, tmp_path):
    noted = b'friendlyName: "own"\r\nsubject=O = Soci\\C3\\A9t\\C3\\A9\n'
    for name in "server.key", "server.pem":
        block = pem(folder, name)
        (tmp_path / name).write_bytes(noted + block + noted + block)
    with open(tmp_path / "noted.pbtxt", "w") as file:
        subprocess.run(
            [DEPLOY / "ssl_config.sh", "server.key", "server.pem"],
            cwd=tmp_path,
            stdout=file,
            check=True,
        )
    tls = config.read_tls(str(tmp_path / "noted.pbtxt"))
    assert tls.key == 2 * pem(folder, "server.key")
    assert tls.certificate == 2 * pem(folder, "server.pem")


def test_a_client_with_a_certificate_is_answered_and_one_without_is_not(
    folder, toy_path
):
    root = pem(folder, "server.pem")
    own = pem(folder, "client.key"), pem(folder, "client.pem")
    known = grpc.ssl_channel_credentials(root, *own)
    unknown = grpc.ssl_channel_credentials(root)
    tls = config.read_tls(str(folder / "ssl.pbtxt"))
    with Server(toy_path.parent, toy_model.NAME, port=0, tls=tls) as server:
        where = {"address": server.address, "model": toy_model.NAME}
        with Client(**where, credentials=known) as client:
            assert client.predict(["hello"])["text"] == ["bonjour"]
        with Client(**where, credentials=unknown) as client:
            with pytest.raises(ServingError) as refused:
                client.predict(["hello"], timeout=5)
    assert refused.value.code is grpc.StatusCode.UNAVAILABLE


def test_the_command_line_shows_its_certificate(folder, toy_path, capsys):
    tls = config.read_tls(str(folder / "ssl.pbtxt"))
    with Server(toy_path.parent, toy_model.NAME, port=0, tls=tls) as server:
        arguments = ["query", "--model=toy", f"--address={server.address}"]
        names = {"ca": "server.pem", "cert": "client.pem", "key": "client.key"}
        given = [f"--{x}={folder / name}" for x, name in names.items()]
        assert cli.main([*arguments, *given, "hello"]) == 0
        assert capsys.readouterr().out == "bonjour\n"
        swapped = [f"--ca={folder / 'server.key'}"]
        assert cli.main([*arguments, *swapped, "hello"]) == cli.USAGE


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["server.pem", "server.key"], "KEY must be"),
        (["server.key", "server.key"], "certificate is needed"),
        (["client.key", "server.pem"], "KEY must be that of CERTIFICATE"),
    ],
)
def test_files_that_do_not_fit_are_refused(folder, given, words):
    done = subprocess.run(
        [DEPLOY / "ssl_config.sh", *given],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert words in done.stderr and not done.stdout


@pytest.mark.parametrize("given", [[], ["a.der", "b.der"]])
def test_what_is_needed_is_said(given, tmp_path):
    for name in given:
        pathlib.Path(tmp_path, name).write_bytes(b"\x30\x82\x01\x0a")
    done = subprocess.run(
        [DEPLOY / "ssl_config.sh", *given],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "KEY CERTIFICATE" in done.stderr or "Received: a.der" in done.stderr
    assert not done.stdout
