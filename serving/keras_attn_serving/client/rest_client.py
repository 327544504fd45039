"""`RestClient`: a client for networks that let only HTTP through."""

import ssl
from collections.abc import Mapping

from keras_attn_serving.client.client import BlockingClient
from keras_attn_serving.client.queries import Queries
from keras_attn_serving.wire.rest_transport import RestTransport
from keras_attn_serving.wire.transport import MAX_ANSWER_BYTES


class RestClient(BlockingClient):
    """Queries the models of one server over REST, as `Client` does over gRPC.

    It has the methods of `Client` and returns the same results. REST takes more
    bytes and time, and an answer does not name the version that produced it:
    `Result.version` is 0 unless a call asked for a version by its number.
    Float16, bfloat16 and complex outputs exist only over gRPC.

    An answer does not name dtypes either, nor the output if there is only one.
    The client takes these from the model's metadata, which it requests again
    after 5 seconds or when an answer does not fit. In the first seconds after
    another version takes over, a single output may therefore have the name of
    the previous version; pass `version` to be sure.

    Threads may share a client. So may processes that fork: each opens its own
    connection.

    Example:
        ```python
        with RestClient("http://localhost:8501", "pronounce") as client:
            print(client.predict(["attention", "memory"])["text"])
        ```

    Args:
        address: `http://host:port` of the server's REST port, or
            `https://...`. A path may follow, such as that of a gateway.
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
