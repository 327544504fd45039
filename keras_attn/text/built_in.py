"""The ways of splitting that have a short name."""

import keras
import tensorflow as tf
import tensorflow_text

from keras_attn.text.splitter import Splitter

# Characters of Unicode's property White_Space with more than one byte.
_WIDE_SPACE = (
    r"[\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}"
    r"\x{205F}\x{3000}]"
)


@keras.saving.register_keras_serializable("keras_attn")
class Characters(Splitter):
    """Splits text into its code points."""

    separator = ""

    def split(self, strings):
        return tf.strings.unicode_split(strings, "UTF-8")


@keras.saving.register_keras_serializable("keras_attn")
class Whitespace(Splitter):
    """Splits text into words at Unicode white space."""

    separator = " "

    def split(self, strings):
        # The tokenizer skips one byte per white-space character, so wider
        # characters are replaced first.
        strings = tf.strings.regex_replace(strings, _WIDE_SPACE, " ")
        return tensorflow_text.WhitespaceTokenizer().tokenize(strings)


_BY_NAME = {"characters": Characters, "whitespace": Whitespace}


def get(split) -> Splitter:
    """Returns the `Splitter` of this name, or `split` if it is one."""
    if isinstance(split, Splitter):
        return split
    if isinstance(split, str) and split in _BY_NAME:
        return _BY_NAME[split]()
    advice = ""
    if isinstance(split, type) and issubclass(split, Splitter):
        advice = f" Pass an instance, `split={split.__name__}(...)`."
    raise ValueError(
        '`split` must be "characters" or "whitespace", or an instance of '
        f"`Splitter`. Received: split={split!r}.{advice}"
    )


def name_of(splitter) -> str | None:
    """Returns the short name of a `Splitter`, or `None` if it has none."""
    for name, kind in _BY_NAME.items():
        if type(splitter) is kind:
            return name
    return None
