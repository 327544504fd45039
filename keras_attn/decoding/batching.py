"""Batches are split into buckets of similar length.

In a batch the shorter sources are padded to the longest, and all take as many
steps as the longest output. So one long text among short ones would make all
of them as slow as itself. If the longest is at least twice as long as the
shortest, a batch is split; `ends_of_buckets` says where. `batches` does so for
the calls of a `Translator`, and `BucketedDecoding` within the graph of an
export, whose server joins the texts of many clients.
"""

from collections.abc import Callable
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

MOST = 4  # buckets of a batch, unless an export says otherwise
# What a step costs beside its rows, counted in rows, and what a bucket costs
# beside its steps, counted in steps; measured on a CPU.
OVERHEAD, MORE_STEPS = 16, 8


def batches(
    lengths, batch_size: int, max_length: int, most: int = MOST
) -> Iterator[list[int]]:
    """Yields the indices of the rows of each batch, short rows first.

    Args:
        lengths: Lengths of the sources.
        batch_size: Most rows of a batch.
        max_length: Longest output.
        most: Most buckets of a batch.
    """
    lengths = np.array(lengths, "int32")
    order = np.argsort(lengths, kind="stable")
    for i in range(0, len(order), batch_size):
        batch = order[i : i + batch_size]
        steps = np.minimum(lengths[batch], max_length)
        ends = [len(batch)]
        if most > 1 and not are_alike(steps[0], steps[-1]):
            ends = ends_of_buckets(steps, most).numpy()
        for bucket in np.split(batch, ends[:-1]):
            yield bucket.tolist()


class BucketedDecoding:
    """Decodes a batch in buckets, one after another, within a graph.

    Args:
        texts: Pairs of the index of an input that is text, and its `Text`.
        most: Most buckets.
        max_length: Longest output.
    """

    def __init__(self, texts: tuple, most: int, max_length: int):
        self._texts, self._most, self._max_length = texts, most, max_length

    def __call__(self, search: Callable, inputs: tuple, request: dict):
        """Decodes all rows.

        Args:
            search: A `tf.function` that decodes inputs and a request, and
                returns `Hypotheses`.
            inputs: The model's source inputs, batch first.
            request: A structure of tensors, batch first.

        Returns:
            `Hypotheses`, the rows in the order of the inputs.
        """
        lengths = tf.add_n([_lengths(inputs[i], x) for i, x in self._texts])
        lengths = tf.minimum(lengths, self._max_length)
        alike = are_alike(tf.reduce_min(lengths), tf.reduce_max(lengths))
        # Most batches skip the loop: its overhead is a fifth of a small call.
        return tf.cond(
            alike | (tf.size(lengths) < 2),
            lambda: search(inputs, request),
            lambda: self._in_turn(search, inputs, request, lengths),
        )

    def _in_turn(self, search, inputs, request, lengths):
        order = tf.argsort(lengths, stable=True)
        ends = ends_of_buckets(tf.gather(lengths, order), self._most)

        def run(bucket, first, *found):
            end = ends[bucket]
            rows = order[first:end]
            taken, asked = tf.nest.map_structure(
                lambda x: tf.gather(x, rows), (inputs, request)
            )
            new = search(self._cut(taken), asked)
            before = tf.nest.pack_sequence_as(new, found)
            return bucket + 1, end, *tf.nest.flatten(_joined(before, new))

        like = search.get_concrete_function(inputs, request).structured_outputs
        none, shapes = [], []
        for x in tf.nest.flatten(like):
            none.append(tf.zeros([0, *(n or 0 for n in x.shape[1:])], x.dtype))
            shapes.append(tf.TensorShape([None, *x.shape[1:]]))
        _, _, *found = tf.while_loop(
            lambda bucket, *_: bucket < tf.size(ends),
            run,
            (0, 0, *none),
            shape_invariants=(*[tf.TensorShape([])] * 2, *shapes),
        )
        back = tf.argsort(order)
        found = [tf.gather(x, back) for x in found]
        return tf.nest.pack_sequence_as(like, found)

    def _cut(self, inputs):
        """Returns inputs cut to the longest text of these rows."""
        inputs = list(inputs)
        for i, text in self._texts:
            width = tf.reduce_max(_lengths(inputs[i], text))
            width = tf.maximum(width, 1)  # RNNs refuse a length of zero
            inputs[i] = inputs[i][:, :width]
        return tuple(inputs)


def are_alike(shortest, longest):
    """Whether lengths differ too little for a batch to be split."""
    return longest < 2 * shortest


def ends_of_buckets(lengths, most: int = MOST, overhead: int = OVERHEAD):
    """Splits rows into buckets so that decoding costs least.

    A bucket takes as many steps as its longest length, and a step costs as
    much as the bucket's rows and the overhead. To begin and to end costs the
    overhead of some more steps.

    Args:
        lengths: Integers `(rows,)`, ascending, at least one: those of the
            sources, but not above the longest output.
        most: Most buckets.
        overhead: Cost of a bucket beside its rows, counted in rows.

    Returns:
        The ends of the buckets, `(buckets,)`, ascending. The last one is the
        number of rows.
    """
    # By distinct lengths, of which there are few also among many rows.
    lengths, _, counts = tf.unique_with_counts(lengths)
    after = tf.cumsum(counts)
    rows = after - (after - counts)[:, None]  # of the lengths from i to j
    steps, counted = (tf.cast(x, tf.float32) for x in (lengths, rows))
    costs = counted * steps + overhead * (steps + MORE_STEPS)
    costs = tf.where(rows > 0, costs, float("inf"))
    best, firsts = costs[0], []
    for _ in range(most - 1):  # one more bucket each time
        totals = tf.concat([[0.0], best[:-1]], axis=0)[:, None] + costs
        firsts.append(tf.argmin(totals, axis=0, output_type=tf.int32))
        best = tf.reduce_min(totals, axis=0)
    ends = [tf.size(lengths)]
    for first in reversed(firsts):
        ends.append(tf.gather(first, tf.maximum(ends[-1] - 1, 0)))
    ends = tf.stack(ends[::-1])
    return tf.gather(after, tf.boolean_mask(ends, ends > 0) - 1)


def _lengths(ids, text):
    """Returns the number of each row's columns up to the last real one."""
    columns = tf.range(1, tf.shape(ids)[1] + 1)
    columns = tf.where(ids != text.special.pad, columns, 0)
    return tf.maximum(tf.reduce_max(columns, axis=1), 0)  # without any: 0


def _joined(*found):
    """Joins the rows of several `Hypotheses`, with columns for the widest."""
    widths = [tf.shape(x.alignments)[3] for x in found]
    width = tf.reduce_max(widths)
    found = [
        x._replace(
            alignments=tf.pad(
                x.alignments, [[0, 0], [0, 0], [0, 0], [0, width - own]]
            )
        )
        for x, own in zip(found, widths, strict=True)
    ]
    return tf.nest.map_structure(lambda *x: tf.concat(x, axis=0), *found)
