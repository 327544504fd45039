"""Two small texts, their ids and strings as lists, and lines to normalize."""

import unicodedata

import tensorflow as tf

from keras_attn import Text

CHARACTERS = Text("abcé日 ", split="characters")
WORDS = Text(["to", "be", "or", "Été"], split="whitespace")
A, B, C, ACUTE, DAY, SPACE = range(4, 10)


def ids(text, lines, **options):
    return text.ids(tf.constant(lines, tf.string), **options).numpy().tolist()


def strings(text, rows):
    return [x.decode() for x in text.strings(rows).numpy()]


# NFKC changes these texts; NFC only joins letter and accent.
WRITTEN = [
    "k\u02b0 a t\u02b2 x\u00b2",  # aspirated, palatalised, squared
    "\u00bd \ufb01 \u2122",  # a half, the ligature fi, a trade mark
    "e\u0301a\u0323\u0307 n\u0303",  # decomposed accents, one of several
    "\u1112\u1161\u11ab\u1100\u1173\u11af",  # Hangul, by its jamo
    "\uff76\uff9e\uff86",  # half-width kana
    "\uff41\u3000\u00a0\u2126\u212b",  # full width, spaces, singletons
]
NORMALIZATIONS = ["NFC", "NFKC", None]


def by_python(normalization, line):
    """Normalizes by Python's implementation of Unicode's algorithm."""
    if normalization is None:
        return line
    return unicodedata.normalize(normalization, line)
