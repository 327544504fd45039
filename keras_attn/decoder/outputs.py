"""What a decoder returns of a whole target, and what that looks like."""

import itertools

import keras
from keras import ops

from keras_attn.backend import zero_where_masked
from keras_attn.decoder import checks
from keras_attn.decoder import widths


def outputs_of(
    decoder, outputs, attended, mask, return_attention_scores, return_samples
):
    """The outputs alone, or a tuple with what was asked for beside them."""
    results = [outputs]
    if return_attention_scores:
        alignments = [
            ops.cast(found.alignments, decoder.compute_dtype)
            for found in attended
        ]
        results.append(alignments if decoder.several else alignments[0])
    if return_samples:
        sampling = [x.alignment.samples for x in decoder.attentions]
        sampled = list(itertools.compress(attended, sampling))
        results.append(sum(x.log_probability for x in sampled))
        results.append(sum(x.entropy for x in sampled))
    results = keras.tree.map_structure(
        lambda x: zero_where_masked(x, mask), results
    )
    return tuple(results) if len(results) > 1 else results[0]


def specs_of(decoder, inputs, memory, return_attention_scores, return_samples):
    """The same as `KerasTensor`s, for tensors of these shapes."""
    memories = checks.one_for_each(decoder, memory, "memory")
    batch, target, _ = inputs.shape

    def spec(dtype, *shape):
        return keras.KerasTensor((batch, target, *shape), dtype=dtype)

    dtype = decoder.compute_dtype
    context_dim = widths.of_context(decoder, [x.shape[-1] for x in memories])
    results = [spec(dtype, widths.of_output(decoder, context_dim))]
    if return_attention_scores:
        alignments = [spec(dtype, x.shape[1]) for x in memories]
        results.append(alignments if decoder.several else alignments[0])
    if return_samples:
        results += [spec("float32"), spec("float32")]
    return tuple(results) if len(results) > 1 else results[0]
