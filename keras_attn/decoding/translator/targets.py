"""The targets of `Translator.score`: lines, or hypotheses of a search."""

import numpy as np
import tensorflow as tf

from keras_attn.decoding.translator.results import Report
from keras_attn.decoding.translator.results import Translation
from keras_attn.decoding.translator.sources import encode
from keras_attn.text.text import Text


class TargetLines:
    """Targets as strings, which the target text splits and ends."""

    name = "score"  # the function of `Pipeline` that takes them
    specs = tf.TensorSpec([None], tf.string)

    def __init__(self, lines, text: Text):
        self._lines = [encode(x) for x in lines]
        text.require_short(tf.constant(self._lines, tf.string))

    def take(self, rows) -> tf.Tensor:
        return tf.constant([self._lines[i] for i in rows], tf.string)


class TargetHypotheses:
    """Targets as the tokens that a search wrote.

    They are not split or cut, and no end token is added. A source token that
    replaced an `<unk>` is read as `<unk>` again. Tokens of another translator
    that the target text does not have are unknown.
    """

    name = "score_ids"
    specs = (
        tf.TensorSpec([None, None], tf.int32),
        Report(
            truncated=tf.TensorSpec([None], tf.bool),
            unknown=tf.TensorSpec([None], tf.int32),
            empty=tf.TensorSpec([None], tf.bool),
        ),
    )

    def __init__(self, translations, text: Text):
        special = text.special
        unknown, end = special.unknown, special.end
        unknown_token = text.tokens[unknown] if unknown >= 0 else None
        self._pad = special.pad
        self._rows = [_written(x, unknown_token) for x in translations]
        flat = [token for row in self._rows for token in row]
        ids = np.array(text.token_ids(tf.constant(flat, tf.string)))
        ends = np.cumsum([len(row) for row in self._rows], dtype=int)
        self._ids = np.split(ids, ends[:-1]) if self._rows else []
        self._unknown = []
        for tokens, ids in zip(self._rows, self._ids, strict=True):
            lacking = ids == unknown
            lacking &= np.array(tokens, object) != unknown_token
            if tokens and tokens[-1] == text.tokens[end]:
                ids[-1], lacking[-1] = end, False
            _require_known(tokens, ids)
            self._unknown.append(int(lacking.sum()))

    def take(self, rows) -> tuple:
        width = max((len(self._ids[i]) for i in rows), default=0)
        # RNNs refuse a length of zero.
        ids = np.full([len(rows), max(width, 1)], self._pad, "int32")
        for n, i in enumerate(rows):
            ids[n, : len(self._ids[i])] = self._ids[i]
        unknown = [self._unknown[i] for i in rows]
        return tf.constant(ids), Report(
            truncated=tf.zeros([len(rows)], tf.bool),
            unknown=tf.constant(unknown, tf.int32),
            empty=tf.zeros([len(rows)], tf.bool),  # only reported for sources
        )


def read(targets, count: int, text: Text) -> TargetLines | TargetHypotheses:
    """Checks a caller's targets for `count` sources and converts them."""
    if isinstance(targets, (str, bytes, Translation)) or not hasattr(
        targets, "__len__"
    ):
        raise ValueError(
            "`targets` must be a list with a string, or a `Translation`, for "
            f"each source. Received: targets={targets!r:.200} for {count} "
            "source(s). For one source pass a list of one."
        )
    if len(targets) != count:
        raise ValueError(
            "`targets` must have a string, or a `Translation`, for each "
            f"source. Received: {len(targets)} target(s), "
            f"targets={targets!r:.200}, for {count} source(s)."
        )
    targets = [x.numpy() if tf.is_tensor(x) else x for x in targets]
    first = None
    for i, target in enumerate(targets):
        kind = _kind(i, target)
        first = first or kind
        if kind is not first:
            raise ValueError(
                "`targets` must be all strings or all `Translation`s of a "
                f"search. Received: targets[{i}] of type "
                f"{type(target).__name__} beside targets[0] of type "
                f"{type(targets[0]).__name__}. Score them in two calls, or "
                "pass the texts of the translations, `result.text`."
            )
    if first is Translation:
        return TargetHypotheses(targets, text)
    return TargetLines(targets, text)


def _kind(i, target):
    if isinstance(target, (str, bytes)):
        return str
    if isinstance(target, Translation):
        return Translation
    advice = "Pass strings, or results of the translator."
    if hasattr(target, "__len__"):
        advice = (
            "To score the alternatives of several sources, pass them all in "
            "one flat list, and repeat each source for its alternatives."
        )
    raise ValueError(
        "`targets` must be strings, or `Translation`s of a translator. "
        f"Received: targets[{i}]={target!r:.200} (of type "
        f"{type(target).__name__}). {advice}"
    )


def _written(translation, unknown):
    """Returns the tokens as the model wrote them, `<unk>` included."""
    tokens = list(translation.tokens)
    for i in translation.replaced:
        tokens[i] = unknown
    return tokens


def _require_known(tokens, ids):
    """Raises for tokens without an id, in a text without an unknown token."""
    lacking = [x for x, i in zip(tokens, ids, strict=True) if i < 0]
    if lacking:
        raise ValueError(
            "The target text knows no unknown token, so it must know all "
            f"tokens of `targets`. Received: {lacking[:5]}, which it does not "
            "know. Pass strings, `result.text`, which the target text splits."
        )
