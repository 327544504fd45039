"""Turns strings into ids and back, inside the graph.

Every operation is TensorFlow's or tensorflow-text's, so that a SavedModel can
take and return strings. Any bytes give a defined result for their row and
leave the other rows alone:

1. Invalid UTF-8 and NUL become U+FFFD; line breaks and tabs become spaces.
2. Unicode normalization, NFC by default; then lower case, if configured.
3. A `Splitter` splits the text: into characters, into words at Unicode white
   space, into subwords or bytes, or in a way of your own.
4. The vocabulary maps tokens to ids. A token that it lacks, or that is
   spelled like a special token, is unknown. A `Splitter` with its own ids
   does this step itself.
5. Rows longer than `max_length` tokens are cut, which is reported, or
   refused, as configured. Then the end token is added, so that even an empty
   string has one token.
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
