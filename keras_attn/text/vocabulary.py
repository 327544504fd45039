"""Tokens and their ids."""

import collections
from collections.abc import Sequence

import tensorflow as tf

from keras_attn.text.coding import is_one_of
from keras_attn.text.special_tokens import SPECIAL_TOKENS
from keras_attn.text.special_tokens import SpecialTokens
from keras_attn.text.splitter import Splitter

# A vocabulary file has a line for each token, and a tab before the count.
_NOT_IN_A_LINE = "\0\t\n\v\f\r"


class Vocabulary:
    """Maps the tokens of a text to ids and back.

    Args:
        tokens: All tokens in the order of their ids, including special ones.
        special: `SpecialTokens`.
        path: File with a line for each id, `token<TAB>count`. The lookup
            tables read it, and an export copies it as an asset. If None, the
            tables hold the tokens themselves.
    """

    def __init__(
        self, tokens: Sequence[str], special: SpecialTokens, path=None
    ):
        self.tokens = list(tokens)
        self.special = special
        self._unknown = special.unknown
        self._unknown_token = (
            "" if special.unknown < 0 else self.tokens[special.unknown]
        )
        self._tables = None
        if path is not None and fits_lines(self.tokens):
            self._tables = self._tables_from_file(path)

    def ids(self, tokens) -> tf.Tensor:
        """Looks up tokens of any shape; returns int32 ids of that shape.

        A token that is not in the vocabulary, or that no text is split into,
        such as padding, is unknown. If there is no unknown token, its id is
        -1.
        """
        to_id, _ = self.tables()
        found = tf.cast(to_id.lookup(tf.convert_to_tensor(tokens)), tf.int32)
        silent = is_one_of(found, self.special.non_text_ids)
        return tf.where(silent, self._unknown, found)

    def lookup(self, ids) -> tf.Tensor:
        """Looks up ids of any shape; returns tokens of that shape."""
        _, to_token = self.tables()
        return to_token.lookup(tf.cast(ids, tf.int64))

    def tables(self):
        """Returns the tables `(to_id, to_token)`, made outside any graph."""
        if self._tables is None:
            with tf.init_scope():
                self._tables = self._tables_in_memory()
        return self._tables

    def _tables_in_memory(self):
        ids = tf.range(len(self.tokens), dtype=tf.int64)
        initializer = tf.lookup.KeyValueTensorInitializer
        return (
            tf.lookup.StaticHashTable(
                initializer(self.tokens, ids), self._unknown
            ),
            tf.lookup.StaticHashTable(
                initializer(ids, self.tokens), self._unknown_token
            ),
        )

    def _tables_from_file(self, path):
        """Returns tables that read a vocabulary file, an asset of exports."""

        def table(key_dtype, key_index, value_dtype, value_index, default):
            initializer = tf.lookup.TextFileInitializer(
                str(path), key_dtype, key_index, value_dtype, value_index
            )
            return tf.lookup.StaticHashTable(initializer, default)

        token, line = 0, tf.lookup.TextFileIndex.LINE_NUMBER
        return (
            table(tf.string, token, tf.int64, line, self._unknown),
            table(tf.int64, line, tf.string, token, self._unknown_token),
        )


def fits_lines(tokens) -> bool:
    """Returns whether a vocabulary file can hold the tokens."""
    return not any(c in token for token in tokens for c in _NOT_IN_A_LINE)


def require_tokens(tokens, splitter: Splitter) -> None:
    """Raises `ValueError` for tokens that no vocabulary may have.

    Args:
        tokens: The tokens, without the four special ones unless the splitter
            sets `special`.
        splitter: `Splitter`. If it has its own tokens, these may contain line
            breaks.
    """
    own = splitter.tokens is not None
    for token in tokens:
        if not isinstance(token, str) or not token:
            reason = "is an empty string or none"
        elif token in SPECIAL_TOKENS and splitter.special is None:
            reason = "is the name of a special token"
        elif not own and any(c in _NOT_IN_A_LINE for c in token):
            reason = "has a NUL, tab or line break, which a `Text` replaces"
        elif any("\ud800" <= c <= "\udfff" for c in token):
            reason = "has a lone surrogate, which is no text"
        else:
            continue
        raise ValueError(
            "The tokens of a vocabulary must be strings that can occur in "
            "text. "
            f"Received: {token!r}, which {reason}. Leave it out."
        )
    if len(set(tokens)) < len(tokens):
        twice = [t for t, n in collections.Counter(tokens).items() if n > 1]
        raise ValueError(
            "The tokens of a vocabulary must be distinct. Received more than "
            f"once: {twice[:5]}. Keep one of each."
        )
