"""Scaled dot-product attention by the backend's fused kernel, if it has one."""

from keras import ops

from keras_attn.backend import has_fused_attention
from keras_attn.layers.alignments import SoftmaxAlignment
from keras_attn.layers.scores import ScaledDotScore


def can_fuse(score, alignment):
    """Whether the backend has a fast fused kernel for this attention."""
    return (
        has_fused_attention()
        and type(score) is ScaledDotScore
        and not score.learned_scale
        and type(alignment) is SoftmaxAlignment
        and alignment.temperature == 1
    )


def attend(query, keys, values, allowed):
    """Returns the contexts `(batch, target, heads, dim)`.

    Args:
        query: Tensor of shape `(batch, target, heads, dim)`.
        keys, values: Tensors of shape `(batch, source, heads, dim)`.
        allowed: Boolean tensor that broadcasts to `(batch, target, source)`,
            or `None`.
    """
    mask = None
    if allowed is not None:
        shape = (*ops.shape(query)[:2], ops.shape(keys)[1])
        mask = ops.expand_dims(ops.broadcast_to(allowed, shape), 1)
    context = ops.dot_product_attention(query, keys, values, mask=mask)
    if mask is None:
        return context
    # (B, 1, T, S) -> (B, T, 1, 1): a query that may look nowhere gets zeros
    somewhere = ops.swapaxes(ops.any(mask, -1, keepdims=True), 1, 2)
    return ops.where(somewhere, context, 0.0)
