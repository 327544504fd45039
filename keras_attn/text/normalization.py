"""Normalizes text before it is split."""

import unicodedata
from typing import Any

import tensorflow as tf
import tensorflow_text

_FORMS = ("NFC", "NFKC", None)


class Normalization:
    """Replaces invalid characters, normalizes, and optionally lower-cases.

    Args:
        form: Unicode normal form, `"NFC"`, `"NFKC"` or `None`.
        lowercase: Whether text is lower-cased.
    """

    def __init__(self, form: str | None, lowercase: bool):
        if form not in _FORMS:
            raise ValueError(
                '`normalization` must be "NFC", "NFKC" or None, which leaves '
                f"text as it is. Received: normalization={form!r}"
            )
        self._form: Any = form
        self._lowercase = lowercase

    def __call__(self, strings) -> tf.Tensor:
        """Returns strings `(batch,)` of valid UTF-8 without line breaks."""
        strings = tf.strings.unicode_transcode(strings, "UTF-8", "UTF-8")
        # `tf.strings.lower` would end a string at its first NUL.
        strings = tf.strings.regex_replace(strings, r"\x00", "\ufffd")
        strings = tf.strings.regex_replace(strings, r"[\t\n\v\f\r]", " ")
        strings = self._normalized(strings)
        if self._lowercase:
            strings = tf.strings.lower(strings, encoding="utf-8")
            # An accented lower-case letter may be one code point although
            # the capital is two, as for J with a caron. Not for NFKC: saved
            # vocabularies were made without this second pass.
            if self._form == "NFC":
                strings = self._normalized(strings)
        return strings

    def _normalized(self, strings):
        if self._form is None:
            return strings
        return tensorflow_text.normalize_utf8(strings, self._form)

    def advice(self, token: str) -> str:
        """Returns advice for a token that is not normalized, or ""."""
        form = self._form
        if form is None or unicodedata.is_normalized(form, token):
            return ""
        return (
            f" Normalize tokens first, `unicodedata.normalize({form!r}, "
            "token)`, or pass `normalization=None`."
        )
