"""`Glossary`: terms that translations of source phrases must contain."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from keras_attn.decoding.phrases.spellings import distinct
from keras_attn.text.normalization import Normalization
from keras_attn.text.word_groups import WITHOUT_SPACES

_SHOWN = 3  # entries in `repr`
_LONGEST = 50  # words of a phrase
# White space of Unicode, and invisible characters
_SPACE, _UNSEEN = r"[\s\x{85}\pZ]+", r"[\x{AD}\x{200B}\x{FEFF}]"
_BETWEEN = "\x1f"  # separates the words of a key
# Each of these characters is a word: marks, and those of scripts without
# spaces.
_ALONE = (
    "([^\\pL\\pM\\pN\\s]|["
    + "".join(f"\\x{{{a:X}}}-\\x{{{b:X}}}" for a, b in WITHOUT_SPACES)
    + "])"
)


class Glossary:
    """Pairs of a phrase of the source and the term that translates it.

    If a source contains the phrase, as whole words, its translation must
    contain the term. If phrases overlap, the first one counts; if they begin at
    the same word, the longest one. A phrase that occurs twice requires its term
    only once. Each punctuation mark or symbol counts as a word, apostrophes and
    hyphens included, so "board" is found in "board-room". In scripts without
    spaces each character counts as a word.

    Args:
        entries: Dictionary from phrases of the source to terms.
        ignore_case: Whether to ignore the case of letters in sources. Terms are
            always written as given.

    Raises:
        ValueError: If there is no entry, if a phrase has no word, has more than
            50 words or is given twice, if a term is empty or has a line break,
            or if a string has a lone surrogate. A `Translator` refuses terms
            with unknown tokens.

    Example:
        >>> glossary = keras_attn.Glossary({"motherboard": "carte mère"})
        >>> glossary.terms_of(["A new motherboard, a motherboards."]).to_list()
        [[b'carte m\\xc3\\xa8re']]
    """

    def __init__(self, entries: Mapping[str, str], ignore_case: bool = False):
        if not isinstance(entries, Mapping) or not entries:
            raise ValueError(
                "`entries` of a `Glossary` must be a dictionary from phrases "
                f"of the source to terms. Received: {entries!r:.200}. Pass for "
                "example `{'motherboard': 'carte mère'}`."
            )
        self.entries = dict(entries)
        self.ignore_case = ignore_case
        for pair in self.entries.items():
            if not all(isinstance(x, str) and x.strip() for x in pair):
                _refuse(pair, "a string that is not empty on both sides")
            if any("\ud800" <= c <= "\udfff" for x in pair for c in x):
                _refuse(pair, "whole characters, no half of a pair")
            if "\n" in pair[1].strip():
                _refuse(pair, "a term without a line break")
        self._normalize = Normalization("NFC", ignore_case)
        with tf.init_scope():
            words = self._words(tf.constant([*self.entries]))
        counts = words.row_lengths().numpy()
        for pair, count in zip(self.entries.items(), counts, strict=True):
            if not 1 <= count <= _LONGEST:
                _refuse(pair, f"a phrase of 1 to {_LONGEST} words")
        self._counts = {*counts.tolist()}  # of words of a phrase
        self._most = max(self._counts)
        keys = tf.strings.reduce_join(words, axis=1, separator=_BETWEEN)
        self._require_distinct(keys.numpy().tolist())
        self._keys = keys
        self._terms = [x.strip() for x in self.entries.values()]
        self._table: Any = None

    def _require_distinct(self, keys):
        found: dict = {}
        for phrase, key in zip(self.entries, keys, strict=True):
            if key in found:
                raise ValueError(
                    "The phrases of a `Glossary` must differ. Received: "
                    f"{found[key]!r} and {phrase!r}, which are read the same"
                    f"{' with ignore_case=True' * self.ignore_case}. Leave "
                    "out one."
                )
            found[key] = phrase

    @property
    def terms(self) -> list[str]:
        """All terms, in the order of the entries."""
        return list(self._terms)

    @property
    def table(self) -> tf.lookup.StaticHashTable:
        """The table from phrases to entry indices, -1 for unknown phrases."""
        if self._table is None:
            with tf.init_scope():
                numbers = tf.range(len(self._terms), dtype=tf.int32)
                initializer = tf.lookup.KeyValueTensorInitializer(
                    self._keys, numbers
                )
                self._table = tf.lookup.StaticHashTable(initializer, -1)
        return self._table

    def terms_of(self, sources) -> tf.RaggedTensor:
        """Returns the terms that the translations of sources must contain.

        Args:
            sources: Strings `(batch,)`.

        Returns:
            Strings `(batch, ragged)`, in the order of the phrases, without
            repetitions.
        """
        words = self._words(tf.convert_to_tensor(sources)).to_tensor("")
        # Adds columns for the longest phrase that begins at the last word. Even
        # texts without words have one column.
        words = tf.pad(words, [[0, 0], [0, self._most]])
        width = tf.maximum(tf.shape(words)[1] - self._most, 1)
        number = tf.fill(tf.stack([tf.shape(words)[0], width]), -1)
        length, phrase = tf.zeros_like(number), words[:, :width]
        for count in range(1, self._most + 1):
            if count > 1:
                last = words[:, count - 1 : count - 1 + width]
                phrase = tf.strings.join([phrase, last], _BETWEEN)
            if count not in self._counts:
                continue
            found = self.table.lookup(phrase)
            length = tf.where(found >= 0, count, length)
            number = tf.where(found >= 0, found, number)
        taken = _first_of_overlapping(length)
        number = tf.ragged.boolean_mask(number, taken)
        terms = tf.constant(self._terms)
        found = number.with_flat_values(tf.gather(terms, number.flat_values))
        return distinct(found)

    def _words(self, strings):
        strings = self._normalize(strings)
        strings = tf.strings.regex_replace(strings, _SPACE, " ")
        strings = tf.strings.regex_replace(strings, _UNSEEN, "")
        strings = tf.strings.regex_replace(strings, _ALONE, r" \1 ")
        return tf.strings.split(strings)

    def get_config(self) -> dict:
        """Returns the constructor's arguments by name."""
        return {"entries": self.entries, "ignore_case": self.ignore_case}

    def __reduce__(self):
        return type(self), (self.entries, self.ignore_case)

    def __eq__(self, other):
        return type(self) is type(other) and (
            self.get_config() == other.get_config()
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = [f"{x!r}: {y!r}" for x, y in [*self.entries.items()][:_SHOWN]]
        more = len(self.entries) - _SHOWN
        if more > 0:
            shown.append(f"... {more} more")
        case = ", ignore_case=True" * self.ignore_case
        return f"Glossary({{{', '.join(shown)}}}{case})"


def _refuse(pair, needed):
    phrase, term = pair
    raise ValueError(
        f"An entry of a `Glossary` must have {needed}. Received: {phrase!r}: "
        f"{term!r}. Leave it out."
    )


def _first_of_overlapping(lengths) -> tf.Tensor:
    """Returns whether a phrase begins at each word and overlaps no earlier one.

    Args:
        lengths: Number of words of the phrase that begins at each word, 0 for
            none, `(batch, words)`.

    Returns:
        Boolean `(batch, words)`.
    """

    def step(before, here):
        free, _ = before
        length, place = here
        taken = (length > 0) & (place >= free)
        return tf.where(taken, place + length, free), taken

    places = tf.range(tf.shape(lengths)[1])
    rows = tf.shape(lengths)[0]
    first = tf.zeros([rows], tf.int32), tf.zeros([rows], tf.bool)
    _, taken = tf.scan(step, (tf.transpose(lengths), places), first)
    return tf.transpose(taken)
