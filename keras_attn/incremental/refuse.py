"""Errors for models that cannot be cut; they name the layer in the way."""

import re


class Refused(ValueError):
    """A model cannot be cut.

    Attributes:
        operation: The layer or operation that prevents it, if recomputing its
            whole past at each step could help; else `None`.
        steps: Whether to list the layers that run a token at a time.
    """

    operation = None
    steps = True


class NothingRemembered(Refused):
    """No token of a model depends on the tokens before it."""


class LooksAhead(Refused):
    """A token of a model depends on later tokens."""

    steps = False


class WholeFails(Refused):
    """A model fails on a whole target."""

    steps = False


_MAY_BE_THERE = (
    " Between the target input "
    "and the logits there may be `AttentionDecoder` and recurrent "
    "layers, attention to the source, self-attention with "
    "`use_causal_mask=True`, causal convolutions, layers that take "
    "`start_index`, functional models of all these, layers with a "
    "`keras_attn.Stepper` of their own, and layers that treat each "
    "position alone, such as `Embedding`, `Dense`, `Dropout` and "
    "`LayerNormalization`."
)


def refuse_quantized(layers):
    """Refuses layers that Keras quantized.

    Args:
        layers: The layers of a model, at all depths.

    Raises:
        ValueError: If one is quantized. The message names it.
    """
    for layer in layers:
        if layer.quantization_mode is not None:
            raise ValueError(
                "Decoding needs float weights, but the layer "
                f"'{layer.name}' ({type(layer).__name__}) is quantized. "
                f"Received: quantization_mode={layer.quantization_mode!r}. "
                "Leave out `model.quantize(...)`, or load the float weights "
                "from a file saved before it. To store 8 bits per weight, "
                'export with `translator.export(directory, weights="int8")`.'
            )


def refuse(operation, reason, kind=Refused):
    """Raises an error that names a layer, or an operation.

    Args:
        operation: The Keras operation in the way.
        reason: What it does and what would work instead, a clause to follow
            the operation's name, without a full stop.
        kind: Class of the error.
    """
    error = kind(
        f"This model cannot be decoded token by token: '{operation.name}' "
        f"({type(operation).__name__}) {reason}."
        + (_MAY_BE_THERE if kind.steps else "")
    )
    error.operation = operation
    raise error


def refuse_whole(operation, length, error):
    """Raises the error of a model that fails on whole targets.

    Args:
        operation: The model, or the layer that fails.
        length: Number of tokens of the target.
        error: The error with which it fails.
    """
    refuse(
        operation,
        f"fails on random ids, a target of {length} tokens, with "
        f"{in_short(error):.400}; if it takes only shorter targets, search "
        "with a lower `max_length`; if it takes fewer ids, pass the `Text`s "
        "that it was trained with; if it takes only one number of rows "
        "(`stateful=True`), build it without",
        WholeFails,
    )


def in_short(error) -> str:
    """Returns an error's text without colours or arguments' values."""
    said = re.sub(r"\x1b\[\d*m", "", str(error))
    said = said.split("Arguments received by")[0]
    return f"{type(error).__name__}: {' '.join(said.split())}"
