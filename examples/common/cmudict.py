"""The CMU Pronouncing Dictionary, split into words to learn and words to test.

Here and in the programs, pronunciations are a dictionary: a word, and the list
of its pronunciations, each a line of phonemes such as `"K AE T"`.
"""

import gzip
import hashlib
import lzma
import re
from pathlib import Path
from typing import NamedTuple

FILE = Path(__file__).parents[1] / "data" / "cmudict.dict.xz"
LONGEST = 40  # phonemes to decode; the longest word has 28

# Chosen by hand among the words that `split_by_hash` holds out, to be about as
# hard as the rest.
SHOWN = (
    "straightaway",
    "schwichtenberg",
    "pneumonia",
    "serendipity",
    "neighborhood",
)


class Split(NamedTuple):
    """Words with their pronunciations, for three purposes."""

    train: dict[str, list[str]]
    validation: dict[str, list[str]]
    test: dict[str, list[str]]

    def first(self, number: int | None) -> "Split":
        """Keeps the first words of each part, or all for `None`."""
        return Split(*(dict(list(part.items())[:number]) for part in self))


def as_lines(pronunciations: dict[str, list[str]]):
    """Returns two lists to train on: words, and how they are pronounced.

    A word with two pronunciations is in the lists twice.
    """
    words = [word for word, several in pronunciations.items() for _ in several]
    return words, [
        one for several in pronunciations.values() for one in several
    ]


def read(path: Path = FILE) -> dict[str, list[str]]:
    """Reads the dictionary, without the stress of vowels.

    Only words of letters and apostrophes are kept. Two pronunciations that
    differ in stress alone become one.
    """
    pronunciations = {}
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            entry, *phonemes = line.split("#")[0].split()
            word = entry.split("(")[0]
            if re.fullmatch("[a-z']+", word):
                _add(pronunciations, word, phonemes)
    return pronunciations


def split_by_hash(pronunciations: dict[str, list[str]]) -> Split:
    """Holds out words by a hash: 5 % for the test, 1 % for validation.

    The split is the same on every machine and for any order of the words, and
    adding a word moves no other word.
    """
    split = Split({}, {}, {})
    # Sorted by hash, so that any number of first words is a fair sample.
    for word in sorted(pronunciations, key=_hash):
        percent = _hash(word) % 100
        part = 2 if percent < 5 else 1 if percent < 6 else 0
        split[part][word] = pronunciations[word]
    return split


def read_or_split(folder: Path | str | None) -> Split:
    """Reads the papers' split from a folder, or makes our own for `None`."""
    if folder:
        return read_published_split(Path(folder))
    return split_by_hash(read())


def read_published_split(folder: Path) -> Split:
    """Reads the split of an older edition that papers use.

    Args:
        folder: Folder of `train.tsv.gz` and `test.tsv.gz`, with a word and a
            pronunciation in each line, and of `dev-words.seed0.txt`, the words
            of the first that are for validation.
    """
    train, test = (
        _read_table(folder / name) for name in ("train.tsv.gz", "test.tsv.gz")
    )
    listed = (folder / "dev-words.seed0.txt").read_text(encoding="utf-8")
    held_out = set(listed.lower().split())
    validation = {w: p for w, p in train.items() if w in held_out}
    train = {w: p for w, p in train.items() if w not in held_out}
    return Split(train, validation, test)


def _read_table(path: Path) -> dict[str, list[str]]:
    pronunciations = {}
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            word, phonemes = line.rstrip("\n").lower().split("\t")
            _add(pronunciations, word, phonemes.upper().split())
    return dict(sorted(pronunciations.items(), key=lambda item: _hash(item[0])))


def _add(pronunciations, word, phonemes):
    # A digit at the end of a vowel marks its stress.
    pronunciation = " ".join(phoneme.rstrip("012") for phoneme in phonemes)
    known = pronunciations.setdefault(word, [])
    if pronunciation not in known:
        known.append(pronunciation)


def _hash(word: str) -> int:
    return int.from_bytes(hashlib.sha256(word.encode()).digest()[:8], "big")
