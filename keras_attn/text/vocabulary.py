"""Tokens and their ids."""

import collections
from collections.abc import Sequence

import tensorflow as tf

from keras_attn.special_tokens import SPECIAL_TOKENS
from keras_attn.special_tokens import UNKNOWN


class Vocabulary:
    """The special tokens and a text's own tokens, in the order of their ids.

    Args:
        tokens: Tokens without the special ones.
        path: File with a line for each id, `token<TAB>count`. The lookup
            tables read it, and an export copies it as an asset. If None, the
            tables hold the tokens themselves.
    """

    def __init__(self, tokens: Sequence[str], path=None):
        self.tokens = [*SPECIAL_TOKENS, *tokens]
        self._tables = None if path is None else _tables_from_file(path)

    def ids(self, tokens) -> tf.Tensor:
        """Looks up tokens of any shape; a special one is unknown."""
        to_id, _ = self.tables()
        found = tf.cast(to_id.lookup(tf.convert_to_tensor(tokens)), tf.int32)
        return tf.where(found < len(SPECIAL_TOKENS), UNKNOWN, found)

    def lookup(self, ids) -> tf.Tensor:
        """Looks up ids of any shape."""
        _, to_token = self.tables()
        return to_token.lookup(tf.cast(ids, tf.int64))

    def tables(self):
        """Returns the two lookup tables, made once, outside any graph."""
        if self._tables is None:
            with tf.init_scope():
                self._tables = _tables_in_memory(self.tokens)
        return self._tables


def require_tokens(tokens) -> None:
    """Raises `ValueError` for tokens that a vocabulary file cannot hold."""
    for token in tokens:
        if not isinstance(token, str) or not token:
            reason = "is an empty string or none"
        elif token in SPECIAL_TOKENS:
            reason = "is the name of a special token"
        elif any(c in "\0\t\n\v\f\r" for c in token):
            reason = "has a NUL, tab or line break, which text never keeps"
        elif any("\ud800" <= c <= "\udfff" for c in token):
            reason = "has a lone surrogate, which is no text"
        else:
            continue
        raise ValueError(
            "The tokens of a vocabulary must be strings that text can hold. "
            f"Received: {token!r}, which {reason}. Leave it out."
        )
    if len(set(tokens)) < len(tokens):
        twice = [t for t, n in collections.Counter(tokens).items() if n > 1]
        raise ValueError(
            "The tokens of a vocabulary must be distinct. Received more than "
            f"once: {twice[:5]}. Keep one of each."
        )


def _tables_in_memory(tokens):
    ids = tf.range(len(tokens), dtype=tf.int64)
    initializer = tf.lookup.KeyValueTensorInitializer
    return (
        tf.lookup.StaticHashTable(initializer(tokens, ids), UNKNOWN),
        tf.lookup.StaticHashTable(
            initializer(ids, tokens), SPECIAL_TOKENS[UNKNOWN]
        ),
    )


def _tables_from_file(path):
    """Returns tables that read a vocabulary file, an asset of exports."""

    def table(key_dtype, key_index, value_dtype, value_index, default):
        initializer = tf.lookup.TextFileInitializer(
            str(path), key_dtype, key_index, value_dtype, value_index
        )
        return tf.lookup.StaticHashTable(initializer, default)

    token, line = 0, tf.lookup.TextFileIndex.LINE_NUMBER
    return (
        table(tf.string, token, tf.int64, line, UNKNOWN),
        table(tf.int64, line, tf.string, token, SPECIAL_TOKENS[UNKNOWN]),
    )
