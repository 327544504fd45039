"""Finds the errors of rows, and replaces bad rows by harmless ones.

A server decodes the rows of several clients together, so a bad row must not
make the others fail. A row that cannot be decoded is replaced by a harmless
one, such as an empty text. Its answer is an empty text, a score of minus
infinity and an error that says why. Errors are strings, one for each row, ""
for a good row.
"""

import tensorflow as tf

NOTHING_FOUND = (
    "A search needs finite logits from the model. Received: a source for "
    "which it found no hypothesis. Inputs or weights that are not finite "
    "cause this, or a shortlist with too few tokens for the search."
)


def wrong(bad, *parts) -> tf.Tensor:
    """Returns errors for the bad rows, joined from strings and numbers."""
    strings = [
        x if isinstance(x, str) or x.dtype == tf.string else tf.as_string(x)
        for x in parts
    ]
    return tf.where(bad, tf.strings.join(strings), "")


def first(*errors) -> tf.Tensor:
    """Returns the first error of each row."""
    found, *others = errors
    for error in others:
        found = tf.where(found == "", error, found)
    return found


def is_bad(error) -> tf.Tensor:
    """Returns whether each row has an error."""
    return error != ""


def of_lengths(lengths, columns, name="ids") -> tf.Tensor:
    """Returns errors of lengths `(batch,)` of rows with `columns` columns."""
    return wrong(
        (lengths < 0) | (lengths > columns),
        "`lengths` must be between 0 and ",
        columns,
        f", the columns of `{name}`. Received: lengths=",
        lengths,
        ".",
    )


def of_ids(ids, real, text, name) -> tf.Tensor:
    """Returns errors of ids `(batch, length)` of a text's vocabulary.

    Only real ids are checked. There must be at least one column.
    """
    size, unknown = text.size, text.special.unknown
    outside = real & ((ids < 0) | (ids >= size))
    at = tf.argmax(tf.cast(outside, tf.int32), axis=1, output_type=tf.int32)
    return wrong(
        tf.reduce_any(outside, axis=1),
        f"`{name}` must be ids of the vocabulary, between 0 and {size - 1}. "
        "Received: ",
        tf.gather(ids, at, batch_dims=1),
        f". {unknown} stands for an unknown token." if unknown >= 0 else ".",
    )


def of_text(text, strings, name) -> tf.Tensor | None:
    """Returns errors of strings `(batch,)`, or None if none are refused."""
    if text.too_long != "error":
        return None
    count = tf.cast(text.lengths(strings), tf.int32)
    return wrong(
        count > text.max_length,
        f"A `{name}` may have at most {text.max_length} tokens. Received: "
        "one of ",
        count,
        ". Split it.",
    )


def of_prefix(ids, strings, max_length, special) -> tf.Tensor:
    """Returns errors of prefixes, strings with ids `(batch, length)`."""
    count = tf.reduce_sum(tf.cast(ids != special.pad, tf.int32), axis=1)
    return first(
        wrong(
            tf.reduce_any(ids == special.unknown, axis=1),
            "A prefix must be made of tokens that the target text knows. "
            "Received: ",
            strings,
        ),
        wrong(
            count >= max_length,
            "A prefix must leave room for at least one more token. Received: "
            "one of ",
            count,
            f" tokens with max_length={max_length}. Shorten it.",
        ),
    )


def of_found(hypotheses) -> tf.Tensor:
    """Returns errors of rows for which a search found no hypothesis."""
    return wrong(hypotheses.lengths[:, 0] == 0, NOTHING_FOUND)


def harmless_ids(bad, ids, special) -> tf.Tensor:
    """Returns source ids `(batch, length)`, of an empty text in bad rows."""
    empty = tf.fill(tf.shape(ids)[1:], special.pad)
    at = tf.range(tf.shape(ids)[1])
    for i, token in enumerate([*special.source_start, *special.ends_source]):
        empty = tf.where(at == i, token, empty)
    return tf.where(bad[:, None], empty, ids)


def emptied(hypotheses, bad):
    """Returns `Hypotheses` with none for the bad rows."""

    def keep(x, instead):
        shape = [-1] + [1] * (len(x.shape) - 1)
        return tf.where(tf.reshape(bad, shape), instead, x)

    return type(hypotheses)(
        tokens=keep(hypotheses.tokens, 0),
        lengths=keep(hypotheses.lengths, 0),
        scores=keep(hypotheses.scores, float("-inf")),
        finished=keep(hypotheses.finished, False),
        alignments=keep(hypotheses.alignments, 0.0),
    )


def require_one_each(signature, rows, **others):
    """Checks that each of the `others` has this number of rows.

    Otherwise it is unknown which values belong together, so the whole request
    fails.
    """
    checks = [
        tf.debugging.Assert(
            rows == tf.shape(x)[0],
            [
                f"{signature} needs one of {name} for each row. Received "
                f"these numbers of rows and of {name}:",
                rows,
                tf.shape(x)[0],
            ],
        )
        for name, x in others.items()
    ]
    with tf.control_dependencies([x for x in checks if x is not None]):
        return [tf.identity(x) for x in others.values()]
