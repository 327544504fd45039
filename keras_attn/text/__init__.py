"""Turns strings into ids and back, inside the graph.

Every operation is TensorFlow's or tensorflow-text's, so that a SavedModel can
take and return strings. Any bytes give a defined result for their row and
leave the other rows alone:

1. Invalid UTF-8 and NUL become U+FFFD; line breaks and tabs become spaces.
2. Unicode normalization, NFC by default; then lower case, if configured.
3. A `Splitter` splits the text: into characters, into words at Unicode white
   space, into subwords or bytes, or as your own subclass does it.
4. The vocabulary maps tokens to ids. A token that is not in the vocabulary,
   or that is spelled like a special token, becomes unknown. A `Splitter` with
   its own ids does this step itself.
5. Rows longer than `max_length` tokens are cut or refused, as configured; a
   cut is reported. Then the end token is added, so even an empty string has
   one token.
"""

import importlib

_NEED_TENSORFLOW = {
    "BytePair": "byte_pair",
    "Bytes": "subwords",
    "Characters": "built_in",
    "IntegerIds": "integer_ids",
    "SentencePiece": "subwords",
    "Splitter": "splitter",
    "Text": "text",
    "Whitespace": "built_in",
    "WordPiece": "subwords",
}

__all__ = [*_NEED_TENSORFLOW]


def __getattr__(name):
    if name not in _NEED_TENSORFLOW:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_NEED_TENSORFLOW[name]}")
    return getattr(module, name)
