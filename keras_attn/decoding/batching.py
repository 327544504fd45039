"""Splits batches into buckets of similar length.

In a batch the shorter sources are padded to the longest, and all take as many
steps as the longest output. So one long text makes all short ones as slow as
itself. A batch is split if its longest source is at least twice as long as its
shortest; `ends_of_buckets` decides where. `batches` splits the calls of a
`Translator`. `Buckets` splits within the graph of an export, whose server joins
the texts of many clients into one batch.

If padding changes what a model computes, a bucket has only texts of one length:
see `batches_of_one_length`, and `Buckets` with `most=None`.
"""

import functools
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

MOST = 4  # buckets of a batch, unless an export sets another number
# The overhead of a step in rows, and of a bucket in steps, measured on a CPU.
OVERHEAD, MORE_STEPS = 16, 8


def batches(
    lengths, batch_size: int, max_length: int, most: int = MOST
) -> Iterator[list[int]]:
    """Yields the row indices of each bucket, short sources first.

    Args:
        lengths: Lengths of the sources, `(rows,)`.
        batch_size: Most rows of a batch.
        max_length: Longest output in tokens.
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


def batches_of_one_length(
    lengths: Sequence[tuple[int, ...]], batch_size: int
) -> Iterator[list[int]]:
    """Yields the row indices of each batch; its rows have the same lengths.

    Args:
        lengths: The lengths of each row's texts, in tokens.
        batch_size: Most rows of a batch.
    """
    rows: dict = {}
    for i, length in enumerate(lengths):
        rows.setdefault(length, []).append(i)
    for length in sorted(rows):
        for i in range(0, len(rows[length]), batch_size):
            yield rows[length][i : i + batch_size]


class Buckets:
    """Runs the rows of a batch in buckets, one after another, within a graph.

    Args:
        texts: Pairs of the index of a text input and its `Text`.
        max_length: Longest output in tokens.
        most: Most buckets; `None` makes one bucket for each length.
    """

    def __init__(self, texts: tuple, max_length: int, most: int | None):
        self._texts, self._max_length, self._most = texts, max_length, most

    def __call__(self, run: Callable, inputs: tuple, others: Any):
        """Runs all rows.

        Args:
            run: A `tf.function` of `inputs` and `others`. It returns a
                structure of tensors, batch first, which may be `Hypotheses`.
            inputs: The model's source inputs, batch first.
            others: A structure of tensors, batch first.

        Returns:
            The structure that `run` returns, with the rows in the order of the
            inputs.
        """
        lengths = [_lengths(inputs[i], text) for i, text in self._texts]
        if self._most is None:
            lengths = _as_one(lengths)
            alike = tf.reduce_min(lengths) == tf.reduce_max(lengths)
        else:
            lengths = tf.minimum(tf.add_n(lengths), self._max_length)
            alike = are_alike(tf.reduce_min(lengths), tf.reduce_max(lengths))
        order, ends = tf.cond(
            alike | (tf.size(lengths) < 2),
            lambda: (tf.range(tf.size(lengths)), tf.size(lengths)[None]),
            lambda: self._split(lengths),
        )
        return self._in_turn(run, inputs, others, order, ends)

    def _split(self, lengths):
        """Returns the order of rows by length, and the ends of the buckets."""
        order = tf.argsort(lengths, stable=True)
        lengths = tf.gather(lengths, order)
        if self._most is not None:
            return order, ends_of_buckets(lengths, self._most)
        _, _, counts = tf.unique_with_counts(lengths)
        return order, tf.cumsum(counts)

    def _in_turn(self, function, inputs, others, order, ends):
        # The graph calls the function at one place, even for a single bucket.
        # A second call would add half a second to the graph's first run.
        def run(bucket, first, *found):
            end = ends[bucket]
            rows = order[first:end]
            taken, asked = tf.nest.map_structure(
                lambda x: tf.gather(x, rows), (inputs, others)
            )
            new = function(self._cut(taken), asked)
            before = tf.nest.pack_sequence_as(new, found)
            joined = tf.nest.flatten(_joined(before, new))
            for x, size in zip(joined, shapes, strict=True):
                x.set_shape(size)
            return bucket + 1, end, *joined

        like = function.get_concrete_function(inputs, others)
        like = like.structured_outputs
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
    """Returns whether lengths differ too little to split a batch."""
    return longest < 2 * shortest


def ends_of_buckets(lengths, most: int = MOST, overhead: int = OVERHEAD):
    """Splits rows into the buckets with the lowest decoding cost.

    A bucket takes as many steps as its longest length. The cost of a step is
    the number of the bucket's rows plus the overhead. Starting and ending a
    bucket costs the overhead of a few more steps.

    Args:
        lengths: Integers `(rows,)`, ascending, at least one: the lengths of
            the sources, capped at the longest output.
        most: Most buckets.
        overhead: Cost of a step in addition to its rows, counted in rows.

    Returns:
        The ends of the buckets, `(buckets,)`, ascending. The last one is the
        number of rows.
    """
    # Works on distinct lengths, since even many rows have few of them.
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
    """Returns the length of each row up to its last real token, `(rows,)`."""
    columns = tf.range(1, tf.shape(ids)[1] + 1)
    columns = tf.where(ids != text.special.pad, columns, 0)
    return tf.maximum(tf.reduce_max(columns, axis=1), 0)  # 0 without columns


def _as_one(lengths):
    """Returns a number per row, equal for rows with the same lengths."""
    found = tf.zeros_like(lengths[0])
    for length in lengths:
        _, index = tf.unique(found)
        found = index * (tf.reduce_max(length) + 1) + length
    return found


def _joined(*found):
    """Concatenates the rows of structures, zero-padded to the widest."""
    return tf.nest.map_structure(
        lambda *x: tf.concat(_as_wide(x), axis=0), *found
    )


def _as_wide(tensors):
    """Pads tensors to a common size along the axes of unknown size."""
    rank = len(tensors[0].shape)
    open_axes = [i for i in range(1, rank) if _varies(tensors, i)]
    if not open_axes:
        return tensors
    sizes = [tf.shape(x) for x in tensors]
    most = functools.reduce(tf.maximum, sizes)
    found = []
    for x, size in zip(tensors, sizes, strict=True):
        missing = [
            most[i] - size[i] if i in open_axes else 0 for i in range(rank)
        ]
        found.append(tf.pad(x, tf.stack([tf.zeros_like(missing), missing], 1)))
    return found


def _varies(tensors, axis):
    first, *others = (x.shape[axis] for x in tensors)
    return first is None or any(size != first for size in others)
