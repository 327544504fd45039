"""Converts `PredictRequest` and `PredictResponse` for `Model.run`."""

from collections.abc import Iterator
from collections.abc import Mapping

import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2

from keras_attn_serving import protocol
from keras_attn_serving.errors import Code
from keras_attn_serving.errors import StatusError
from keras_attn_serving.errors import invalid_argument
from keras_attn_serving.model import DEFAULT_SIGNATURE
from keras_attn_serving.model import Model


def predict(
    model: Model,
    request: predict_pb2.PredictRequest,
    timeout: float | None = None,
) -> predict_pb2.PredictResponse:
    """Answers a request, whatever its model name and version.

    Raises:
        StatusError: If the request is at fault or its run fails.
    """
    signature = request.model_spec.signature_name or DEFAULT_SIGNATURE
    values = model.run(
        signature, Arrays(request.inputs), request.output_filter, timeout
    )
    response = predict_pb2.PredictResponse()
    response.model_spec.name = model.name
    response.model_spec.signature_name = signature
    response.model_spec.version.value = model.version
    for alias, value in values.items():
        try:
            protocol.encode(value, response.outputs[alias])
        except ValueError as error:
            raise StatusError(
                Code.UNIMPLEMENTED,
                f'Output "{alias}" cannot be sent: {error}',
            ) from error
    return response


class Arrays(Mapping):
    """The arrays of `TensorProto` messages by name, decoded on access.

    So a request with a wrong name is refused for its name before its tensors
    are decoded, as in TensorFlow Serving.
    """

    def __init__(self, tensors: Mapping):
        self._tensors = tensors

    def __getitem__(self, alias: str) -> np.ndarray:
        tensor = self._tensors[alias]
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
