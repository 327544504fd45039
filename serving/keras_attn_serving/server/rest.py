"""TensorFlow Serving's REST API, as an ASGI application.

Paths, bodies, statuses and texts are TensorFlow Serving's, with these
exceptions:

- `/healthz` answers while the server runs, `/readyz` once every model is
  loaded.
- Every error has a text. TensorFlow Serving sends none for a version number
  that is too large, or for an OPTIONS request without an origin.
- A call whose client leaves while the call waits never runs.
- Classify and regress are refused, once their signature is found.
- Requests for models that are not served are counted under the name "", so that
  clients cannot fill the metrics.
"""

import asyncio
import contextlib
import functools
import logging
import re
import time
import zlib
from collections.abc import Awaitable
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote_to_bytes

import numpy as np
from google.protobuf import json_format
from starlette.requests import ClientDisconnect
from starlette.requests import Request
from starlette.responses import Response
from tensorflow_serving.apis import get_model_metadata_pb2

from keras_attn_serving.server import answers
from keras_attn_serving.server import descriptions
from keras_attn_serving.server import examples
from keras_attn_serving.server import json_tensors
from keras_attn_serving.server.aside import Aside
from keras_attn_serving.server.aside import require_size
from keras_attn_serving.server.bodies import Bodies
from keras_attn_serving.server.bodies import too_large
from keras_attn_serving.server.calls import SMALL
from keras_attn_serving.server.calls import Call
from keras_attn_serving.server.calls import Executor
from keras_attn_serving.server.calls import Job
from keras_attn_serving.server.catalog import Catalog
from keras_attn_serving.server.catalog import Spec
from keras_attn_serving.server.errors import Code
from keras_attn_serving.server.errors import StatusError
from keras_attn_serving.server.errors import invalid_argument
from keras_attn_serving.server.limits import Limits
from keras_attn_serving.server.metrics import Metrics
from keras_attn_serving.server.model import DEFAULT_SIGNATURE

_LOG = logging.getLogger(__name__)

_OURS = re.compile(r"/v1/.*", re.IGNORECASE | re.DOTALL)
_NAME = "/(?P<name>[^/:]+)"
_VERSION = r"(?:/versions/(?P<version>\d+)|/labels/(?P<label>[^/:]+))?"
# The last part must be in lower case; the others need not be.
_POST = re.compile(
    f"(?i:/v1/models{_NAME}{_VERSION}):(?P<method>classify|regress|predict)",
    re.ASCII,
)
_GET = re.compile(
    f"/v1/models(?:{_NAME})?{_VERSION}(?:/(?P<part>metadata))?",
    re.IGNORECASE | re.ASCII,
)

_STATUSES = {
    Code.OK: 200,
    Code.CANCELLED: 499,
    Code.INVALID_ARGUMENT: 400,
    Code.FAILED_PRECONDITION: 400,
    Code.OUT_OF_RANGE: 400,
    Code.UNAUTHENTICATED: 401,
    Code.PERMISSION_DENIED: 403,
    Code.NOT_FOUND: 404,
    Code.ALREADY_EXISTS: 409,
    Code.ABORTED: 409,
    Code.RESOURCE_EXHAUSTED: 429,
    Code.UNIMPLEMENTED: 501,
    Code.UNAVAILABLE: 503,
    Code.DEADLINE_EXCEEDED: 504,
}


class RestApi:
    """Answers HTTP requests; its methods run in the server's event loop.

    Args:
        catalog: The models that are served.
        executor: Runs the calls.
        aside: The threads for calls that run no model.
        limits: The size limits of a request.
        metrics: Counts requests.
        bodies: Holds the requests that arrive.
        timeout: Seconds until a request is cancelled; `None` for never.
        cors: Whether pages of other origins may send requests.
        metrics_path: Path under which the metrics are served, or `None`.
    """

    def __init__(
        self,
        catalog: Catalog,
        executor: Executor,
        aside: Aside,
        limits: Limits,
        metrics: Metrics,
        bodies: Bodies,
        *,
        timeout: float | None = 30.0,
        cors: bool = False,
        metrics_path: str | None = None,
    ):
        self._catalog, self._executor, self._aside = catalog, executor, aside
        self._limits, self._metrics = limits, metrics
        self._bodies = bodies
        self._timeout, self._cors = timeout, cors
        self._metrics_path = metrics_path

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answers one request of ASGI."""
        if scope["type"] != "http":
            return
        with contextlib.suppress(ClientDisconnect):
            response = await self._respond(Request(scope, receive))
            await response(scope, receive, send)

    async def _respond(self, request):
        # The path as it was sent, since a name may hold an escaped slash.
        path = request.scope["raw_path"].decode("ascii", "replace")
        query = request.scope["query_string"].decode("ascii", "replace")
        whole = f"{path}?{query}" if query else path
        if path == self._metrics_path:
            if query:
                return Response(
                    f"Unexpected path: {whole}. Should be {path}",
                    400,
                    media_type="text/plain",
                )
            page = self._metrics.page()
            return Response(page, media_type="text/plain; version=0.0.4")
        if path == "/healthz":
            return Response("ok", media_type="text/plain")
        if path == "/readyz":
            ready = self._catalog.ready()
            return Response(
                "ok" if ready else "not every model is loaded",
                200 if ready else 503,
                media_type="text/plain",
            )
        if not _OURS.fullmatch(path):
            return Response(status_code=404)
        started = time.perf_counter()
        route = _Route(request.method, whole)
        try:
            body = await self._answer(route, request)
            code = Code.OK
        except StatusError as error:
            code, body = error.code, json_tensors.error(error.details)
        except asyncio.CancelledError:  # by a server that stops
            code = Code.UNAVAILABLE
            body = json_tensors.error("The server stops.")
        except ClientDisconnect:
            raise
        except Exception:
            _LOG.exception("a request by REST failed")
            code = Code.INTERNAL
            body = json_tensors.error("The server failed.")
        self._metrics.request(
            self._catalog.known(route.spec.name),
            route.method,
            "REST",
            code,
            time.perf_counter() - started,
        )
        response = Response(
            body, _STATUSES.get(code, 500), media_type="application/json"
        )
        if self._cors:
            response.headers.update(
                {
                    "Access-Control-Allow-Origin": "*",
                    "Access-Control-Allow-Methods": "POST, GET",
                    "Access-Control-Allow-Headers": "Content-Type",
                }
            )
        return response

    async def _answer(self, route, request):
        if request.method == "OPTIONS":
            if re.search("https?://", request.headers.get("origin", "")):
                return b""
            raise StatusError(
                Code.FAILED_PRECONDITION,
                "Origin header is missing in CORS preflight",
            )
        spec = route.read()
        if route.method == "predict":
            started = time.perf_counter()
            body = await self._body(request)
            left = self._timeout
            if left is not None:
                left = max(0.0, left - (time.perf_counter() - started))
            call = JsonCall(body, spec, self._catalog, self._limits)
            answer = self._executor.answer(call, left)
            return await _unless_left(request, answer, left)
        if route.method:
            body = await self._body(request)
            refuse = functools.partial(self._refuse, body, spec, route.method)
            return await self._aside.run(refuse, body.size)
        describe = self._metadata if route.metadata else self._status
        return await self._aside.run(functools.partial(describe, spec))

    def _refuse(self, body, spec, method):
        def read():
            text = body.read()
            require_size(len(text))  # the body may have arrived zipped
            return json_tensors.read_signature(text, self._limits)

        signature = read() if body.small else json_tensors.in_turn(read)
        examples.refuse(self._catalog, spec, signature, method)

    def _metadata(self, spec):
        return _metadata_json(descriptions.metadata(self._catalog, spec))

    def _status(self, spec):
        return _json(descriptions.status(self._catalog, spec))

    async def _body(self, request):
        """Returns the body of a request, as it arrived."""
        raw = await self._bodies.read(request.stream(), self._timeout)
        zipped = "gzip" in request.headers.get("content-encoding", "")
        return Body(raw, zipped, self._limits.message_bytes)


class Body:
    """The body of a request.

    Args:
        raw: The bytes that arrived.
        zipped: Whether they are compressed with gzip.
        most: Most bytes that it may have unzipped.

    Attributes:
        size: Number of bytes that arrived.
        small: Whether reading it takes no longer than passing it to a thread.
    """

    def __init__(self, raw: bytes, zipped: bool, most: int):
        self._raw, self._zipped, self._most = raw, zipped, most
        self.size = len(raw)
        self.small = self.size <= SMALL and not zipped

    def read(self) -> bytes:
        """Returns the body, unzipped.

        Raises:
            StatusError: If it is too large, or not valid gzip.
        """
        if not self._zipped:
            return self._raw
        unzip = zlib.decompressobj(zlib.MAX_WBITS | 16)  # gzip, not zlib
        try:  # no further than needed to see that it is too large
            result = unzip.decompress(self._raw, self._most + 1)
        except zlib.error as broken:
            raise _no_gzip() from broken
        if len(result) > self._most:
            raise too_large(self._most)
        if not unzip.eof or unzip.unused_data:
            raise _no_gzip()
        return result


class JsonCall(Call):
    """A request to predict as JSON.

    Args:
        body: The JSON.
        spec: Which model it wants, from the path.
        catalog: The models that are served.
        limits: The size limits of a request.
    """

    def __init__(
        self, body: Body, spec: Spec, catalog: Catalog, limits: Limits
    ):
        self._body, self._spec = body, spec
        self._catalog, self._limits = catalog, limits
        self._rows = False
        self.size = body.size

    @property
    def small(self) -> bool:
        return self._body.small

    @contextlib.contextmanager
    def open(self) -> Iterator[Job]:
        with contextlib.ExitStack() as stack:
            model = None

            def find(name):
                # Only now, so that broken JSON is refused before the model is
                # looked for.
                nonlocal model
                model = stack.enter_context(self._catalog.lend(self._spec))
                name = name or DEFAULT_SIGNATURE
                if name not in model.signatures:
                    raise invalid_argument(
                        f'Serving signature name: "{name}" not found in '
                        "signature def"
                    )
                return model.signatures[name]

            def read():
                return json_tensors.read(self._body.read(), find, self._limits)

            request = read() if self.small else json_tensors.in_turn(read)
            assert model is not None
            self._rows = request.rows
            name = request.signature or DEFAULT_SIGNATURE
            wanted = model.signatures[name].inputs
            for alias, array in request.arrays.items():
                self._limits.require_array(alias, array, wanted[alias])
            job = Job(model, name, model.plan(name, request.arrays))
            self._limits.require_answer(answers.least(job, json_tensors.width))
            yield job

    def answer(self, job: Job, values: Mapping[str, np.ndarray]) -> bytes:
        size = answers.most(values, json_tensors.width)
        self._limits.require_answer(size)
        return json_tensors.write(values, self._rows)


class _Route:
    """The model, version and method in the path of a request."""

    def __init__(self, http_method, path):
        self._asked = f"{http_method} {path}"
        pattern = {"POST": _POST, "GET": _GET}.get(http_method)
        found = pattern.fullmatch(path) if pattern else None
        self.known = found is not None
        parts = found.groupdict() if found else {}
        self._version = parts.get("version")
        self.method = parts.get("method", "")
        # `METADATA` in capitals returns the status, as in TensorFlow Serving.
        self.metadata = parts.get("part") == "metadata"
        self.spec = Spec(
            _unquoted(parts.get("name")),
            label=_unquoted(parts["label"]) if parts.get("label") else None,
        )

    def read(self):
        """Returns the `Spec`, or raises `StatusError`."""
        if not self.known:
            raise invalid_argument(f"Malformed request: {self._asked}")
        if not self.spec.name:
            raise invalid_argument("Missing model name in request.")
        if self._version is None:
            return self.spec
        digits = self._version.lstrip("0") or "0"
        if len(digits) > 19 or int(digits) >= 2**63:
            raise invalid_argument(
                f"Failed to convert version: {self._version} to numeric."
            )
        return self.spec._replace(version=int(digits))


async def _unless_left(
    request: Request, answer: Awaitable[bytes], seconds: float | None
) -> bytes:
    """Returns an answer, or gives up when the client leaves or time is up.

    The run has the same time limit, but writing the answer takes time too.
    """
    answering = asyncio.ensure_future(answer)
    leaving = asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait(
            (answering, leaving),
            timeout=seconds,
            return_when=asyncio.FIRST_COMPLETED,
        )
        if answering.done():
            return answering.result()
        if not leaving.done():
            raise StatusError(Code.DEADLINE_EXCEEDED, "Deadline exceeded")
        raise StatusError(Code.CANCELLED, "The client has left.")
    finally:
        answering.cancel()
        leaving.cancel()


async def _left(request):
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _no_gzip():
    return invalid_argument("The body is not what gzip writes.")


def _unquoted(text):
    return unquote_to_bytes(text or "").decode("utf-8", "replace")


def _json(message):
    text = json_format.MessageToJson(
        message,
        always_print_fields_with_no_presence=True,
        ensure_ascii=False,
    )
    return text.encode()


def _metadata_json(response):
    signatures = get_model_metadata_pb2.SignatureDefMap()
    response.metadata["signature_def"].Unpack(signatures)
    options = {
        "always_print_fields_with_no_presence": True,
        "preserving_proto_field_name": True,
        "ensure_ascii": False,
    }
    spec = json_format.MessageToJson(response.model_spec, **options)
    signature_def = json_format.MessageToJson(signatures, **options)
    return (
        f'{{\n"model_spec":{spec},\n"metadata": {{'
        f'"signature_def": {signature_def}}}\n}}\n'
    ).encode()
