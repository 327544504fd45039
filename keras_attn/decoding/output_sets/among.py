"""`Among`: limits outputs to given texts."""

from collections.abc import Iterable

import keras
import numpy as np
import tensorflow as tf

from keras_attn.decoding.output_sets.automaton import Automaton
from keras_attn.decoding.output_sets.output_set import OutputSet

_AT_ONCE = 10_000  # texts that are split in one call


@keras.saving.register_keras_serializable("keras_attn")
class Among(OutputSet):
    """Limits outputs to given texts, such as names or labels.

    The search follows a trie of the texts' tokens (De Cao et al., 2021, section
    3.2). Each text is split like a training target. If a request's prefix
    begins none of the texts, its hypotheses are cut.

    Args:
        texts: List of texts, as the target text writes them. There may be
            millions.

    References:
        - [De Cao et al., 2021](https://arxiv.org/abs/2010.00904)

    Raises:
        ValueError: If there is no text, or one is not a string. A `Translator`
            refuses texts with unknown tokens, texts with more tokens than the
            search's `max_length`, and texts that it would write differently,
            such as in lower case.

    Example:
        >>> rule = keras_attn.Among(["yes", "no", "I do not know"])
        >>> search = keras_attn.BeamSearch(3, rules=[rule])
    """

    def __init__(self, texts):
        several = isinstance(texts, Iterable) and not isinstance(texts, str)
        given = list(texts) if several else []
        if not given or not all(isinstance(x, str) for x in given):
            raise ValueError(
                "`texts` of `Among` must be a list of strings, one at least. "
                f"Received: texts={texts!r:.200}. Pass for example "
                '`["yes", "no"]`.'
            )
        self.texts = tuple(dict.fromkeys(given))

    def automaton_for(self, text, max_length):
        parts = []
        for i in range(0, len(self.texts), _AT_ONCE):
            some = list(self.texts[i : i + _AT_ONCE])
            parts.append(with_end(text.uncut_ids(some), text))
            self._require_same(some, text, parts[-1])
        ids = np.concatenate([x.flat_values.numpy() for x in parts])
        lengths = np.concatenate([x.row_lengths().numpy() for x in parts])
        self._require_written(text, ids, lengths, max_length)
        return trie(ids, lengths, text.special.end)

    def _require_same(self, texts, text, ids):
        """Refuses texts that the target text would write differently."""
        if (ids.flat_values == text.special.unknown).numpy().any():
            return  # `_require_written` refuses unknown tokens
        written = text.strings(ids.to_tensor(text.special.pad)).numpy()
        for given, found in zip(texts, written, strict=True):
            found = found.decode("utf-8", "replace")
            if given != found:
                raise ValueError(
                    "A text of `Among` must have the form that is "
                    "written. "
                    f"Received: {given!r:.80}, which the target text writes "
                    f"{found!r:.80}. Pass the texts in this form."
                )

    def _require_written(self, text, ids, lengths, max_length):
        special = text.special
        rows = np.repeat(np.arange(len(lengths)), lengths)
        unknown = rows[ids == special.unknown]
        never = rows[np.isin(ids, special.never_written)]
        long = np.flatnonzero(lengths > max_length)
        for found, problem, remedy in (
            (unknown, "has unknown tokens", "Leave it out."),
            (never, "has tokens that no output has", "Leave it out."),
            (
                long,
                f"has more tokens than max_length={max_length}, the end "
                "counted",
                f"Pass a search with max_length={lengths.max()}.",
            ),
        ):
            if len(found):
                count = len(np.unique(found))
                raise ValueError(
                    "A text of `Among` must be one that the search can write. "
                    f"Received: {self.texts[found[0]]!r:.80}, which {problem}"
                    f"{f'; so have {count - 1} others' * (count > 1)}. {remedy}"
                )

    def get_config(self):
        return {"texts": list(self.texts)}

    def __eq__(self, other):
        return type(self) is type(other) and self.texts == other.texts

    __hash__ = OutputSet.__hash__

    def __repr__(self) -> str:
        shown = ", ".join(map(repr, self.texts[:3]))
        more = len(self.texts) - 3
        return f"Among([{shown}{f', ... {more} more' if more > 0 else ''}])"


def with_end(ids, text):
    """Returns ragged ids with the end token of a text after each row."""
    ends = tf.fill([ids.nrows(), 1], text.special.end)
    return tf.concat([ids, tf.cast(ends, ids.dtype)], axis=1)


def trie(ids, lengths, end: int) -> Automaton:
    """Returns the automaton that accepts given sequences of ids.

    Args:
        ids: The concatenated sequences, each with its end token, `(total,)`.
        lengths: Number of ids of each sequence, end token counted.
        end: Id of the end token, which no token follows.
    """
    starts = np.cumsum(lengths) - lengths
    size, states = int(ids.max()) + 1, 1
    rows = np.arange(len(lengths))
    state = np.zeros(len(lengths), "int64")
    found = []
    for time in range(int(lengths.max())):
        rows = rows[lengths[rows] > time]
        key = state[rows] * size + ids[starts[rows] + time]
        keys, number = np.unique(key, return_inverse=True)
        follow = np.where(keys % size == end, -1, 0)
        is_open = follow == 0
        follow[is_open] = states + np.arange(is_open.sum())
        states += int(is_open.sum())
        state[rows] = follow[number]
        found.append((keys // size, keys % size, follow))
    sources, tokens, targets = map(np.concatenate, zip(*found, strict=True))
    targets = np.where(targets < 0, states, targets)
    return Automaton(sources, tokens, targets, states)
