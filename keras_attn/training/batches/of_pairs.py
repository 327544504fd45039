"""`pairs()`: checks its arguments, and joins sides, rows and buckets."""

import functools
import random
from collections.abc import Mapping
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import tensorflow as tf

from keras_attn.text.text import Text
from keras_attn.training.batches.buckets import Buckets
from keras_attn.training.batches.dataset import Epochs
from keras_attn.training.batches.dataset import Pairs
from keras_attn.training.batches.dataset import RowOrder
from keras_attn.training.batches.rows import WINDOW
from keras_attn.training.batches.rows import InMemory
from keras_attn.training.batches.rows import Streamed
from keras_attn.training.batches.sides import ArraySide
from keras_attn.training.batches.sides import LineSide
from keras_attn.training.batches.sides import Side
from keras_attn.training.batches.sides import lines_of
from keras_attn.training.batches.sides import rows_of

Source: TypeAlias = Sequence[str] | tf.data.Dataset | Sequence[np.ndarray]


def pairs(
    sources: Source | Mapping[str, Source],
    targets: Source,
    source_text: Text | None | Mapping[str, Text | None],
    target_text: Text,
    batch_size: int = 64,
    shuffle: bool | int = True,
    seed: int | None = None,
    buckets: int = 8,
    batch_tokens: int | None = None,
) -> Pairs:
    """Turns pairs of lines, or of features and lines, into padded batches.

    Rows of similar length share a batch, so batches have little padding. The
    last batches may be smaller. No pair is left out. Lines longer than their
    `Text`'s `max_length` are cut to it, and a warning gives the number of
    lines cut. For a stream it gives the number among the first 10,000 lines;
    if none of these is cut, it appears when the first later line is cut.

    Lists are turned into ids once and kept in memory. Data that does not fit
    in memory is passed as streams, a `tf.data.Dataset` of strings for each
    side, such as `tf.data.TextLineDataset("train.en")`, which are read and
    split anew in each epoch. The buckets of a stream are chosen by its first
    10,000 pairs. Its number of batches is unknown.

    Sources may be features, such as pictures or frames of sound. Arrays whose
    first axes differ in length, such as `(time, features)`, are padded with 0
    at the end of this axis, and the model has to mask the padding.

    Args:
        sources: Source lines, a list or a `tf.data.Dataset`; or features, an
            array or a list of arrays, one for each pair. For a model with
            several sources a dictionary of these, in the order of the model's
            inputs.
        targets: Target lines, one for each source: a list, or a
            `tf.data.Dataset` if the sources are one.
        source_text: `Text` of the sources, `None` for features, or a
            dictionary of these with the same names.
        target_text: `Text` of the targets.
        batch_size: Number of rows per batch.
        shuffle: Whether to shuffle the pairs anew in every epoch. A stream is
            shuffled within a window of 100,000 pairs; an integer sets another
            window.
        seed: Integer that makes the shuffles reproducible, or `None`. The
            order of an epoch depends on this and on the number of the epoch.
        buckets: Number of groups of similar length. 1 mixes all lengths.
            With `batch_tokens` there may be more.
        batch_tokens: If given, the maximum number of ids, padding included,
            of the sources and of the targets of a batch, instead of
            `batch_size`. Batches of short pairs then have many rows. A pair
            that is longer by itself makes a batch of one. Frames count as
            ids.

    Returns:
        `Pairs`, a `tf.data.Dataset` of `((source, target_in), target_out)`,
        int32 ids of shape `(batch, length)`, padded with the `special.pad` of
        their `Text`, by default 0. Several sources take the place of `source`.
        Sources end with the end token. `target_in` begins with the start
        token, and `target_out` ends with the end token. Features keep their
        dtype, but float64 becomes float32.

    Raises:
        ValueError: If an argument is invalid, or if the numbers of sources and
            targets differ or are 0. If long streams differ in length, an
            `InvalidArgumentError` of TensorFlow is raised at their end.

    Example:
        >>> lines = ["ab", "b"]
        >>> text = keras_attn.Text.from_lines(lines, split="characters")
        >>> data = keras_attn.pairs(
        ...     lines, lines, text, text, shuffle=False, buckets=1)
        >>> (source, target_in), target_out = next(iter(data))
        >>> target_in.numpy().tolist(), target_out.numpy().tolist()
        ([[1, 5, 4], [1, 4, 0]], [[5, 4, 2], [4, 2, 0]])
        >>> round(data.padding_share(), 2)  # 3 of 18 ids
        0.17
    """
    alone = sources.values() if isinstance(sources, Mapping) else (sources,)
    if any(isinstance(x, str) for x in (*alone, targets)):
        raise ValueError(
            "`sources` and `targets` must be lists of lines. Received: a "
            "single string. Pass a list of one line."
        )
    given, texts = _by_name(sources, source_text)
    for name, text in (*texts.items(), ("target_text", target_text)):
        is_source = name != "target_text"
        if not isinstance(text, Text) and not (is_source and text is None):
            or_none = ", or `None` for features" if is_source else ""
            raise ValueError(
                f"`{name}` must be a `Text`{or_none}. Received: "
                f"{name}={text!r:.80}. "
                "Make one by `Text.from_lines(lines, split=...)`, and call "
                "`pairs(sources, targets, source_text, target_text)`, in this "
                "order."
            )
    _check_sizes(
        batch_size=batch_size, buckets=buckets, batch_tokens=batch_tokens
    )
    window = _window(shuffle)
    streams = [*given.values(), targets]
    if any(isinstance(x, tf.data.Dataset) for x in streams):
        for name, x in zip([*given, "targets"], streams, strict=True):
            _check_stream(x, name)
        if None in texts.values():
            raise ValueError(
                "Features can't be paired with a `tf.data.Dataset`. Received: "
                f"{[name for name, x in texts.items() if x is None]} is None. "
                "Pass arrays and a list of targets; or make the batches of "
                "`((features, target_in), target_out)` yourself, with ids from "
                "`target_text.ids(lines, start=True)`."
            )
        sides = [
            Side(text, name)
            for name, text in zip(given, texts.values(), strict=True)
        ]
        sides.append(Side(target_text, "targets", is_target=True))
        rows: InMemory | Streamed = Streamed(sides, streams, window)
    else:
        rows = _in_memory(given, targets, texts, target_text)
    # From the generator that `keras.utils.set_random_seed` seeds.
    seed = random.randrange(2**31) if seed is None else seed
    order = RowOrder(seed) if window else None
    epochs = Epochs()
    data = epochs.numbers().flat_map(lambda number: rows.epoch(number, order))
    found = Buckets(rows, buckets, batch_size, batch_tokens)
    data = data.bucket_by_sequence_length(
        lambda length, *_: length,
        bucket_boundaries=found.boundaries,
        bucket_batch_sizes=found.batch_sizes,
        padded_shapes=([], *(x.padded for x in rows.sides)),
        padding_values=(0, *(x.padding for x in rows.sides)),
    )
    data = data.map(
        lambda _, *columns: tuple(
            side.ids(x) for side, x in zip(rows.sides, columns, strict=True)
        )
    )
    if rows.counted:
        # With a known size Keras shows progress, and does not warn at the end
        # of an epoch.
        size = tf.data.experimental.assert_cardinality
        data = data.apply(size(found.count(rows.lengths)))
    pads = [x.pad for x in rows.sides]
    data = data.map(functools.partial(_shift, pad=pads[-1]))
    return Pairs(data.prefetch(tf.data.AUTOTUNE), epochs, [*pads, pads[-1]])


def _in_memory(given, targets, texts, target_text):
    """Returns the rows of lists of lines and of features."""
    targets = lines_of(targets, "targets")
    found = {
        name: rows_of(x, name) if text is None else lines_of(x, name)
        for (name, x), text in zip(given.items(), texts.values(), strict=True)
    }
    counts = {len(targets), *map(len, found.values())}
    if len(counts) > 1 or not len(targets):
        received = ", ".join(f"{len(x)} {n}" for n, x in found.items())
        raise ValueError(
            "There must be as many `targets` as `sources`, and at least one "
            f"of both. Received: {received}, {len(targets)} targets. Pass a "
            "target for each source."
        )
    sides: list[LineSide | ArraySide] = [
        ArraySide(x) if text is None else LineSide(x, text, name)
        for (name, x), text in zip(found.items(), texts.values(), strict=True)
    ]
    sides.append(LineSide(targets, target_text, "targets", is_target=True))
    return InMemory(sides)


def _check_sizes(**sizes):
    for name, x in sizes.items():
        if name == "batch_tokens" and x is None:
            continue
        if not isinstance(x, int) or isinstance(x, bool) or x < 1:
            raise ValueError(
                "`batch_size`, `buckets` and `batch_tokens` must be integers, "
                f"at least 1. Received: {name}={x!r}. Leave it out for the "
                "default."
            )


def _window(shuffle):
    """Returns the window for shuffling streams, 0 for no shuffling."""
    if isinstance(shuffle, bool):
        return WINDOW if shuffle else 0
    if not isinstance(shuffle, int) or shuffle < 1:
        raise ValueError(
            "`shuffle` must be a bool, or the number of pairs of a stream to "
            f"shuffle among. Received: shuffle={shuffle!r}"
        )
    return shuffle


def _check_stream(stream, name):
    spec = getattr(stream, "element_spec", None)
    if spec != tf.TensorSpec([], tf.string):
        raise ValueError(
            "If sources or targets are a `tf.data.Dataset`, all of them must "
            "be, and each element a line, a scalar string. Received: "
            f"{name}={stream!r:.120}. Make one from a file by "
            "`tf.data.TextLineDataset(path)`, and from a list by "
            "`tf.data.Dataset.from_tensor_slices(lines)`."
        )


def _by_name(sources, source_text):
    """Returns sources and their texts by their names in messages."""
    several = isinstance(sources, Mapping), isinstance(source_text, Mapping)
    if not any(several):
        return {"sources": sources}, {"source_text": source_text}
    if not all(several) or not sources or list(sources) != list(source_text):
        raise ValueError(
            "Several sources must be a dictionary of lines or arrays, and "
            "`source_text` one with the same names, in the order of the model's"
            f" inputs, `None` for arrays. Received: sources={sources!r:.80}, "
            f"source_text={source_text!r:.80}"
        )
    return (
        {f"sources[{name!r}]": x for name, x in sources.items()},
        {f"source_text[{name!r}]": x for name, x in source_text.items()},
    )


def _shift(*sides, pad):
    *sources, target = sides
    # Removes the end token from the inputs, even if padding follows it.
    inputs = target[:, :-1]
    is_last = tf.equal(target[:, 1:], pad) & tf.not_equal(inputs, pad)
    return (*sources, tf.where(is_last, pad, inputs)), target[:, 1:]
