"""A client for exported models: texts in, texts and numpy arrays out.

It queries TensorFlow Serving and the development server over gRPC, and does
not import TensorFlow.
"""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import grpc
import numpy as np

from keras_attn_serving import protocol
from keras_attn_serving import wire_pb2 as wire
from keras_attn_serving.results import Alignment
from keras_attn_serving.results import Result
from keras_attn_serving.results import RowError
from keras_attn_serving.results import ServingError
from keras_attn_serving.results import Signature
from keras_attn_serving.results import TensorSpec
from keras_attn_serving.results import VersionStatus

_HINTS = {
    grpc.StatusCode.UNAVAILABLE: (
        "Is a server running at {address!r}? Start one with `python -m "
        "keras_attn_serving --model_base_path=DIR --model_name=NAME`, or call "
        "`client.wait_until_ready()` while it loads its model."
    ),
    grpc.StatusCode.DEADLINE_EXCEEDED: (
        "The answer took longer than {timeout} seconds. Send fewer texts a "
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
    grpc.StatusCode.RESOURCE_EXHAUSTED: (
        "The server is busy or the message too large: send fewer texts a "
        "request or fewer requests at a time."
    ),
}


class Client:
    """Queries the models of one server. Threads may share a client.

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
        timeout: Seconds that a call may take; `None` for no limit.
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
        credentials: grpc.ChannelCredentials | None = None,
        options: Sequence[tuple[str, Any]] = (),
    ):
        web = "http://", "https://"
        if not isinstance(address, str) or address.startswith(web):
            raise ValueError(
                "`address` must be that of the server's gRPC port, "
                '`host:port`, such as "localhost:8500", without http://. '
                f"Received: address={address!r}"
            )
        self.address = address
        self.model = model
        self.version = version
        self.timeout = timeout
        self._options: dict = {}
        # gRPC's default limit is 4 MiB, less than many a batch of alignments.
        options = [
            ("grpc.max_receive_message_length", -1),
            ("grpc.max_send_message_length", -1),
            *options,
        ]
        if credentials is None:
            self._channel = grpc.insecure_channel(address, options)
        else:
            self._channel = grpc.secure_channel(address, credentials, options)
        self._predict = self._method(
            "PredictionService/Predict",
            wire.PredictRequest,
            wire.PredictResponse,
        )
        self._metadata = self._method(
            "PredictionService/GetModelMetadata",
            wire.GetModelMetadataRequest,
            wire.GetModelMetadataResponse,
        )
        self._status = self._method(
            "ModelService/GetModelStatus",
            wire.GetModelStatusRequest,
            wire.GetModelStatusResponse,
        )

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
        """
        if isinstance(inputs, str | bytes):
            raise ValueError(
                "`inputs` must be a batch. Received: the text "
                f"{inputs!r:.80}. For one text pass a list of one."
            )
        inputs = _by_name(inputs)
        if isinstance(outputs, str):
            outputs = [outputs]
        request = wire.PredictRequest(
            model_spec=self._spec(model, version, signature),
            output_filter=outputs or (),
        )
        for name, values in inputs.items():
            protocol.encode(values, request.inputs[name])
        try:
            response = self._call(self._predict, request, timeout)
        except ServingError as error:
            if error.code != grpc.StatusCode.INVALID_ARGUMENT:
                raise
            where = {"model": model, "version": version, "timeout": timeout}
            if not (hint := self._wrong_dtypes(request, signature, where)):
                raise
            raise ServingError(error.code, error.message, hint) from error
        spec = response.model_spec
        return Result(
            {
                name: _output(name, tensor)
                for name, tensor in sorted(response.outputs.items())
            },
            spec.name,
            spec.version.value,
            spec.signature_name,
        )

    def translate(
        self,
        inputs: Any,
        prefixes: Sequence[str | None] | None = None,
        seed: int | None = None,
        options: Mapping[str, Any] | None = None,
        *,
        model: str | None = None,
        version: int | str | None = None,
        timeout: float | None = None,
    ) -> Result:
        """Runs the signature `options` with the given options.

        Signatures have no optional inputs, so options that are left out are
        sent as -1, which stands for the exported search's own. The client
        asks the server once for the options' names.

        Args:
            inputs: As for `predict`.
            prefixes: A string or `None` for each source, with which its text
                begins.
            seed: Seed of an export that samples: the same seed repeats the
                draws. Source number `i` draws by `seed + i`.
            options: Options by name, such as `{"length_penalty": 0.6}`. Each
                is one value for all sources, or a list with one for each.
            model, version, timeout: Override the client's own.

        Returns:
            A `Result` of `text`, `score`, `texts` and `scores`. Exports of
            keras-attn 0.2 and later add `truncated` and `unknown`, which
            report cuts and unknown tokens of text and prefix together, and
            `error`, "" for every row.

        Raises:
            RowError: If some rows cannot be answered. It holds the answers to
                the others.
            ServingError: If the server cannot be reached or refuses.
            ValueError: If this model does not take an option or a seed.
        """
        where: dict = {"model": model, "version": version, "timeout": timeout}
        inputs = {
            name: protocol.as_array(values)
            for name, values in _by_name(inputs).items()
        }
        wanted = self._inputs_of_options(**where)
        known = {
            name: spec.dtype
            for name, spec in wanted.items()
            if name not in {"prefix", "seed", *inputs}
        }
        options = dict(options or {})
        if unknown := set(options) - set(known):
            raise ValueError(
                f"`options` may hold {sorted(known)} for this model. "
                f"Received: {sorted(unknown)}"
            )
        if seed is not None and "seed" not in wanted:
            raise ValueError(
                "`seed` needs a model that samples; this one draws nothing at "
                f"random. Received: seed={seed!r}. Leave it out."
            )
        if seed is not None and seed < 0:
            raise ValueError(
                "`seed` must be at least 0, or None for a new seed in each "
                f"call. Received: seed={seed!r}"
            )
        rows = len(next(iter(inputs.values())))
        if "seed" in wanted:
            seeds = -1 if seed is None else np.arange(seed, seed + rows)
            inputs["seed"] = _per_row("seed", seeds, rows, "int32")
        prefixes = [x or "" for x in prefixes or [""] * rows]
        inputs["prefix"] = _per_row("prefixes", prefixes, rows, "object")
        for name, dtype in known.items():
            value = options.get(name, -1)
            inputs[name] = _per_row(name, value, rows, dtype)
        result = self.predict(inputs, "options", **where)
        errors = enumerate(result.get("error", []))
        if bad := {row: error for row, error in errors if error}:
            raise RowError(bad, result)
        return result

    def align(
        self,
        texts: Sequence[str],
        *,
        model: str | None = None,
        version: int | str | None = None,
        timeout: float | None = None,
    ) -> list[Alignment]:
        """Runs the signature `align` and removes each text's padding.

        Args:
            texts: The texts; or arrays by name, if the model reads arrays.
            model, version, timeout: Override the client's own.

        Returns:
            An `Alignment` for each text.
        """
        result = self.predict(
            texts, "align", model=model, version=version, timeout=timeout
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
                strict=True,
            )
        ]

    def metadata(
        self,
        *,
        model: str | None = None,
        version: int | str | None = None,
        timeout: float | None = None,
    ) -> dict[str, Signature]:
        """Returns the model's signatures by name."""
        request = wire.GetModelMetadataRequest(
            model_spec=self._spec(model, version),
            metadata_field=["signature_def"],
        )
        response = self._call(self._metadata, request, timeout)
        signatures = wire.SignatureDefMap.FromString(
            response.metadata["signature_def"].value
        )
        return {
            name: Signature(_specs(each.inputs), _specs(each.outputs))
            for name, each in sorted(signatures.signature_def.items())
            if not name.startswith("__")  # the loader's own initialisation
        }

    def status(
        self,
        *,
        model: str | None = None,
        version: int | None = None,
        timeout: float | None = None,
    ) -> list[VersionStatus]:
        """Returns the state of each version, or of `version` alone."""
        request = wire.GetModelStatusRequest(
            model_spec=self._spec(model, version)
        )
        response = self._call(self._status, request, timeout)
        return [
            VersionStatus(
                each.version,
                wire.ModelVersionStatus.State.Name(each.state),
                each.status.error_code,
                each.status.error_message,
            )
            for each in response.model_version_status
        ]

    def wait_until_ready(self, timeout: float = 60.0) -> None:
        """Waits until the server answers, once its model is loaded.

        Raises:
            ServingError: If no server answers within `timeout` seconds.
        """
        try:
            grpc.channel_ready_future(self._channel).result(timeout)
        except grpc.FutureTimeoutError:
            code = grpc.StatusCode.UNAVAILABLE
            raise ServingError(
                code,
                f"No server became ready within {timeout} seconds.",
                _HINTS[code].format(address=self.address),
            ) from None

    def close(self) -> None:
        """Closes the connection."""
        self._channel.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *exception) -> None:
        self.close()

    def _wrong_dtypes(self, request, signature, where):
        """Returns advice on inputs of the wrong dtype, "" if there are none."""
        try:
            wanted = self.metadata(**where)[signature].inputs
        except (ServingError, KeyError):
            return ""
        wrong = []
        for name, tensor in request.inputs.items():
            sent = _dtype(tensor.dtype)
            if name in wanted and wanted[name].dtype != sent:
                dtype = wanted[name].dtype
                wrong.append(
                    f"The input {name!r} must be {dtype}. Received: an array "
                    f"of {sent}. Pass `array.astype({dtype!r})`."
                )
        return " ".join(wrong)

    def _inputs_of_options(self, model, version, timeout):
        """Returns the specs of the inputs of `options`, fetched only once."""
        key = model, version
        if key not in self._options:
            signatures = self.metadata(
                model=model, version=version, timeout=timeout
            )
            if "options" not in signatures:
                raise ValueError(
                    "`translate` needs the signature `options`. Received: a "
                    f"model with {list(signatures)}. Export it by "
                    "`translator.export(directory, signatures=['options'])`."
                )
            self._options[key] = signatures["options"].inputs
        return self._options[key]

    def _method(self, name, request, response):
        return self._channel.unary_unary(
            f"/tensorflow.serving.{name}",
            request_serializer=request.SerializeToString,
            response_deserializer=response.FromString,
        )

    def _spec(self, model, version, signature=""):
        model = self.model if model is None else model
        if model is None:
            raise ValueError(
                "A call needs the name of a model. Received: model=None. Name "
                "it once, `Client(address, model=...)`, or in each call, "
                "`predict(inputs, model=...)`."
            )
        version = self.version if version is None else version
        spec = wire.ModelSpec(name=model, signature_name=signature)
        if isinstance(version, str):
            spec.version_label = version
        elif version is not None:
            spec.version.value = version
        return spec

    def _call(self, method, request, timeout):
        timeout = self.timeout if timeout is None else timeout
        try:
            return method(request, timeout=timeout)
        except grpc.RpcError as error:
            code, message = error.code(), error.details() or ""
            hint = _HINTS.get(code, "")
            # TensorFlow Serving also answers UNAVAILABLE if its batching
            # queue is full.
            if "queue" in message:
                hint = _HINTS[grpc.StatusCode.RESOURCE_EXHAUSTED]
            raise ServingError(
                code,
                message,
                hint.format(address=self.address, timeout=timeout),
            ) from error


def _by_name(inputs):
    """Returns inputs as a dictionary; a list of texts is named `text`."""
    if isinstance(inputs, Mapping):
        return inputs
    array = protocol.as_array(inputs)
    if array.dtype != object:
        raise ValueError(
            "`inputs` without names must be a list of texts. Received: an "
            f"array of dtype {array.dtype}, shape {array.shape}. Pass numbers "
            "by the name of an input, as in `{'ids': ids}`; "
            "`client.metadata()` has the names."
        )
    return {"text": array}


def _per_row(name, value, rows, dtype):
    """Returns one value, or one for each row, as an array `(rows,)`."""
    array = np.asarray(value)
    if array.shape not in ((), (rows,)):
        raise ValueError(
            f"`{name}` must be one value, or one for each of the {rows} "
            f"row(s). Received: {value!r:.200}"
        )
    sent = array.astype(dtype)
    if sent.dtype.kind == "i" and not np.array_equal(sent, array):
        raise ValueError(
            f"`{name}` is sent as {dtype}, which must hold its value exactly. "
            f"Received: {value!r:.200}"
        )
    return np.broadcast_to(sent, (rows,))


def _output(name, tensor):
    array = protocol.decode(tensor)
    if array.dtype != object:
        return array
    if not name.endswith("_bytes"):  # the naming rule of TF Serving's REST
        flat = [item.decode("utf-8", "replace") for item in array.reshape(-1)]
        array = _objects(flat, array.shape)
    return array.tolist()


def _objects(flat, shape):
    array = np.empty(len(flat), dtype=object)
    array[:] = flat
    return array.reshape(shape)


def _specs(tensors):
    return {
        name: TensorSpec(_dtype(info.dtype), _shape(info.tensor_shape))
        for name, info in sorted(tensors.items())
    }


def _dtype(number):
    name = protocol.dtype_name(number)
    return {"float": "float32", "double": "float64", "half": "float16"}.get(
        name, name
    )


def _shape(shape):
    if shape.unknown_rank:
        return None
    return tuple(None if dim.size < 0 else dim.size for dim in shape.dim)
