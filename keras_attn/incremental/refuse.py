"""How a model that cannot be cut is refused: by the layer in the way."""

import re


class Refused(ValueError):
    """A model cannot be cut."""


class WholeFails(Refused):
    """A model fails on a whole target."""


def refuse(operation, reason, kind=Refused):
    """Raises an error that names a layer, or an operation.

    Args:
        operation: The Keras operation in the way.
        reason: What it does, and what would work, without a full stop.
        kind: Class of the error.
    """
    raise kind(
        f"This model cannot be decoded token by token: '{operation.name}' "
        f"({type(operation).__name__}) {reason}. Between the target input "
        "and the logits there may stand `AttentionDecoder` and recurrent "
        "layers, attention to the source, self-attention with "
        "`use_causal_mask=True`, layers that take `start_index`, functional "
        "models of all these, and layers that treat each position alone, "
        "such as `Embedding`, `Dense`, `Dropout` and `LayerNormalization`."
    )


def in_short(error) -> str:
    """What an error says, without colours and the values of arguments."""
    said = re.sub(r"\x1b\[\d*m", "", str(error))
    said = said.split("Arguments received by")[0]
    return f"{type(error).__name__}: {' '.join(said.split())}"
