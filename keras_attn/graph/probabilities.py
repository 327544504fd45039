"""Distinguishes probabilities from logits, and explains how to get logits."""

import keras
import numpy as np
from keras import layers

from keras_attn.keras_internals import is_operation_of_keras
from keras_attn.keras_internals import producer


def are_probabilities(values) -> bool:
    """Whether an array holds probabilities along its last axis."""
    return bool(
        values.dtype.kind == "f"
        and values.ndim > 1
        and values.shape[-1] > 1
        and np.min(values) >= 0
        and np.allclose(np.sum(values, -1), 1, atol=1e-2)
    )


def ends_in_softmax(output) -> bool:
    """Whether a symbolic tensor comes from a softmax over its last axis."""
    operation = producer(output).operation
    return _is_softmax(operation) or (
        getattr(operation, "activation", None) is keras.activations.softmax
    )


def before_softmax(output):
    """Returns the input of the softmax that returned a symbolic tensor.

    Returns `None` if the tensor is not the output of a separate softmax.
    """
    node = producer(output)
    if _is_softmax(node.operation) and len(node.input_tensors) == 1:
        return node.input_tensors[0]
    return None


def _is_softmax(operation):
    if type(operation) is layers.Activation:
        return operation.activation is keras.activations.softmax
    if type(operation) is layers.Softmax or (
        is_operation_of_keras(operation)
        and type(operation).__name__ == "Softmax"
    ):
        return operation.axis == -1
    return False


def logits_instead(operation) -> str:
    """Returns advice on the loss to use, and on how to get logits instead.

    Args:
        operation: The layer or operation that returns probabilities.
    """
    name = operation.name
    if getattr(operation, "activation", None) is keras.activations.softmax:
        how = (
            "set `layer.activation = keras.activations.linear` of the layer "
            f"'{name}': its weights stay the same."
        )
    else:
        how = (
            "end the model before it: `keras.Model(model.inputs, logits)`, "
            f"where `logits` is the input of '{name}', keeps all weights."
        )
    return (
        "Compile with `keras_attn.SequenceCrossentropy(from_logits=False)`. "
        f"Or, for logits, {how}"
    )
