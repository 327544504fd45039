"""Metadata and status of models as TensorFlow Serving's messages."""

from tensorflow_serving.apis import get_model_metadata_pb2
from tensorflow_serving.apis import get_model_status_pb2

from keras_attn_serving.server.catalog import Catalog
from keras_attn_serving.server.catalog import Spec


def metadata(
    catalog: Catalog, spec: Spec
) -> get_model_metadata_pb2.GetModelMetadataResponse:
    """Returns the signatures of a model."""
    signatures = get_model_metadata_pb2.SignatureDefMap()
    response = get_model_metadata_pb2.GetModelMetadataResponse()
    with catalog.lend(spec) as model:
        for name, signature in model.definitions.items():
            signatures.signature_def[name].CopyFrom(signature)
        response.model_spec.name = model.name
        response.model_spec.version.value = model.version
    response.metadata["signature_def"].Pack(signatures)
    return response


def status(
    catalog: Catalog, spec: Spec
) -> get_model_status_pb2.GetModelStatusResponse:
    """Returns the state of a version, or of each.

    As in TensorFlow Serving, a label is ignored.
    """
    response = get_model_status_pb2.GetModelStatusResponse()
    for each in catalog.status(spec.name, spec.version):
        entry = response.model_version_status.add()
        entry.version, entry.state = each.version, each.state
        entry.status.error_code = each.code
        entry.status.error_message = each.error
    return response
