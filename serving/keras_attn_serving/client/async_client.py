"""`AsyncClient`: a client's calls as coroutines, for `asyncio`."""

from collections.abc import Sequence
from typing import Any

import grpc

from keras_attn_serving.client.queries import Queries
from keras_attn_serving.wire.grpc_transports import AioTransport
from keras_attn_serving.wire.grpc_transports import Target
from keras_attn_serving.wire.transport import MAX_ANSWER_BYTES


class AsyncClient(Queries):
    """Queries the models of one server over gRPC, from an event loop.

    It has the methods of `Client`, as coroutines. Tasks may share a client. So
    may event loops that run one after another: each opens its own connection.

    Example:
        ```python
        async with AsyncClient("localhost:8500", "pronounce") as client:
            calls = [client.predict([x]) for x in ("attention", "memory")]
            for result in await asyncio.gather(*calls):
                print(result["text"])
        ```

    Args:
        address, model, version, timeout, retries, max_rows, \
max_answer_bytes, credentials, options: As in `Client`.
    """

    def __init__(
        self,
        address: str = "localhost:8500",
        model: str | None = None,
        *,
        version: int | str | None = None,
        timeout: float | None = 60.0,
        retries: int = 0,
        max_rows: int | None = None,
        max_answer_bytes: int = MAX_ANSWER_BYTES,
        credentials: grpc.ChannelCredentials | None = None,
        options: Sequence[tuple[str, Any]] = (),
    ):
        transport = AioTransport(
            Target(address, credentials, max_answer_bytes, options)
        )
        super().__init__(transport, model, version, timeout, retries, max_rows)

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, *exception) -> None:
        await self.close()
