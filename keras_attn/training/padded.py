"""Padded targets: which of their tokens the loss and the metrics count."""

from keras import ops

ADVICE = (
    " Pass as targets the ids of the decoder input moved by one token: of the "
    "same length, and not one-hot."
)


def compares(owner) -> str:
    """Returns the first sentence of errors about shapes."""
    return (
        f"{type(owner).__name__} compares ids of shape (batch, target) with "
        "logits of shape (batch, target, vocabulary)."
    )


def check_shapes(owner, y_true, y_pred):
    """Checks that ids `(batch, target)` fit their logits."""
    true_shape, pred_shape = tuple(y_true.shape), tuple(y_pred.shape)
    fits = all(
        None in sizes or sizes[0] == sizes[1]
        for sizes in zip(true_shape[:2], pred_shape[:2], strict=False)
    )
    if len(true_shape) == 2 and len(pred_shape) == 3 and fits:
        return
    raise ValueError(
        f"{compares(owner)} Received: y_true of shape {true_shape}, y_pred of "
        f"shape {pred_shape}.{ADVICE}"
    )


def real_tokens(y_true, padding_id):
    """Returns 1 where a target is a token and 0 at padding, float32."""
    return ops.cast(ops.not_equal(y_true, padding_id), "float32")


def per_token(sample_weight, tokens):
    """Returns float32 weights of shape `(batch, target)` or `(batch, 1)`.

    Args:
        sample_weight: Weights of shape `(batch,)` or `(batch, target)`.
        tokens: Tensor of shape `(batch, target)` that they weigh.
    """
    weight = ops.cast(sample_weight, "float32")
    if len(weight.shape) == 1:
        weight = ops.expand_dims(weight, -1)
    if len(weight.shape) != 2:
        raise ValueError(
            "`sample_weight` weighs rows or tokens, so it must have the shape "
            "(batch,) or (batch, target). Received: sample_weight of shape "
            f"{tuple(sample_weight.shape)} for tokens of shape "
            f"{tuple(tokens.shape)}. Pass one weight per row or per token."
        )
    return weight
