"""`Queries`: the methods of a client, written once for every protocol."""

import contextlib
from collections.abc import AsyncGenerator
from collections.abc import Awaitable
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import TypeVar

import grpc
import numpy as np

from keras_attn_serving.client import greedy
from keras_attn_serving.client import inputs as given
from keras_attn_serving.client import row_parts as parts
from keras_attn_serving.client import spoken
from keras_attn_serving.client.hints import hint
from keras_attn_serving.client.retries import Retries
from keras_attn_serving.wire.deadline import Deadline
from keras_attn_serving.wire.results import Alignment
from keras_attn_serving.wire.results import Result
from keras_attn_serving.wire.results import RowError
from keras_attn_serving.wire.results import ServingError
from keras_attn_serving.wire.results import Signature
from keras_attn_serving.wire.results import TensorSpec
from keras_attn_serving.wire.results import Token
from keras_attn_serving.wire.results import Transcript
from keras_attn_serving.wire.results import VersionStatus
from keras_attn_serving.wire.transport import Metadata
from keras_attn_serving.wire.transport import ModelSpec
from keras_attn_serving.wire.transport import Transport

_Answer = TypeVar("_Answer")

# With these codes a server may not have answered at all.
_NO_ANSWER = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
)
# How often a split call starts over because the version that answered its first
# parts was unloaded.
_SWAPS = 3


class Queries:
    """The calls of a client, as coroutines over any `Transport`.

    Args:
        transport: Carries the calls.
        model, version, timeout, retries, max_rows: As in `Client`.
    """

    def __init__(
        self,
        transport: Transport,
        model: str | None,
        version: int | str | None,
        timeout: float | None,
        retries: int | Retries,
        max_rows: int | None,
    ):
        if max_rows is not None and (
            isinstance(max_rows, bool)
            or not isinstance(max_rows, int)
            or max_rows < 1
        ):
            raise ValueError(
                "`max_rows` must be the most rows of a request, an integer of "
                "1 or more, or None for as many as the server takes. Received: "
                f"max_rows={max_rows!r}"
            )
        self.model = model
        self.version = version
        self.timeout = timeout
        self._retries = (
            retries if isinstance(retries, Retries) else Retries(retries)
        )
        self._max_rows = max_rows
        self._transport = transport
        self._answered = False
        # The inputs of the signatures that calls have used, and those of them
        # that are sources.
        self._options: dict[
            tuple[str, ModelSpec], tuple[dict[str, TensorSpec], list[str]]
        ] = {}
        self._spec(model or "", version)  # refuses invalid ones

    def __repr__(self) -> str:
        return self._shown_as(type(self).__name__)

    def _shown_as(self, name: str) -> str:
        """Returns the `repr` of a client whose class has this name."""
        return (
            f"<{name} {self.address!r}, model={self.model!r}, "
            f"version={self.version!r}>"
        )

    @property
    def address(self) -> str:
        """The server's address."""
        return self._transport.address

    async def predict(
        self,
        inputs: Any,
        signature: str = "serving_default",
        outputs: Sequence[str] | str | None = None,
        *,
        model: str | None = None,
        version: int | str | None = None,
        timeout: float | None = None,
    ) -> Result:
        """As `Client.predict`.

        Example:
            ```python
            result = await client.predict(["attention"])
            result["text"]
            ```
        """
        outputs = [outputs] if isinstance(outputs, str) else list(outputs or ())
        spec = self._spec(model, version)
        deadline = self._deadline(timeout)
        return await self._predict(spec, signature, inputs, outputs, deadline)

    async def translate(
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
        """As `Client.translate`.

        Example:
            ```python
            result = await client.translate(
                ["attention"], options={"max_length": 5}
            )
            ```
        """
        arrays = given.by_name(inputs)
        deadline = self._deadline(timeout)
        rows = parts.number_of_rows(arrays)
        if rows is None:
            shapes = {name: x.shape for name, x in arrays.items()}
            raise ValueError(
                "`inputs` must have a row for each source, the same number in "
                f"every input. Received: shapes {shapes}"
            )
        spec = self._spec(model, version)
        phrases = given.phrases(rows, terms=terms, avoid=avoid)
        signature = "terms" if phrases else "options"

        async def ask():
            wanted, sources = await self._inputs_of(signature, spec, deadline)
            given.require_sources(arrays, sources)
            further = given.Options(wanted, arrays | phrases)
            asked = further.arrays(rows, prefixes, seed, options)
            whole = arrays | phrases | asked
            return await self._predict(spec, signature, whole, [], deadline)

        asked_before = (signature, spec) in self._options
        try:
            result = await ask()
        except (ServingError, ValueError) as error:
            invalid = grpc.StatusCode.INVALID_ARGUMENT
            if getattr(error, "code", invalid) != invalid or not asked_before:
                raise
            # Another version, with other options, may answer now.
            before = self._options.pop((signature, spec))
            if await self._inputs_of(signature, spec, deadline) == before:
                raise
            result = await ask()
        _require_no_error(result)
        return result

    async def align(
        self,
        texts: Any,
        terms: Sequence[Sequence[str] | None] | None = None,
        avoid: Sequence[Sequence[str] | None] | None = None,
        *,
        model: str | None = None,
        version: int | str | None = None,
        timeout: float | None = None,
    ) -> list[Alignment]:
        """As `Client.align`.

        Example:
            ```python
            for each in await client.align(["attention"]):
                print(each.tokens, each.alignment.shape)
            ```
        """
        where: Any = {"model": model, "version": version, "timeout": timeout}
        if terms is None and avoid is None:
            result = await self.predict(texts, "align", **where)
        else:
            result = await self.translate(
                texts, terms=terms, avoid=avoid, **where
            )
        rows = len(result["text"])
        return [
            Alignment(
                text,
                float(score),
                source_tokens[:source_length],
                tokens[:length],
                alignments[:length, :source_length],
                bool(truncated),
                int(unknown),
                bool(empty),
                [x for x in missing.split("\n") if x],
                _of_best(finished),
            )
            for (
                text,
                score,
                source_tokens,
                source_length,
                tokens,
                length,
                alignments,
                truncated,
                unknown,
                empty,
                missing,
                finished,
            ) in zip(
                result["text"],
                result["score"],
                result["source_tokens"],
                result["source_length"],
                result["tokens"],
                result["length"],
                result["alignments"],
                # Older exports do not have these outputs.
                result.get("truncated", [False] * rows),
                result.get("unknown", [0] * rows),
                result.get("empty", [False] * rows),
                # Only exports with terms have this.
                result.get("missing", [""] * rows),
                # Exports of keras-attn 0.4 and later.
                result.get("finished", [None] * rows),
                strict=True,
            )
        ]

    async def words(
        self,
        sounds: Sequence[Any],
        prefixes: Sequence[str | None] | None = None,
        *,
        model: str | None = None,
        version: int | str | None = None,
        timeout: float | None = None,
    ) -> list[Transcript]:
        """As `Client.words`.

        Example:
            ```python
            (found,) = await client.words([sound])
            found.words[0].start
            ```
        """
        deadline = self._deadline(timeout)
        spec = self._spec(model, version)
        _, signatures = await self._metadata(spec, deadline)
        arrays = spoken.request(sounds, prefixes, signatures)
        if not len(arrays["prefix"]):
            return []
        result = await self._predict(spec, spoken.NAME, arrays, [], deadline)
        _require_no_error(result)
        return spoken.transcripts(result)

    async def stream(
        self,
        text: Any,
        max_length: int | None = None,
        *,
        model: str | None = None,
        version: int | str | None = None,
        timeout: float | None = None,
    ) -> AsyncGenerator[Token, None]:
        """As `Client.stream`.

        Example:
            ```python
            async for token in client.stream("attention"):
                print(token.text, end="", flush=True)
            ```
        """
        inputs = [text] if isinstance(text, str | bytes) else text
        arrays = given.by_name(inputs)
        if parts.number_of_rows(arrays) != 1:
            raise ValueError(
                "`stream` takes one text, or a dictionary of arrays with one "
                f"row. Received: {text!r:.200}"
            )
        deadline = self._deadline(timeout)
        # Another version would not know the state of this one.
        spec, signatures = await self._pinned(
            self._spec(model, version), deadline
        )
        greedy.require_steps(signatures)

        def run(inputs, signature):
            arrays = given.by_name(inputs)
            return self._run(spec, signature, arrays, [], deadline)

        if max_length is None:
            max_length = greedy.longest(signatures)
        tokens = greedy.stream(run, signatures, arrays, max_length)
        async with contextlib.aclosing(tokens):
            async for token in tokens:
                yield token

    async def metadata(
        self,
        *,
        model: str | None = None,
        version: int | str | None = None,
        timeout: float | None = None,
    ) -> dict[str, Signature]:
        """As `Client.metadata`.

        Example:
            ```python
            signatures = await client.metadata()
            list(signatures)  # ["align", "ids", "nbest", ...]
            ```
        """
        spec = self._spec(model, version)
        found = await self._metadata(spec, self._deadline(timeout))
        return found.signatures

    async def status(
        self,
        *,
        model: str | None = None,
        version: int | None = None,
        timeout: float | None = None,
    ) -> list[VersionStatus]:
        """As `Client.status`.

        Example:
            ```python
            [newest, *older] = await client.status()
            newest.state  # "AVAILABLE"
            ```
        """
        spec = self._spec(model, version)
        return await self._ask(
            lambda seconds: self._transport.status(spec, seconds),
            self._deadline(timeout),
        )

    async def wait_until_ready(self, timeout: float = 60.0) -> None:
        """As `Client.wait_until_ready`.

        Example:
            ```python
            await client.wait_until_ready()
            ```
        """
        seconds = Deadline(timeout).seconds
        try:
            await self._transport.ready(seconds)
        except ServingError as error:
            raise self._with_hint(error, seconds) from error.__cause__

    async def close(self) -> None:
        """Closes the connection.

        Example:
            ```python
            await client.close()
            ```
        """
        await self._transport.close()

    def _spec(self, model, version):
        return given.model_spec(
            self.model if model is None else model,
            self.version if version is None else version,
        )

    def _deadline(self, timeout):
        return Deadline(self.timeout if timeout is None else timeout)

    async def _predict(self, spec, signature, inputs, outputs, deadline):
        """Runs a signature; an error has advice on wrong dtypes."""
        arrays = given.by_name(inputs)
        try:
            return await self._run(spec, signature, arrays, outputs, deadline)
        except ServingError as error:
            if error.code != grpc.StatusCode.INVALID_ARGUMENT:
                raise
            advice = await self._advice(spec, signature, arrays, deadline)
            if not advice:
                raise
            raise ServingError(error.code, error.message, advice) from None

    async def _run(self, spec, signature, arrays, outputs, deadline):
        """Runs a signature, in parts if one request may not have all rows."""

        def one(arrays, spec):
            return self._ask(
                lambda seconds: self._transport.predict(
                    spec, signature, arrays, outputs, seconds
                ),
                deadline,
            )

        rows, most = parts.number_of_rows(arrays), self._max_rows
        if rows is None or most is None or rows <= most:
            try:
                return await one(arrays, spec)
            except ServingError as error:
                most = parts.rows_allowed(error, rows)
                if most is None:
                    raise
        for last in (False,) * _SWAPS + (True,):
            # So that one version answers all parts.
            pinned, _ = await self._pinned(spec, deadline)
            try:
                return await parts.run(
                    lambda part, to=pinned: one(part, to), arrays, most
                )
            except ServingError as error:
                gone = error.code == grpc.StatusCode.NOT_FOUND
                if last or pinned == spec or not gone:
                    raise

    async def _ask(
        self,
        call: Callable[[float | None], Awaitable[_Answer]],
        deadline: Deadline,
    ) -> _Answer:
        """Makes a call, and repeats it if that may help."""
        try:
            answer = await self._retries.run(call, self._transport, deadline)
        except ServingError as error:
            found = self._with_hint(error, deadline.seconds)
            self._answered |= error.code not in _NO_ANSWER
            raise found from error.__cause__
        self._answered = True
        return answer

    def _with_hint(self, error, timeout):
        found = hint(error, self.address, timeout, self._answered)
        return ServingError(error.code, error.message, found)

    async def _metadata(self, spec, deadline) -> Metadata:
        return await self._ask(
            lambda seconds: self._transport.metadata(spec, seconds), deadline
        )

    async def _pinned(self, spec, deadline):
        """Returns the spec with the number of its version, and signatures."""
        version, signatures = await self._metadata(spec, deadline)
        if isinstance(spec.version, int):
            return spec, signatures
        return ModelSpec(spec.name, version), signatures

    async def _advice(self, spec, signature, arrays, deadline):
        """Returns advice on inputs of the wrong dtype, "" if there is none."""
        try:
            _, signatures = await self._metadata(spec, deadline)
        except ServingError:
            return ""
        if signature not in signatures:
            return ""
        return given.wrong_dtypes(arrays, signatures[signature].inputs)

    async def _inputs_of(self, signature, spec, deadline):
        """Returns the specs of a signature's inputs, and its sources' names.

        The server is asked only once.
        """
        if (signature, spec) not in self._options:
            _, signatures = await self._metadata(spec, deadline)
            if signature not in signatures:
                phrases = " with `terms` or `avoid`" * (signature == "terms")
                raise ValueError(
                    f"`translate`{phrases} needs the signature `{signature}`. "
                    f"Received: a model with {list(signatures)}. Export it by "
                    "`translator.export(directory, "
                    f"signatures=['{signature}'])`."
                )
            found = (
                signatures[signature].inputs,
                given.sources(signature, signatures),
            )
            self._options[signature, spec] = found
        return self._options[signature, spec]


def _require_no_error(result):
    """Raises `RowError` if some rows could not be answered."""
    errors = enumerate(result.get("error", []))
    if bad := {row: error for row, error in errors if error}:
        raise RowError(bad, result)


def _of_best(finished) -> bool | None:
    """Returns whether a row's best text is finished, `None` if unknown."""
    return None if finished is None else bool(np.ravel(finished)[0])
