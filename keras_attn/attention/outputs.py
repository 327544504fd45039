"""What `Attention` returns of what it found, and what that looks like."""

import keras
from keras import ops

from keras_attn.backend import zero_where_masked


def outputs_of(
    attention, attended, query_mask, return_attention_scores, return_samples
):
    """The context alone, or a tuple with what was asked for beside it."""
    outputs = [attended.context]
    if return_attention_scores:
        weights = attended.alignments  # (batch, target, source)
        if return_attention_scores == "heads":
            weights = attended.by_head  # (batch, target, heads, source)
            if attention.heads == 1:
                weights = ops.expand_dims(attended.alignments, 2)
        outputs.append(ops.cast(weights, attention.compute_dtype))
    if return_samples:
        outputs += [attended.log_probability, attended.entropy]
    outputs = [zero_where_masked(x, query_mask) for x in outputs]
    if return_attention_scores == "heads":
        outputs[1] = ops.swapaxes(outputs[1], 1, 2)
    return tuple(outputs) if len(outputs) > 1 else outputs[0]


def specs_of(attention, query, value, return_attention_scores, return_samples):
    """The same as `KerasTensor`s, for tensors of these shapes."""
    batch, target, _ = query.shape
    dtype, source = attention.compute_dtype, value.shape[1]
    shape = attention.compute_output_shape(query.shape, value.shape)
    outputs = [keras.KerasTensor(shape, dtype=dtype)]
    if return_attention_scores:
        by_head = return_attention_scores == "heads"
        heads = (attention.heads,) if by_head else ()
        shape = (batch, *heads, target, source)
        outputs.append(keras.KerasTensor(shape, dtype=dtype))
    if return_samples:
        # Two: Keras tells the outputs of a model apart by their identity.
        outputs += [
            keras.KerasTensor((batch, target), dtype="float32")
            for _ in range(2)
        ]
    return tuple(outputs) if len(outputs) > 1 else outputs[0]
