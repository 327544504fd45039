"""Calling an attention's parts with what they name, and weighing values."""

import keras
from keras import ops

from keras_attn.alignments import Sample


def call_score(score, given, query, keys):
    """Scores, a row of the batch for each head."""
    extra = {k: x for k, x in given.items() if score.takes(k)}
    extra.pop("query", None)  # its first argument
    return score(query, keys, **extra)


def call_alignment(alignment, given, scores, allowed):
    """The weights, or a `Sample` of them."""
    extra = {k: x for k, x in given.items() if alignment.takes(k)}
    return alignment(_finite(scores), allowed=allowed, **extra)


def weights_of(aligned):
    """The weights of what an alignment returned, in float32."""
    weights = aligned.weights if isinstance(aligned, Sample) else aligned
    return ops.cast(weights, "float32")


def weigh(weights, values, kept):
    """The contexts: the values' sum by what dropout kept of the weights."""
    factors = ops.cast(weights, values.dtype)
    if kept is not None:
        factors = factors * kept
    return ops.matmul(factors, values)


def _finite(scores):
    """Products in float16 may be infinite, and their difference no number."""
    if keras.backend.standardize_dtype(scores.dtype) != "float16":
        return scores
    return ops.clip(scores, -65504.0, 65504.0)
