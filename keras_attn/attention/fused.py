"""Scaled dot attention by the backend's own kernel, where there is one."""

from keras import ops

from keras_attn.alignments import SoftmaxAlignment
from keras_attn.attention.heads import apply_to_rows
from keras_attn.attention.heads import fold
from keras_attn.attention.heads import unfold
from keras_attn.backend import has_fused_attention
from keras_attn.scores import ScaledDotScore


def can_fuse(attention, memory, training):
    """Whether the backend's own kernel computes the same, and faster."""
    return (
        has_fused_attention()
        and type(attention.score) is ScaledDotScore
        and not attention.score.learned_scale
        and type(attention.alignment) is SoftmaxAlignment
        and attention.alignment.temperature == 1
        and not (training and attention.dropout)
        and attention.regularizer is None
        and memory.keys.shape[-1] == memory.values.shape[-1]
    )


def fused(attention, query, memory, allowed):
    """The contexts alone, as `Attention.attend()` gives them."""
    keys, values = memory.keys, memory.values
    head_query = ops.expand_dims(query, 2)
    if attention.projections:
        head_query = attention.projections.split_query(query)
        head_query = unfold(head_query, attention.heads)
        # (B, H, S, D) -> (B, S, H, D)
        keys, values = ops.swapaxes(keys, 1, 2), ops.swapaxes(values, 1, 2)
    else:
        keys, values = ops.expand_dims(keys, 2), ops.expand_dims(values, 2)
    mask = None
    if allowed is not None:
        shape = (*ops.shape(query)[:2], ops.shape(keys)[1])
        mask = ops.expand_dims(ops.broadcast_to(allowed, shape), 1)
    context = ops.dot_product_attention(
        ops.cast(head_query, attention.compute_dtype), keys, values, mask=mask
    )
    if mask is not None:  # (B, 1, T, S) -> (B, T, 1, 1)
        somewhere = ops.swapaxes(ops.any(mask, -1, keepdims=True), 1, 2)
        context = ops.where(somewhere, context, 0.0)
    if attention.projections:
        context = attention.projections.join(fold(context))
    else:
        context = ops.squeeze(context, 2)
    if attention.context_gate:
        context = context * apply_to_rows(attention.context_gate, query)
    return context
