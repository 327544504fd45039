"""Aligns given pairs by decoding with the target as a prefix."""

import dataclasses
from collections.abc import Iterator

import tensorflow as tf

from keras_attn.decoding import GreedySearch

_STEPS = 16  # lengths are rounded up to this times 2 ** n, for fewer graphs


def alignments_of(
    pipeline, source_text, rows, targets, batches
) -> Iterator[tuple]:
    """Yields source ids, target ids and attention weights of pairs.

    Target ids are without a prompt, which stands before the target.

    Args:
        pipeline: `Pipeline` of a translator.
        source_text: The `Text` of the source that the model attends to.
        rows: The sources, as `collect()` returned them.
        targets: The `TargetLines`.
        batches: Iterable of lists of indices.
    """
    text, attended = pipeline.target_text, pipeline.sources.attended
    graphs: dict = {}
    for batch in batches:
        ids = text.ids(targets.take(batch))
        steps = _STEPS
        while steps < ids.shape[1]:
            steps *= 2
        if pipeline.cut.longest:
            before = len(text.special.start) - 1 + pipeline.prompts.length
            longest = pipeline.cut.longest - before
            steps = min(steps, longest)
            ids = ids[:, :longest]
        if steps not in graphs:
            graphs[steps] = _graph(pipeline, steps)
        given = pipeline.sources.inputs(pipeline.sources.take(rows, batch))
        weights, ids = graphs[steps](given, ids)
        weights = weights[:, 0].numpy()
        if not weights.any():
            raise ValueError(
                "Alignments need a model that attends to its source. "
                "Received: a model without attention, or with attention "
                "weights that are all 0. To make a shortlist, use "
                "`Shortlist.from_tokens`."
            )
        sources, ids = given[attended].numpy(), ids.numpy()
        pad = source_text.special.pad
        for source, target, weight in zip(sources, ids, weights, strict=True):
            source = source[source != pad]
            target = target[target != text.special.pad]
            yield source, target, weight[: len(target), : len(source)]


def _graph(pipeline, steps):
    forced = dataclasses.replace(
        pipeline,
        search=GreedySearch(max_length=steps),
        forbidden=(),
        shortlist=None,
    )

    def align(inputs, prefix):
        request = forced.prompts.completed(inputs, {"prefix": prefix})
        found = forced.decode_inputs(inputs, request)
        return found.alignments, request["prefix"]

    return tf.function(
        align,
        input_signature=[
            pipeline.sources.input_specs,
            tf.TensorSpec([None, None], tf.int32),
        ],
        autograph=False,
    )
