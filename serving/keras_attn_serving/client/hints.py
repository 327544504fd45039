"""Advice for calls that failed."""

import re

import grpc

from keras_attn_serving import xla
from keras_attn_serving.wire.results import ServingError

_BUSY = (
    "The server is busy or the message too large: send fewer texts per "
    "request, or fewer requests at a time. `Client(..., retries=3)` tries "
    "again."
)

_BY_CODE = {
    grpc.StatusCode.DEADLINE_EXCEEDED: (
        "The answer took longer than {timeout} seconds. Send fewer texts per "
        "request, or pass a larger `timeout`."
    ),
    grpc.StatusCode.UNIMPLEMENTED: (
        "The server at {address!r} does not have this call. Is the address "
        "the gRPC port (8500 by default, not the REST port 8501) of a model "
        "server?"
    ),
    grpc.StatusCode.NOT_FOUND: (
        "Is the model served under that name, and that version loaded? "
        "`client.status(model=NAME)` lists the versions."
    ),
    grpc.StatusCode.RESOURCE_EXHAUSTED: _BUSY,
}

_NO_TLS = (
    "The server at {address!r} does not speak TLS. Connect without TLS, or "
    "start the server with a certificate."
)

_OTHER_NAME = (
    "The server's certificate is for another name than the one in {address!r}. "
    "Use a name that the certificate contains."
)

# Reasons for a failed connection, by words in the transport's message.
_NOT_CONNECTED = {
    "queue": _BUSY,
    "WRONG_VERSION_NUMBER": _NO_TLS,
    "RECORD_LAYER_FAILURE": _NO_TLS,  # the same, from OpenSSL 3.2
    "Hostname Verification": _OTHER_NAME,
    "certificate is not valid for": _OTHER_NAME,  # the same, over REST
    "CERTIFICATE_VERIFY_FAILED": (
        "The certificate of the server at {address!r} is not signed by an "
        "authority that this client trusts. Give the client the certificate "
        "of that authority."
    ),
    "handshake": (
        "Client and server at {address!r} could not agree on TLS. Does the "
        "server want a certificate of the client? Or does the client's key not "
        "match its certificate?"
    ),
    "Failed parsing HTTP/2": (
        "The port at {address!r} does not speak gRPC. Is it the REST port? The "
        "gRPC port is 8500 by default."
    ),
    "not HTTP": (
        "The port at {address!r} does not speak HTTP. Is it the gRPC port? The "
        "REST port is 8501 by default. The address of a server with TLS begins "
        "with https://."
    ),
    "resolving": (
        "The name in {address!r} is unknown here. An address is `host:port`, "
        'such as "localhost:8500".'
    ),
}

_GONE = (
    "The server at {address!r} answered before. It has stopped, or restarts: "
    "`Client(..., retries=3)` repeats calls until it is back."
)
_CLOSED = (
    "Something at {address!r} takes connections and closes them. A server "
    "with TLS does so: give the client its TLS settings, and a certificate "
    "that the server trusts if it asks for one. So does a server that is "
    "stopping."
)
_NO_PORT = (
    "The address {address!r} has no port. gRPC's is 8500 by default: "
    "`host:port`, such as 'localhost:8500'."
)
# Messages that already contain a remedy, or whose hint takes precedence.
_BY_WORDS = {
    "--max_run_seconds": "",
    xla.DISABLED: xla.REMEDY,
}
_LABEL = re.compile(r"servable version label: (\d+)$")
_ABSENT = (
    "Is a server running at {address!r}? Start one with `python -m "
    "keras_attn_serving --model_base_path=DIR --model_name=NAME`, or call "
    "`client.wait_until_ready()` while it loads its model."
)


def hint(
    error: ServingError, address: str, timeout: float | None, answered: bool
) -> str:
    """Returns a remedy, "" if none is known.

    Args:
        error: The error.
        address: The server's.
        timeout: Seconds that the call had.
        answered: Whether this server answered the same client before.
    """
    for words, text in _BY_WORDS.items():
        if words in error.message:
            return text
    if label := _LABEL.search(error.message):
        return f"A label is text. For a version's number pass {label[1]}."
    text = _BY_CODE.get(error.code, "")
    if error.code == grpc.StatusCode.UNAVAILABLE:
        text = _unavailable(error.message, answered)
        if text == _ABSENT and ":" not in address:
            text = _NO_PORT
    return text.format(address=address, timeout=timeout)


def _unavailable(message, answered):
    for said, text in _NOT_CONNECTED.items():
        if said in message:
            return text
    if answered:
        return _GONE
    closed = "closed", "reset", "removed"
    return _CLOSED if any(x in message for x in closed) else _ABSENT
