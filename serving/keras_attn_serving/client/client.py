"""Clients for exported models: texts in, texts and numpy arrays out.

They query TensorFlow Serving and the development server, `Client` over gRPC
and `RestClient` over REST, and do not import TensorFlow.
"""

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Self

import grpc

from keras_attn_serving.client.queries import Queries
from keras_attn_serving.wire.grpc_transports import GrpcTransport
from keras_attn_serving.wire.grpc_transports import Target
from keras_attn_serving.wire.results import Alignment
from keras_attn_serving.wire.results import Result
from keras_attn_serving.wire.results import Signature
from keras_attn_serving.wire.results import Token
from keras_attn_serving.wire.results import Transcript
from keras_attn_serving.wire.results import VersionStatus
from keras_attn_serving.wire.transport import MAX_ANSWER_BYTES
from keras_attn_serving.wire.transport import run_now


class BlockingClient:
    """The calls of `Client` and `RestClient`.

    Args:
        queries: `Queries` over a transport that blocks.
    """

    def __init__(self, queries: Queries):
        self._queries = queries

    def __repr__(self) -> str:
        return self._queries._shown_as(type(self).__name__)

    def predict(
        self,
        inputs: Any,
        signature: str = "serving_default",
        outputs: Sequence[str] | str | None = None,
        *,
        model: str | None = None,
        version: int | str | None = None,
        timeout: float | None = None,
    ) -> Result:
        """Runs a signature.

        Args:
            inputs: A list of texts, for a signature whose only input is
                `text`; otherwise a dictionary of arrays or lists by input
                name. Every input has a row for each source.
            signature: The signature to run.
            outputs: Names of the outputs to return, or one name. Defaults to
                all.
            model, version, timeout: Override the client's own.

        Returns:
            A `Result`. Strings are decoded from UTF-8, with U+FFFD for invalid
            bytes; outputs whose names end in `_bytes` stay `bytes`.

        Raises:
            ServingError: If the server cannot be reached or refuses.
            ValueError: If the inputs are not texts or numbers.

        Example:
            ```python
            result = client.predict(["attention", "memory"])
            result["text"]  # ["AH T EH N SH AH N", ...]
            client.predict(["attention"], "nbest", "texts")["texts"]
            ```
        """
        return run_now(
            self._queries.predict(
                inputs,
                signature,
                outputs,
                model=model,
                version=version,
                timeout=timeout,
            )
        )

    def translate(
        self,
        inputs: Any,
        prefixes: Sequence[str | None] | None = None,
        seed: int | Sequence[int] | None = None,
        options: Mapping[str, Any] | None = None,
        terms: Sequence[Sequence[str] | None] | None = None,
        avoid: Sequence[Sequence[str] | None] | None = None,
        *,
        model: str | None = None,
        version: int | str | None = None,
        timeout: float | None = None,
    ) -> Result:
        """Runs the signature `options`, or `terms` with `terms` or `avoid`.

        Signatures have no optional inputs, so options that are left out are
        sent as -1, which stands for the exported search's own value. The client
        asks the server once for the options' names.

        Args:
            inputs: As for `predict`.
            prefixes: A string or `None` for each source: its text begins with
                this string.
            seed: Seed for an export that samples: the same seed repeats the
                samples. Source number `i` uses `seed + i`; a list gives each
                source its own seed.
            options: Options by name, such as `{"length_penalty": 0.6}`. Each
                is one value for all sources, or a list with one for each.
            terms: A list of phrases or `None` for each source: its text
                contains all of them. The export needs a `BeamSearch`.
            avoid: A list of phrases or `None` for each source: its text
                contains none of them.
            model, version, timeout: Override the client's own.

        Returns:
            A `Result` of `text`, `score`, `texts` and `scores`. With phrases it
            also has the outputs of `align`, and `missing`: the terms that a
            text still lacks, joined by line feeds. Exports of keras-attn 0.2
            and later add `truncated` and `unknown`, which report cuts and
            unknown tokens of text and prefix together, and `error`, "" for
            every row. Exports of versions after 0.3 add `empty`, which marks
            sources without tokens: the model makes up a text for them.

        Raises:
            RowError: If some rows cannot be answered. It holds the answers to
                the others.
            ServingError: If the server cannot be reached or refuses.
            ValueError: If `inputs` lacks a source, or this model does not take
                an option or a seed.

        Example:
            ```python
            client.translate(["attention"], options={"max_length": 5})["text"]
            ```
        """
        return run_now(
            self._queries.translate(
                inputs,
                prefixes,
                seed,
                options,
                terms,
                avoid,
                model=model,
                version=version,
                timeout=timeout,
            )
        )

    def align(
        self,
        texts: Any,
        terms: Sequence[Sequence[str] | None] | None = None,
        avoid: Sequence[Sequence[str] | None] | None = None,
        *,
        model: str | None = None,
        version: int | str | None = None,
        timeout: float | None = None,
    ) -> list[Alignment]:
        """Runs the signature `align` and removes each text's padding.

        Args:
            texts: The texts; or arrays by name, if the model reads arrays.
            terms, avoid: As for `translate`, with the signature `terms`.
            model, version, timeout: Override the client's own.

        Returns:
            An `Alignment` for each text.

        Example:
            ```python
            for each in client.align(["attention"]):
                print(each.tokens, each.alignment.shape)
            ```
        """
        return run_now(
            self._queries.align(
                texts,
                terms,
                avoid,
                model=model,
                version=version,
                timeout=timeout,
            )
        )

    def words(
        self,
        sounds: Sequence[Any],
        prefixes: Sequence[str | None] | None = None,
        *,
        model: str | None = None,
        version: int | str | None = None,
        timeout: float | None = None,
    ) -> list[Transcript]:
        """Runs the signature `words`: transcribes sounds, with word times.

        For sounds that are longer than the model reads at once, use
        `keras_attn_serving.transcribe`.

        Args:
            sounds: For each sound a 1D array of samples: floating-point numbers
                from -1 to 1, at the model's sampling rate. The sounds may have
                different lengths.
            prefixes: A string or `None` for each sound: its text begins with
                this string, such as `"<|fr|><|transcribe|><|notimestamps|>"`.
            model, version, timeout: Override the client's own.

        Returns:
            A `Transcript` for each sound.

        Raises:
            RowError: If some rows cannot be answered.
            ServingError: If the server cannot be reached or refuses.
            ValueError: If the model has no such signature, or a sound is not a
                1D array of floating-point numbers.

        Example:
            ```python
            (found,) = client.words([sound])
            for word in found.words:
                print(f"{word.start:.2f} {word.text}")
            ```
        """
        return run_now(
            self._queries.words(
                sounds,
                prefixes,
                model=model,
                version=version,
                timeout=timeout,
            )
        )

    def stream(
        self,
        text: Any,
        max_length: int | None = None,
        *,
        model: str | None = None,
        version: int | str | None = None,
        timeout: float | None = None,
    ) -> Iterator[Token]:
        """Yields the tokens of one text as they are decoded, greedily.

        It needs an export with `signatures=["step"]`. Each token is the most
        probable one of its step; the export's own search and its options are
        not used. The server keeps no state: each token takes two requests, and
        the first one carries the encoded source and the decoder's state.

        Args:
            text: The text; or arrays of one row by name, if the model reads
                arrays.
            max_length: The most tokens, including the end token. Defaults to
                that of the exported search, or to no limit if the export does
                not say.
            model, version, timeout: Override the client's own. `timeout` is the
                time of the whole stream.

        Raises:
            RowError: If the server cannot answer.
            ServingError: If the server cannot be reached or refuses.
            ValueError: If the export does not have these signatures.

        Example:
            ```python
            for token in client.stream("attention"):
                print(token.text, end="", flush=True)
            ```
        """
        tokens = self._queries.stream(
            text, max_length, model=model, version=version, timeout=timeout
        )
        try:
            while True:
                try:
                    token = run_now(tokens.__anext__())
                except StopAsyncIteration:
                    return
                yield token
        finally:
            run_now(tokens.aclose())

    def metadata(
        self,
        *,
        model: str | None = None,
        version: int | str | None = None,
        timeout: float | None = None,
    ) -> dict[str, Signature]:
        """Returns the model's signatures by name.

        Example:
            ```python
            client.metadata()["serving_default"].outputs["score"].dtype
            ```
        """
        return run_now(
            self._queries.metadata(
                model=model, version=version, timeout=timeout
            )
        )

    def status(
        self,
        *,
        model: str | None = None,
        version: int | None = None,
        timeout: float | None = None,
    ) -> list[VersionStatus]:
        """Returns the state of each version, or of `version` alone.

        Example:
            ```python
            [newest, *older] = client.status()
            newest.state  # "AVAILABLE"
            ```
        """
        return run_now(
            self._queries.status(model=model, version=version, timeout=timeout)
        )

    def wait_until_ready(self, timeout: float = 60.0) -> None:
        """Waits until the server accepts connections.

        Raises:
            ServingError: If no server answers within `timeout` seconds.

        Example:
            ```python
            client.wait_until_ready()
            ```
        """
        run_now(self._queries.wait_until_ready(timeout))

    def close(self) -> None:
        """Closes the connection.

        Example:
            ```python
            client.close()
            ```
        """
        run_now(self._queries.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception) -> None:
        self.close()


class Client(BlockingClient):
    """Queries the models of one server over gRPC.

    Threads may share a client. So may processes that fork: each opens its own
    connection.

    Example:
        ```python
        with Client("localhost:8500", model="pronounce") as client:
            result = client.predict(["attention", "memory"])
            print(result["text"], result["score"])
        ```

    Args:
        address: `host:port` of the server's gRPC port, or any gRPC target
            (`dns:///...`, `unix:...`).
        model: The model to query. If left out, each call must name it.
        version: A version number, or a version label as a string. Defaults to
            the newest version that the server has loaded.
        timeout: Seconds that a call may take, with all its retries and parts;
            `None` for no limit.
        retries: How often a call is repeated if the server is unavailable or
            busy. The pauses between the tries grow, and each retry waits up to
            30 s for a server that restarts.
        max_rows: The most rows of a request. A call with more rows is sent in
            parts, and the answers are joined in order. By default a call is
            sent whole, and split only if the server refuses it as too large.
        max_answer_bytes: The most bytes of an answer, and of its decoded
            values: a string counts as its length plus 64. A larger answer is
            not read.
        credentials: `grpc.ssl_channel_credentials(...)` for a server with TLS.
            Defaults to a plain connection.
        options: Further gRPC channel options, as pairs.
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
        transport = GrpcTransport(
            Target(address, credentials, max_answer_bytes, options)
        )
        super().__init__(
            Queries(transport, model, version, timeout, retries, max_rows)
        )
