"""`pairs()`: turns two lists of lines into batches for `model.fit`."""

import functools
import warnings
from collections.abc import Mapping
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from keras_attn.text import Text
from keras_attn.text import encode_lines

_CHUNK = 10_000  # number of lines that are turned into ids at a time


def pairs(
    sources: Sequence[str] | Mapping[str, Sequence[str]],
    targets: Sequence[str],
    source_text: Text | Mapping[str, Text],
    target_text: Text,
    batch_size: int = 64,
    shuffle: bool = True,
    seed: int | None = None,
    buckets: int = 8,
) -> tf.data.Dataset:
    """Turns pairs of lines into padded batches for `model.fit`.

    Rows of similar length share a batch, so that batches have little padding.
    The last batches may be smaller. No pair is left out. Lines longer than
    their `Text`'s `max_length` are cut to it, and a warning says how many
    were cut.

    Args:
        sources: Source lines. For a model with several text sources a
            dictionary of lines, in the order of the model's inputs.
        targets: Target lines, one for each source.
        source_text: `Text` of the sources, or a dictionary of `Text`s with
            the same names.
        target_text: `Text` of the targets.
        batch_size: Number of rows per batch.
        shuffle: Whether to shuffle the pairs anew in every epoch.
        seed: Integer that makes the shuffles reproducible, or `None`.
        buckets: Number of groups of similar length. 1 mixes all lengths.

    Returns:
        A `tf.data.Dataset` of `((source, target_in), target_out)`, int32 ids
        of shape `(batch, length)`, padded with 0 or what their `Text` says.
        Sources end with the end token. `target_in` begins with the start
        token, and `target_out` ends with the end token.

    Raises:
        ValueError: If the numbers of sources and targets differ or are zero.

    Example:
        >>> lines = ["ab", "b"]
        >>> text = keras_attn.Text.from_lines(lines, split="characters")
        >>> data = keras_attn.pairs(
        ...     lines, lines, text, text, shuffle=False, buckets=1)
        >>> (source, target_in), target_out = next(iter(data))
        >>> target_in.numpy().tolist(), target_out.numpy().tolist()
        ([[1, 5, 4], [1, 4, 0]], [[5, 4, 2], [4, 2, 0]])
    """
    alone = sources.values() if isinstance(sources, Mapping) else (sources,)
    if any(isinstance(x, str) for x in (*alone, targets)):
        raise ValueError(
            "`sources` and `targets` must be lists of lines. Received: a "
            "single string. Pass a list of one line."
        )
    given, texts = _by_name(sources, source_text)
    for name, text in (*texts.items(), ("target_text", target_text)):
        if not isinstance(text, Text):
            raise ValueError(
                f"`{name}` must be a `Text`. Received: {name}={text!r:.80}. "
                "Make one by `Text.from_lines(lines, split=...)`, and call "
                "`pairs(sources, targets, source_text, target_text)`, in this "
                "order."
            )
    sizes = batch_size, buckets
    if any(not isinstance(x, int) or isinstance(x, bool) for x in sizes) or (
        min(sizes) < 1
    ):
        raise ValueError(
            "`batch_size` and `buckets` must be integers, at least 1. "
            f"Received: batch_size={batch_size!r}, buckets={buckets!r}. Leave "
            "them out for the defaults."
        )
    lines_of = {name: _lines(x, name) for name, x in given.items()}
    targets = _lines(targets, "targets")
    counts = {len(targets), *map(len, lines_of.values())}
    if len(counts) > 1 or not len(targets):
        received = ", ".join(f"{len(x)} {n}" for n, x in lines_of.items())
        raise ValueError(
            "There must be as many `targets` as `sources`, and at least one "
            f"of both. Received: {received}, {len(targets)} targets. Pass a "
            "target for each source."
        )
    sides = [
        _Side(lines, text, name)
        for (name, lines), text in zip(
            lines_of.items(), texts.values(), strict=True
        )
    ]
    sides.append(_Side(targets, target_text, "targets", is_target=True))
    lengths = np.max([x.lengths for x in sides], axis=0).astype("int32")
    data = tf.data.Dataset.from_tensor_slices(
        (lengths, *(x.column for x in sides))
    )
    if shuffle:
        data = data.shuffle(len(targets), seed=seed)
    boundaries = _boundaries(lengths, buckets)
    data = data.map(lambda *row: tuple(map(tf.identity, row)))  # not ragged
    data = data.bucket_by_sequence_length(
        lambda length, *_: length,
        bucket_boundaries=boundaries,
        bucket_batch_sizes=[batch_size] * (len(boundaries) + 1),
        padded_shapes=([], *(x.padded for x in sides)),
        padding_values=(0, *(x.padding for x in sides)),
    )
    data = data.map(
        lambda _, *columns: tuple(
            side.ids(x) for side, x in zip(sides, columns, strict=True)
        )
    )
    # With a known size Keras shows progress, and does not warn at the end of
    # an epoch.
    _, rows = np.unique(np.digitize(lengths, boundaries), return_counts=True)
    batches = int(np.ceil(rows / batch_size).sum())
    data = data.apply(tf.data.experimental.assert_cardinality(batches))
    pad = target_text.special.pad
    shift = functools.partial(_shift, pad=pad)
    return data.map(shift).prefetch(tf.data.AUTOTUNE)


def _by_name(sources, source_text):
    """Returns sources and their texts by what they are called in messages."""
    several = isinstance(sources, Mapping), isinstance(source_text, Mapping)
    if not any(several):
        return {"sources": sources}, {"source_text": source_text}
    if not all(several) or not sources or list(sources) != list(source_text):
        raise ValueError(
            "Several sources are a dictionary of lines, and their texts a "
            "dictionary with the same names in the same order, which is that "
            f"of the model's inputs. Received: sources={sources!r:.80}, "
            f"source_text={source_text!r:.80}"
        )
    return (
        {f"sources[{name!r}]": x for name, x in sources.items()},
        {f"source_text[{name!r}]": x for name, x in source_text.items()},
    )


def _lines(lines, name):
    """Returns the lines as a list of bytes."""
    if isinstance(lines, Text) or not hasattr(lines, "__iter__"):
        raise ValueError(
            f"`{name}` must be a list of lines. Received: {lines!r:.80}. Call "
            "`pairs(sources, targets, source_text, target_text)`, in this "
            "order."
        )
    return encode_lines(lines, name)


def _ids(lines, text, name, is_target):
    """Returns the ids of all lines, ragged; warns of lines that were cut."""
    chunks, cut = [], 0
    special = text.special
    first = special.start if is_target else special.source_start
    for i in range(0, len(lines), _CHUNK):
        chunk = tf.constant(lines[i : i + _CHUNK])
        if is_target:
            ids = text.ragged_ids(chunk, start=True)
        else:
            ids = text.ragged_source_ids(chunk)
        chunks.append(ids)
        # Only rows of full length can have been cut, so only these are checked.
        full = ids.row_lengths() == len(first) + text.max_length + 1
        full = tf.boolean_mask(chunk, full)
        cut += int(np.sum(text.is_truncated(full)))
    if cut:
        warnings.warn(
            f"{cut} of {len(lines)} {name} have more tokens than their Text's "
            f"max_length of {text.max_length} and were cut to it.",
            stacklevel=3,
        )
    return tf.concat(chunks, axis=0)


class _Side:
    """The sources or the targets of all pairs.

    Args:
        lines: List of bytes.
        text: Their `Text`. If it draws, a batch's lines are split anew each
            time it is made; else all lines are split once.
        name: What the lines are, for messages.
        is_target: Whether these are targets, which begin with a start token.

    Attributes:
        column: The lines' ids, ragged; or the lines, if the text draws.
        lengths: Number of ids of each line, of the likeliest ones if the
            text draws.
        padded: Shape to which a batch of the column's items is padded.
        padding: Value with which they are padded.
    """

    def __init__(self, lines, text, name, is_target=False):
        self._text, self._is_target = text, is_target
        self._draws = text.splitter.draws
        ids = _ids(lines, text.likeliest, name, is_target)
        self.lengths = ids.row_lengths().numpy()
        self.column = tf.constant(lines) if self._draws else ids
        self.padded: list = [] if self._draws else [None]
        self.padding = "" if self._draws else text.special.pad

    def ids(self, batch):
        """Returns the padded ids of a batch of the column's items."""
        if not self._draws:
            return batch
        if self._is_target:
            return self._text.ids(batch, start=True)
        return self._text.source_ids(batch)


def _boundaries(lengths, buckets):
    """Returns lengths that divide the pairs into buckets of similar size."""
    parts = np.quantile(lengths, np.linspace(0, 1, buckets + 1)[1:-1])
    return sorted({int(part) + 1 for part in parts})


def _shift(*sides, pad):
    *sources, target = sides
    # Removes the end token from the inputs, also if padding follows it.
    inputs = target[:, :-1]
    is_last = tf.equal(target[:, 1:], pad) & tf.not_equal(inputs, pad)
    return (*sources, tf.where(is_last, pad, inputs)), target[:, 1:]
