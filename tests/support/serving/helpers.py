"""What several tests of the server need."""

import contextlib
import socket
import time

from keras_attn_serving import Client
from keras_attn_serving import RestClient

from support.serving import toy_model


@contextlib.contextmanager
def client_of(server, protocol):
    """Gives a client of a server of the toy, by `"gRPC"` or `"REST"`."""
    kind, address = {
        "gRPC": (Client, server.address),
        "REST": (RestClient, f"http://{server.rest_address}"),
    }[protocol]
    with kind(address, toy_model.NAME, timeout=30) as client:
        yield client


def until(condition):
    """Waits for what another thread does."""
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "It never happened."
        time.sleep(0.01)


def free_port():
    """Returns the number of a port that no one uses now."""
    with socket.create_server(("localhost", 0)) as other:
        return other.getsockname()[1]
