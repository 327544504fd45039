"""TensorFlow Serving's gRPC messages: requests to write, answers to read."""

from collections.abc import Mapping
from collections.abc import Sequence

import grpc
import numpy as np

from keras_attn_serving.wire import protocol
from keras_attn_serving.wire import wire_pb2 as wire
from keras_attn_serving.wire.results import Result
from keras_attn_serving.wire.results import ServingError
from keras_attn_serving.wire.results import Signature
from keras_attn_serving.wire.results import TensorSpec
from keras_attn_serving.wire.results import VersionStatus
from keras_attn_serving.wire.results import strings
from keras_attn_serving.wire.transport import Metadata
from keras_attn_serving.wire.transport import ModelSpec
from keras_attn_serving.wire.transport import too_large

# Where TensorFlow's name of a dtype is not numpy's.
_NUMPY_NAMES = {"float": "float32", "double": "float64", "half": "float16"}


def predict_request(
    spec: ModelSpec,
    signature: str,
    inputs: Mapping[str, np.ndarray],
    outputs: Sequence[str],
) -> wire.PredictRequest:
    """Returns the request that runs a signature."""
    request = wire.PredictRequest(
        model_spec=_spec(spec, signature), output_filter=outputs
    )
    for name, array in inputs.items():
        protocol.encode(array, request.inputs[name])
    return request


def result(response: wire.PredictResponse, most: int) -> Result:
    """Returns the outputs of a signature.

    Args:
        response: The answer.
        most: Most bytes that its values may have.

    Raises:
        ServingError: If they have more, or a tensor cannot be read.
    """
    outputs = {}
    try:
        size = sum(map(protocol.size, response.outputs.values()))
        if size > most:
            raise too_large(f"values of {size}", f"{most} bytes")
        for name, tensor in sorted(response.outputs.items()):
            array = protocol.decode(tensor)
            text = array.dtype == object
            # What the message repeats or holds as bytes cannot be written to.
            numbers = None if text else np.require(array, requirements="W")
            outputs[name] = strings(name, array) if text else numbers
    except ValueError as error:
        raise ServingError(
            grpc.StatusCode.UNKNOWN, f"The answer cannot be read: {error}"
        ) from None
    spec = response.model_spec
    return Result(outputs, spec.name, spec.version.value, spec.signature_name)


def metadata_request(spec: ModelSpec) -> wire.GetModelMetadataRequest:
    """Returns the request for a model's signatures."""
    return wire.GetModelMetadataRequest(
        model_spec=_spec(spec), metadata_field=["signature_def"]
    )


def metadata(response: wire.GetModelMetadataResponse) -> Metadata:
    """Returns a model's signatures."""
    found = wire.SignatureDefMap.FromString(
        response.metadata["signature_def"].value
    )
    return Metadata(
        response.model_spec.version.value,
        {
            name: Signature(_specs(each.inputs), _specs(each.outputs))
            for name, each in sorted(found.signature_def.items())
            if not name.startswith("__")  # the loader's own initialisation
        },
    )


def status_request(spec: ModelSpec) -> wire.GetModelStatusRequest:
    """Returns the request for the states of a model's versions."""
    return wire.GetModelStatusRequest(model_spec=_spec(spec))


def status(response: wire.GetModelStatusResponse) -> list[VersionStatus]:
    """Returns the states of a model's versions."""
    return [
        VersionStatus(
            each.version,
            wire.ModelVersionStatus.State.Name(each.state),
            each.status.error_code,
            each.status.error_message,
        )
        for each in response.model_version_status
    ]


def dtype_name(dtype: int) -> str:
    """Returns numpy's name of a `DataType`, or TensorFlow's if it has none."""
    name = protocol.dtype_name(dtype)
    return _NUMPY_NAMES.get(name, name)


def _spec(spec, signature=""):
    written = wire.ModelSpec(name=spec.name, signature_name=signature)
    if isinstance(spec.version, str):
        written.version_label = spec.version
    elif spec.version is not None:
        written.version.value = spec.version
    return written


def _specs(tensors):
    return {
        name: TensorSpec(dtype_name(info.dtype), _shape(info.tensor_shape))
        for name, info in sorted(tensors.items())
    }


def _shape(shape):
    if shape.unknown_rank:
        return None
    return tuple(None if dim.size < 0 else dim.size for dim in shape.dim)
