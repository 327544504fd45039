"""Bad rows: what is wrong with each, and what stands in their place.

A server decodes the rows of several clients together, so none may make the
others fail. A row that cannot be decoded is replaced by a harmless one, an
empty text for example, and answered by an empty text, a score of minus
infinity and an error that says why. An error is a string for each row, ""
where all is well.
"""

import tensorflow as tf

from keras_attn.text import END
from keras_attn.text import PAD
from keras_attn.text import UNKNOWN


def wrong(bad, *parts) -> tf.Tensor:
    """The errors of the rows that are bad, from strings and numbers."""
    strings = [
        x if isinstance(x, str) or x.dtype == tf.string else tf.as_string(x)
        for x in parts
    ]
    return tf.where(bad, tf.strings.join(strings), "")


def first(*errors) -> tf.Tensor:
    """The first error of each row."""
    found, *others = errors
    for error in others:
        found = tf.where(found == "", error, found)
    return found


def is_bad(error) -> tf.Tensor:
    """Which rows have an error."""
    return error != ""


def of_lengths(lengths, columns, name="ids") -> tf.Tensor:
    """Errors of lengths `(batch,)` of rows with so many columns."""
    return wrong(
        (lengths < 0) | (lengths > columns),
        "`lengths` must be between 0 and ",
        columns,
        f", the columns of `{name}`. Received: lengths=",
        lengths,
        ".",
    )


def of_ids(ids, real, size, name) -> tf.Tensor:
    """Errors of ids `(batch, length)` of a vocabulary of this size.

    Only those that are real count. There must be a column.
    """
    outside = real & ((ids < 0) | (ids >= size))
    at = tf.argmax(tf.cast(outside, tf.int32), axis=1, output_type=tf.int32)
    return wrong(
        tf.reduce_any(outside, axis=1),
        f"`{name}` must be ids of the vocabulary, between 0 and {size - 1}. "
        "Received: ",
        tf.gather(ids, at, batch_dims=1),
        f". {UNKNOWN} stands for a token that it lacks.",
    )


def of_text(text, strings, name) -> tf.Tensor | None:
    """Errors of strings `(batch,)`, or None if a `Text` takes all."""
    if text.too_long != "error":
        return None
    count = tf.cast(text.lengths(strings), tf.int32)
    return wrong(
        count > text.max_length,
        f"A `{name}` may have {text.max_length} tokens. Received one of ",
        count,
        ". Split it.",
    )


def of_prefix(ids, strings, max_length) -> tf.Tensor:
    """Errors of prefixes, and their ids `(batch, length)`, in a search."""
    count = tf.reduce_sum(tf.cast(ids != PAD, tf.int32), axis=1)
    return first(
        wrong(
            tf.reduce_any(ids == UNKNOWN, axis=1),
            "A prefix must be made of tokens that the target text knows. "
            "Received: ",
            strings,
        ),
        wrong(
            count >= max_length,
            "A prefix must leave room for a token more. Received one of ",
            count,
            f" tokens with max_length={max_length}.",
        ),
    )


def of_found(hypotheses) -> tf.Tensor:
    """Errors of rows for which a search found nothing."""
    return wrong(
        hypotheses.lengths[:, 0] == 0,
        "The search found no hypothesis. Are the model's logits finite? "
        "Inputs or weights that are not finite do this.",
    )


def harmless_ids(bad, ids) -> tf.Tensor:
    """Ids `(batch, length)`, those of an empty text where rows are bad."""
    empty = tf.where(tf.range(tf.shape(ids)[1]) == 0, END, PAD)
    return tf.where(bad[:, None], empty, ids)


def emptied(hypotheses, bad):
    """`Hypotheses` without any for the rows that are bad."""

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
    """Refuses tensors that have not as many rows as the first.

    Of such a request nobody knows which row is whose: it fails as a whole.
    """
    checks = [
        tf.debugging.Assert(
            rows == tf.shape(x)[0],
            [f"{signature} needs one of {name} for each row. Rows, {name}:"]
            + [rows, tf.shape(x)[0]],
        )
        for name, x in others.items()
    ]
    with tf.control_dependencies([x for x in checks if x is not None]):
        return [tf.identity(x) for x in others.values()]
