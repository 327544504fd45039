"""`RestClient`: a client for where only HTTP gets through."""

import ssl
from collections.abc import Mapping

from keras_attn_serving.client.client import BlockingClient
from keras_attn_serving.client.queries import Queries
from keras_attn_serving.wire.rest_transport import RestTransport
from keras_attn_serving.wire.transport import MAX_ANSWER_BYTES


class RestClient(BlockingClient):
    """Queries the models of one server by REST, as `Client` does by gRPC.

    It has the methods of `Client` and returns the same. It needs more bytes
    and time, and a server's answer does not name the version that gave it:
    `Result.version` is 0 unless a call asked for a version by its number.
    Float16, bfloat16 and complex outputs exist only over gRPC.

    Neither does an answer name dtypes, nor the output if there is only one.
    The client asks for the metadata, again after 5 seconds or when an answer
    does not fit. So in the first seconds after another version takes over, a
    single output may still bear its old name; name the version to be sure.

    Threads may share a client. So may processes that fork: each connects for
    itself.

    Example:
        ```python
        with RestClient("http://localhost:8501", "pronounce") as client:
            print(client.predict(["attention", "memory"])["text"])
        ```

    Args:
        address: `http://host:port` of the server's REST port, or
            `https://...`. A path may follow, that of a gateway for example.
        model, version, timeout, retries, max_rows, max_answer_bytes: As in \
`Client`.
        headers: Headers of every request, such as `{"Authorization": ...}`.
        context: An `ssl.SSLContext` for https. Defaults to one that trusts
            the system's authorities.
    """

    def __init__(
        self,
        address: str = "http://localhost:8501",
        model: str | None = None,
        *,
        version: int | str | None = None,
        timeout: float | None = 60.0,
        retries: int = 0,
        max_rows: int | None = None,
        max_answer_bytes: int = MAX_ANSWER_BYTES,
        headers: Mapping[str, str] | None = None,
        context: ssl.SSLContext | None = None,
    ):
        transport = RestTransport(address, headers, context, max_answer_bytes)
        super().__init__(
            Queries(transport, model, version, timeout, retries, max_rows)
        )
