"""`PredictCall`: reads a `PredictRequest` and writes a `PredictResponse`."""

import contextlib
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow_serving.apis import predict_pb2

from keras_attn_serving.server import answers
from keras_attn_serving.server.calls import Call
from keras_attn_serving.server.calls import Job
from keras_attn_serving.server.catalog import Catalog
from keras_attn_serving.server.catalog import Spec
from keras_attn_serving.server.errors import Code
from keras_attn_serving.server.errors import StatusError
from keras_attn_serving.server.errors import invalid_argument
from keras_attn_serving.server.limits import Limits
from keras_attn_serving.server.model import DEFAULT_SIGNATURE
from keras_attn_serving.server.model import Model
from keras_attn_serving.server.parsing import SHORT
from keras_attn_serving.server.parsing import parse
from keras_attn_serving.server.signatures import Signature
from keras_attn_serving.wire import protocol


class PredictCall(Call):
    """A `PredictRequest` as bytes, answered by a `PredictResponse`.

    Args:
        raw: The message.
        catalog: The models that are served.
        limits: The size limits of a request.
    """

    def __init__(self, raw: bytes, catalog: Catalog, limits: Limits):
        self._raw, self._catalog, self._limits = raw, catalog, limits
        self._name: str | None = None
        self.size = len(raw)

    def model_name(self) -> str:
        """Returns the name of the model, "" if the request names none.

        A long request that was refused unread is not read for this.
        """
        if self._name is None and self.size <= SHORT:
            with contextlib.suppress(DecodeError):
                request = predict_pb2.PredictRequest.FromString(self._raw)
                self._name = request.model_spec.name
        return self._name or ""

    @contextlib.contextmanager
    def open(self) -> Iterator[Job]:
        request = parse(
            predict_pb2.PredictRequest, self._raw, self._limits.message_bytes
        )
        spec = read_spec(request)
        self._name = spec.name
        with self._catalog.lend(spec) as model:
            wanted = job(model, request, self._limits)
            self._limits.require_answer(answers.least(wanted, _width))
            yield wanted

    def answer(self, job: Job, values: Mapping[str, np.ndarray]) -> bytes:
        self._limits.require_answer(answers.most(values, _width))
        return response(job, values).SerializeToString()


def predict(
    model: Model, request: predict_pb2.PredictRequest
) -> predict_pb2.PredictResponse:
    """Answers a request, whatever its model name and version.

    Raises:
        StatusError: If the request is invalid or its run fails.
    """
    wanted = job(model, request, None)
    return response(wanted, model.execute(wanted.plan))


def read_spec(request: Any) -> Spec:
    """Returns the `Spec` of the model that a gRPC request names.

    Raises:
        StatusError: If it names none.
    """
    if not request.HasField("model_spec"):
        raise invalid_argument("Missing ModelSpec")
    spec = request.model_spec
    choice = spec.WhichOneof("version_choice")
    return Spec(
        spec.name,
        spec.version.value if choice == "version" else None,
        spec.version_label if choice == "version_label" else None,
    )


def job(
    model: Model, request: predict_pb2.PredictRequest, limits: Limits | None
) -> Job:
    """Returns the `Job` that a request describes."""
    name = request.model_spec.signature_name or DEFAULT_SIGNATURE
    arrays = Arrays(request.inputs, model.signatures.get(name), limits)
    return Job(model, name, model.plan(name, arrays, request.output_filter))


def response(
    job: Job, values: Mapping[str, np.ndarray]
) -> predict_pb2.PredictResponse:
    """Returns the message of an answer."""
    result = predict_pb2.PredictResponse()
    result.model_spec.name = job.model.name
    result.model_spec.signature_name = job.signature
    result.model_spec.version.value = job.model.version
    for alias, value in values.items():
        try:
            protocol.encode(value, result.outputs[alias])
        except ValueError as error:
            raise StatusError(
                Code.UNIMPLEMENTED,
                f'Output "{alias}" cannot be sent: {error}',
            ) from error
    return result


class Arrays(Mapping):
    """The arrays of `TensorProto` messages by name, decoded on access.

    So a request with a wrong name is refused for its name before its tensors
    are decoded, as in TensorFlow Serving. A tensor of the wrong dtype or rank
    is not decoded either: it is replaced by an array of that dtype and shape
    that needs no memory.

    Args:
        tensors: The messages.
        signature: Their `Signature`, or `None` if there is none.
        limits: The size limits of a request; `None` for no limits.
    """

    def __init__(
        self,
        tensors: Mapping,
        signature: Signature | None = None,
        limits: Limits | None = None,
    ):
        self._tensors = tensors
        self._wanted = signature.inputs if signature else {}
        self._limits = limits

    def __getitem__(self, alias: str) -> np.ndarray:
        tensor, wanted = self._tensors[alias], self._wanted.get(alias)
        readable = tensor.dtype in protocol.KINDS and _has_a_shape(tensor)
        if readable and wanted is not None:
            if not _has_dtype_and_rank(tensor, wanted):
                return _stand_in(alias, tensor)
            if self._limits is not None:
                self._limits.require_header(alias, tensor, wanted)
        array = self._decoded(alias, tensor)
        if self._limits is not None:
            self._limits.require_texts(alias, array)
        return array

    def _decoded(self, alias, tensor):
        try:
            array = protocol.decode(tensor)
        except ValueError as error:
            raise invalid_argument(f"tensor parsing error: {alias}") from error
        dtype = np.dtype(tf.as_dtype(tensor.dtype).as_numpy_dtype)
        if tensor.dtype == tf.bfloat16.as_datatype_enum:
            return array.astype(dtype)  # from float32, without loss
        # A quantised dtype has the bits of an integer but a name of its own.
        return array if array.dtype == dtype else array.view(dtype)

    def __contains__(self, alias: object) -> bool:
        return alias in self._tensors

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)


def _width(dtype):
    return dtype.itemsize


def _has_a_shape(tensor):
    """Returns whether `protocol.decode` accepts the shape of a message."""
    dims = tensor.tensor_shape.dim
    return len(dims) <= protocol.MAX_RANK and all(x.size >= 0 for x in dims)


def _has_dtype_and_rank(tensor, wanted):
    if wanted.dtype is None or tensor.dtype != wanted.dtype.as_datatype_enum:
        return False
    rank = len(tensor.tensor_shape.dim)
    return wanted.shape is None or rank == len(wanted.shape)


def _stand_in(alias, tensor):
    """Returns an array of a message's dtype and shape, without its values."""
    dtype = tf.as_dtype(tensor.dtype).as_numpy_dtype
    shape = [dim.size for dim in tensor.tensor_shape.dim]
    try:
        return np.broadcast_to(np.zeros((), dtype), shape)
    except ValueError as error:  # more than an array can have
        raise invalid_argument(f"tensor parsing error: {alias}") from error
