"""`WordGroups`: groups tokens into words."""

import re
import unicodedata
from typing import NamedTuple

import tensorflow as tf

from keras_attn.text.text import Text

# Scripts without spaces: Thai, Lao, Tibetan, Burmese, Khmer, kana, Han
WITHOUT_SPACES = (
    (0x0E00, 0x0FFF),
    (0x1000, 0x109F),
    (0x1780, 0x17FF),
    (0x3040, 0x30FF),
    (0x3400, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x3FFFF),
)
# First bytes of characters of the last four ranges, for tokens of single bytes
_FIRST_BYTES = range(0xE3, 0xEA)
_BYTE = re.compile("<0x([0-9A-F]{2})>")


class Words(NamedTuple):
    """The words of a row, tensors of shape `(words,)`."""

    text: tf.Tensor  # strings without surrounding spaces
    first: tf.Tensor  # index of the first token, punctuation not counted
    after: tf.Tensor  # index after the last token, punctuation not counted


class WordGroups:
    """Groups tokens into words.

    A token begins a word if it begins with a space, or with a character of a
    script that is written without spaces. Punctuation such as a comma belongs
    to the text of the word that it follows, but `first` and `after` leave it
    out at the ends of the word.

    Args:
        text: The `Text` of the tokens.
    """

    def __init__(self, text: Text):
        pieces = pieces_of(text)
        self._pieces = pieces
        self._begins = [_begins(x) for x in pieces]
        self._is_mark = [_is_mark(x) for x in pieces]

    def __call__(self, ids) -> Words:
        """Returns the words of ids `(tokens,)` without special tokens."""
        count = tf.size(ids)
        number = tf.range(count)
        begins = tf.gather(tf.constant(self._begins), ids) | (number == 0)
        word = tf.cumsum(tf.cast(begins, tf.int32)) - 1
        words = tf.reduce_max(word, axis=0, keepdims=True) + 1
        words = tf.where(count > 0, words[0], 0)
        solid = ~tf.gather(tf.constant(self._is_mark), ids)
        of_word = tf.math.unsorted_segment_max(
            tf.cast(solid, tf.int32), word, words
        )
        solid |= tf.gather(of_word, word) == 0
        first = tf.math.unsorted_segment_min(
            tf.where(solid, number, count), word, words
        )
        last = tf.math.unsorted_segment_max(
            tf.where(solid, number, -1), word, words
        )
        pieces = tf.gather(tf.constant(self._pieces), ids)
        text = tf.strings.unsorted_segment_join(pieces, word, words)
        text = tf.strings.unicode_transcode(text, "UTF-8", "UTF-8")
        text = tf.strings.strip(text)
        return Words(
            *(tf.boolean_mask(x, text != "") for x in (text, first, last + 1))
        )


def pieces_of(text: Text) -> list[bytes]:
    """Returns the bytes that each token adds after another token.

    Special tokens add nothing. A token may be a part of a character.
    """
    usual = [x for x in text.special.of_text(text.size) if x >= 0]
    known = getattr(text.splitter, "contents", None)
    if known is not None:
        found = list(known)
    else:
        found = _added(text, usual)
    apart = {*range(text.size)} - {*usual}
    return [b"" if i in apart else x for i, x in enumerate(found)]


def _added(text, usual):
    """Returns these bytes by joining each token with a usual one."""
    alone = text.strings([[x] for x in usual]).numpy()
    before = next(
        (i for i, x in zip(usual, alone, strict=True) if x.isalpha()), usual[0]
    )
    (start,) = text.strings([[before]]).numpy()
    pairs = [[before, i] for i in range(text.size)]
    found = []
    for token, whole in zip(
        text.tokens, text.strings(pairs).numpy(), strict=True
    ):
        byte = _BYTE.fullmatch(token)
        if byte:
            found.append(bytes([int(byte[1], 16)]))
        else:
            found.append(whole[len(start) :])
    return found


def _begins(piece):
    if piece[:1].isspace():
        return True
    try:
        return _has_no_spaces(ord(piece.decode("utf-8")[0]))
    except UnicodeDecodeError as error:
        if error.start:
            return _has_no_spaces(ord(piece[: error.start].decode("utf-8")[0]))
        return piece[0] in _FIRST_BYTES
    except IndexError:
        return False


def _has_no_spaces(code):
    return any(first <= code <= last for first, last in WITHOUT_SPACES)


def _is_mark(piece):
    """Returns whether a piece is punctuation or space only."""
    try:
        text = piece.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return not any(unicodedata.category(x)[0] in "LNMS" for x in text)
