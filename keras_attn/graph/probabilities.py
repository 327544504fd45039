"""Tells a model's probabilities from logits, and how to get logits."""

import keras
import numpy as np


def are_probabilities(values) -> bool:
    """Whether an array holds probabilities along its last axis."""
    return bool(
        values.dtype.kind == "f"
        and values.ndim > 1
        and values.shape[-1] > 1
        and np.min(values) >= 0
        and np.allclose(np.sum(values, -1), 1, atol=1e-2)
    )


def logits_instead(operation) -> str:
    """Returns sentences on how to get logits, and keep the weights.

    Args:
        operation: The layer or operation that returns probabilities.
    """
    name = operation.name
    if getattr(operation, "activation", None) is keras.activations.softmax:
        how = (
            "Set `layer.activation = keras.activations.linear` of the layer "
            f"'{name}', in a trained model too: its weights stay as they are."
        )
    else:
        how = (
            "End the model before it: `keras.Model(model.inputs, logits)`, "
            f"where `logits` is what '{name}' reads, keeps all weights, in a "
            "trained model too."
        )
    return f"{how} Then compile with `keras_attn.SequenceCrossentropy()`."
