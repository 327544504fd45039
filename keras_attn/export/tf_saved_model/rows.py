"""Finds the errors of rows, and replaces bad rows by harmless ones.

A server decodes the rows of several clients together, so a bad row must not
make the others fail. A row that cannot be decoded is replaced by a harmless
one, such as an empty text. Its answer is an empty text, a score of minus
infinity and an error that gives the reason. Errors are strings `(batch,)`, ""
for good rows.
"""

import re

import tensorflow as tf

from keras_attn.decoding.phrases.spellings import phrases_in
from keras_attn.decoding.translator.asked_phrases import MOST_PHRASES
from keras_attn.text.text import MARK

# The most rows of a request. It is also the most that the development server
# joins, and TensorFlow Serving with the batching of `serving/deploy`.
MAX_ROWS = 128
NOTHING_FOUND = (
    "A search needs finite logits from the model. Received: a source for "
    "which it found no hypothesis. Inputs or weights that are not finite "
    "cause this, or a shortlist with too few tokens for the search."
)


def wrong(bad, *parts) -> tf.Tensor:
    """Returns errors `(batch,)`, "" for rows that are not bad.

    Args:
        bad: Booleans `(batch,)`.
        *parts: Strings, and tensors of strings or numbers, which are joined.
    """
    strings = [
        x if isinstance(x, str) or x.dtype == tf.string else tf.as_string(x)
        for x in parts
    ]
    return tf.where(bad, tf.strings.join(strings), "")


def first(*errors) -> tf.Tensor:
    """Returns, for each row, the first error that is not empty."""
    found, *others = errors
    for error in others:
        found = tf.where(found == "", error, found)
    return found


def is_bad(error) -> tf.Tensor:
    """Returns booleans `(batch,)`: whether each row has an error."""
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


def too_long(lengths, most, name) -> tf.Tensor:
    """Returns errors of lengths `(batch,)` that are larger than `most`."""
    return wrong(
        lengths > most,
        f"A row of `{name}` may have a length of at most {most} in this "
        "export. Received: one of ",
        lengths,
        ". Split it.",
    )


def of_ids(ids, real, text, name) -> tf.Tensor:
    """Returns errors of ids `(batch, length)` outside a text's vocabulary.

    Only ids where `real`, of the same shape, is true are checked. There must
    be at least one column.
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


def are_empty(ids, special) -> tf.Tensor:
    """Returns which rows of source ids `(batch, length)` have no token."""
    says_nothing = ids == special.pad
    for token in (*special.source_start, *special.ends_source):
        says_nothing |= ids == token
    return tf.reduce_all(says_nothing, axis=1)


def of_text(text, strings, name) -> tf.Tensor | None:
    """Returns errors of strings `(batch,)` that are too long for a `Text`.

    Returns `None` if the `Text` cuts long strings instead of refusing them.
    """
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


def of_prefix(ids, strings, max_length, pipeline) -> tf.Tensor:
    """Returns errors of prefixes.

    Args:
        ids: The prefixes' ids `(batch, length)`, padded, with unknown ones.
        strings: The prefixes `(batch,)`.
        max_length: The `max_length` of the search.
        pipeline: The `Pipeline` that reads them.
    """
    text = pipeline.target_text
    special = text.special
    count = tf.reduce_sum(tf.cast(ids != special.pad, tf.int32), axis=1)
    count -= pipeline.prompts.lengths_in(ids)
    return first(
        wrong(
            tf.reduce_any(ids == special.unknown, axis=1),
            "A prefix must be made of tokens that the target text knows. "
            "Received: ",
            strings,
        ),
        wrong(
            _names_unknown(strings, text.prompt_marks),
            "A prefix may name no tokens but the prompt tokens and spelled "
            "tokens of the target text. Received: ",
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


def of_phrases(name, lines, pipeline, longest=None) -> tf.Tensor:
    """Returns errors of phrases.

    Args:
        name: Name of the input.
        lines: Strings `(batch,)`, the phrases of a row joined by line feeds.
        pipeline: The `Pipeline` that reads them.
        longest: Most tokens of each row's output, `(batch,)`, for phrases that
            it must contain; `None` for phrases that it must not contain.
    """
    phrases, spellings = phrases_in(lines), pipeline.phrases.spellings
    ids = spellings(phrases.flat_values)
    known = phrases.with_flat_values(spellings.are_known(ids))
    errors = [
        wrong(
            ~tf.reduce_all(known, axis=1),
            f"`{name}` must be made of tokens that the target text knows. "
            "Received: ",
            tf.strings.substr(lines, 0, 80, unit="UTF8_CHAR"),
        )
    ]
    if longest is None:
        count = tf.cast(phrases.row_lengths(), tf.int32)
        errors.append(
            wrong(
                count > MOST_PHRASES,
                f"`{name}` may have at most {MOST_PHRASES} phrases for a "
                "source. Received: ",
                count,
            )
        )
    else:
        lengths = spellings.lengths(phrases)
        lengths = lengths.to_tensor(0)
        most = tf.reduce_max(tf.pad(lengths, [[0, 0], [0, 1]]), axis=1)
        errors.append(
            wrong(
                most >= longest,
                f"A phrase of `{name}` must fit into the output, with the end "
                "token. Received: one of ",
                most,
                " tokens, with max_length=",
                longest,
                ". Shorten it.",
            )
        )
    return first(*errors)


def _names_unknown(strings, known):
    """Returns which prefixes contain `<|...|>` that is not in `known`."""
    if not known:
        return tf.zeros_like(strings, tf.bool)
    pattern = "|".join(map(re.escape, known))
    left = tf.strings.regex_replace(strings, pattern, "")
    return tf.strings.regex_full_match(left, f"(?s).*{MARK.pattern}.*")


def of_found(hypotheses) -> tf.Tensor:
    """Returns errors of rows for which a search found no hypothesis."""
    return wrong(hypotheses.lengths[:, 0] == 0, NOTHING_FOUND)


def harmless_ids(bad, ids, special) -> tf.Tensor:
    """Returns source ids `(batch, length)`; bad rows become an empty text."""
    empty = tf.fill(tf.shape(ids)[1:], special.pad)
    at = tf.range(tf.shape(ids)[1])
    for i, token in enumerate([*special.source_start, *special.ends_source]):
        empty = tf.where(at == i, token, empty)
    return tf.where(bad[:, None], empty, ids)


def emptied(hypotheses, bad):
    """Returns `Hypotheses` in which bad rows have none.

    Their scores are minus infinity, their ids, lengths and alignments zero.
    """

    def keep(x, instead):
        shape = [-1] + [1] * (len(x.shape) - 1)
        return tf.where(tf.reshape(bad, shape), instead, x)

    return hypotheses._replace(
        tokens=keep(hypotheses.tokens, 0),
        lengths=keep(hypotheses.lengths, 0),
        scores=keep(hypotheses.scores, float("-inf")),
        finished=keep(hypotheses.finished, False),
        alignments=keep(hypotheses.alignments, 0.0),
    )


def required(signature, specs, given, most) -> list:
    """Checks the shapes of a signature's inputs before anything is computed.

    If inputs differ in their number of rows, it is unknown which values belong
    together. Too many rows would take too much memory. In both cases the whole
    request fails.

    Args:
        signature: Its name.
        specs: A `tf.TensorSpec` for each input.
        given: The inputs.
        most: Most rows of a request, or `None` for any number.

    Returns:
        The inputs, which are computed only after these checks.
    """
    given = [
        tf.ensure_shape(x, spec.shape)
        for x, spec in zip(given, specs, strict=True)
    ]
    rows, *others = (tf.shape(x)[0] for x in given)
    names = [spec.name for spec in specs[1:]]
    checks = [
        tf.debugging.Assert(
            rows == count,
            [
                f"{signature} needs one of {name} for each row. Received "
                f"these numbers of rows and of {name}:",
                rows,
                count,
            ],
        )
        for name, count in zip(names, others, strict=True)
    ]
    if most is not None:
        checks.append(at_most(rows, most, "rows"))
    with tf.control_dependencies(checks):
        return [tf.identity(x) for x in given]


def at_most(count, most, what) -> tf.Operation:
    """Returns an operation that fails the request if `count` is above `most`.

    Args:
        count: A scalar tensor.
        most: An integer.
        what: What is counted, in the plural.
    """
    return tf.debugging.Assert(
        count <= most,
        [
            f"A request to this export may have at most {most} {what}. "
            "Received:",
            count,
            "Send them in several requests, or export with a larger "
            "`max_rows`.",
        ],
    )
