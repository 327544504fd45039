"""`AskedPhrases`: the phrases that a call requires or avoids."""

import numpy as np
import tensorflow as tf

from keras_attn.decoding.phrases.matcher import PhraseMatcher
from keras_attn.decoding.translator.sources import as_array
from keras_attn.decoding.translator.sources import is_list_of

MOST_PHRASES = 200  # to avoid per row; each takes memory in each hypothesis


class AskedPhrases:
    """The phrases of an argument, a list for each source.

    Args:
        name: Name of the argument, `"terms"` or `"avoid"`.
        given: Value of the argument.
        count: Number of sources.

    Attributes:
        lines: The phrases of each source, joined by line feeds: an array of
            bytes, `(count,)`.
    """

    def __init__(self, name, given, count):
        self._name = name
        fine = is_list_of(count, given) and all(
            x is None
            or (not isinstance(x, (str, bytes)) and hasattr(x, "__len__"))
            for x in given
        )
        if not fine:
            raise ValueError(
                f"`{name}` must be a list with a list of strings, or None, for "
                f"each source. Received: {name}={given!r:.200} for {count} "
                f"source(s). For one source write `{name}=[[...]]`."
            )
        rows = [() if x is None else x for x in given]
        # Without repetitions
        self._rows = [[*dict.fromkeys(map(self._read, x))] for x in rows]
        self.lines = np.empty(count, object)
        self.lines[:] = ["\n".join(x).encode() for x in self._rows]
        self._lengths: list = []

    def _read(self, phrase):
        phrase = as_array(phrase)
        if isinstance(phrase, str):  # may have lone surrogates
            phrase = phrase.encode("utf-8", "surrogatepass")
        found = ""
        if isinstance(phrase, bytes):
            found = phrase.decode("utf-8", "replace").strip()
        if found and "\n" not in found:
            return " ".join(found.split())
        needed = "without a line break" if found else "with a character"
        raise ValueError(
            f"A phrase of `{self._name}` must be a string {needed}. Received: "
            f"{phrase!r:.80}. Leave it out, or write it on one line."
        )

    def require_known(self, spellings):
        """Raises `ValueError` for phrases with tokens that no output has."""
        every = [x for row in self._rows for x in row]
        if not every:
            return
        ids = spellings(tf.constant(every))
        known = spellings.are_known(ids).numpy()
        for phrase, is_known in zip(every, known, strict=True):
            if not is_known:
                raise ValueError(
                    f"A phrase of `{self._name}` must be made of tokens that "
                    f"the target text knows. Received: {phrase!r:.80}. Leave "
                    "it out, or write it as in the training texts."
                )
        matcher = PhraseMatcher(ids[None], spellings.first)
        self._lengths = matcher.shortest[0].numpy().tolist()

    def require_short(self, longest):
        """Raises `ValueError` for a phrase longer than its source's output.

        Args:
            longest: Maximum output length of each source, end token counted.
        """
        lengths = iter(self._lengths)
        for number, (row, most) in enumerate(
            zip(self._rows, longest, strict=True)
        ):
            for phrase in row:
                if (length := next(lengths)) >= most:
                    raise ValueError(
                        f"A phrase of `{self._name}` must fit into the output "
                        f"of its source. Received: {phrase!r:.80}, of {length} "
                        f"tokens, for source {number} with max_length={most}, "
                        "the end counted. Leave it out, or use a search with "
                        "a larger `max_length`."
                    )

    def require_few(self):
        """Raises `ValueError` for more phrases than a row may have."""
        count = max(map(len, self._rows), default=0)
        if count > MOST_PHRASES:
            raise ValueError(
                f"`{self._name}` may have {MOST_PHRASES} phrases for a source. "
                f"Received: {count}. For more phrases give the search the rule "
                "`Without`, which applies to all requests."
            )
