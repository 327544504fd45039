"""Refuses Classify, Regress and MultiInference as TensorFlow Serving does.

These calls send serialized `tf.Example`s to signatures made for them. Exports
of keras-attn have none: theirs take texts and tensors, by Predict.
"""

from typing import Any

from keras_attn_serving.server.catalog import Catalog
from keras_attn_serving.server.catalog import Spec
from keras_attn_serving.server.errors import Code
from keras_attn_serving.server.errors import StatusError
from keras_attn_serving.server.errors import invalid_argument
from keras_attn_serving.server.model import DEFAULT_SIGNATURE
from keras_attn_serving.server.predict import read_spec

_NOUNS = {"classify": "classification", "regress": "regression"}
_METHOD = "tensorflow/serving/"


def refuse(catalog: Catalog, spec: Spec, signature: str, kind: str) -> None:
    """Raises the error of a call to classify or to regress.

    Args:
        catalog: The models that are served.
        spec: Which model it wants.
        signature: Name of the signature; "" for the default.
        kind: `"classify"` or `"regress"`.

    Raises:
        StatusError: Always.
    """
    name = signature or DEFAULT_SIGNATURE
    with catalog.lend(spec) as model:
        definition = model.definitions.get(name)
    if definition is None:
        raise invalid_argument(f"No signature was found with the name: {name}")
    raise _refusal(definition, kind)


def refuse_several(catalog: Catalog, request: Any) -> None:
    """Raises the error of a `MultiInferenceRequest`.

    Args:
        catalog: The models that are served.
        request: The message.

    Raises:
        StatusError: Always.
    """
    if not request.tasks:
        raise invalid_argument("Missing ModelSpec")
    first = read_spec(request.tasks[0])
    with catalog.lend(first) as model:
        definitions = model.definitions
    seen = set()
    for task in request.tasks:
        spec = read_spec(task)
        if not spec.name:
            raise invalid_argument("Found ModelSpec with an empty model name.")
        if spec.name != first.name:
            raise invalid_argument(
                "All ModelSpecs in a MultiInferenceRequest must access the "
                "same model name."
            )
        name = task.model_spec.signature_name or DEFAULT_SIGNATURE
        if name in seen:
            raise invalid_argument(f"Duplicate evaluation of signature: {name}")
        seen.add(name)
        if name not in definitions:
            raise invalid_argument(
                f"Requested signature not found in model graph: {name}"
            )
        kind = task.method_name.removeprefix(_METHOD)
        if kind not in _NOUNS:
            raise StatusError(
                Code.UNIMPLEMENTED,
                f"Unsupported signature method_name: {task.method_name}",
            )
        refusal = _refusal(definitions[name], kind)
        if refusal.code is not Code.UNIMPLEMENTED:
            raise refusal
    raise refusal


def _refusal(definition, kind):
    inputs, outputs = definition.inputs, definition.outputs
    if len(inputs) != 1:
        return invalid_argument("Expected one input Tensor.")
    if kind == "classify" and len(outputs) not in (1, 2):
        return invalid_argument(
            f"Expected one or two output Tensors, found {len(outputs)}"
        )
    if kind == "regress" and len(outputs) != 1:
        return invalid_argument("Expected one output Tensor.")
    shown = f"SignatureDef: {definition}"
    if "inputs" not in inputs:
        return invalid_argument(f"No {_NOUNS[kind]} inputs found in {shown}")
    if kind == "regress" and "outputs" not in outputs:
        return invalid_argument(f"No regression outputs found in {shown}")
    if kind == "classify" and not {"classes", "scores"} & set(outputs):
        return invalid_argument(
            "Expected classification signature outputs to contain at least one "
            f'of "classes" or "scores". Signature was: {definition}'
        )
    return StatusError(
        Code.UNIMPLEMENTED,
        f"The development server does not {kind}. Use Predict, which takes "
        "strings and tensors directly.",
    )
