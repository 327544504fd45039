"""Sentences and their translations, split into some to learn and some to test.

The sentences that come with the examples are those of LibreOffice's help, in
English and French.
"""

import hashlib
import lzma
import re
from pathlib import Path
from typing import NamedTuple

FILE = Path(__file__).parents[1] / "data" / "help.en-fr.tsv.xz"

# Chosen by hand among those that `split_by_hash` holds out: in French, the
# words have another order.
SHOWN = (
    "Creates a new presentation document in LibreOffice Impress.",
    "Removes the defined print area.",
    "Specifies the file type for the new document.",
    "Defines the resolution for the target screen.",
    "The graphic object is shown in grayscale.",
)


class Pairs(NamedTuple):
    """Sources, and a translation of each."""

    sources: list[str]
    targets: list[str]

    def first(self, number: int | None) -> "Pairs":
        """Keeps the first pairs, or all for `None`."""
        return Pairs(self.sources[:number], self.targets[:number])

    def shown(self) -> "Pairs":
        """Returns a few pairs to show: those of `SHOWN`, or the first ones."""
        target_of = dict(zip(*self, strict=True))
        if not target_of.keys() >= {*SHOWN}:
            return self.first(len(SHOWN))
        return Pairs([*SHOWN], [target_of[x] for x in SHOWN])


class Split(NamedTuple):
    """Pairs for three purposes."""

    train: Pairs
    validation: Pairs
    test: Pairs


def read(files: list[Path] | list[str] | None = None) -> Pairs:
    """Reads pairs of sentences.

    Args:
        files: Two text files in UTF-8, each with one sentence a line; a line
            of the second translates that of the first. `None` for
            LibreOffice's help.
    """
    if files:
        sources, targets = map(lines_of, files)
        if len(sources) != len(targets):
            raise SystemExit(
                f"{files[0]} has {len(sources)} lines and {files[1]} has "
                f"{len(targets)}. Each line needs its translation."
            )
    else:
        with lzma.open(FILE, "rt", encoding="utf-8") as lines:
            sources, targets = zip(
                *(line.rstrip("\n").split("\t") for line in lines), strict=True
            )
    return Pairs(list(sources), list(targets))


def lines_of(file: Path | str) -> list[str]:
    """Reads the lines of a text file in UTF-8.

    Only a line feed ends a line, with a carriage return before it or not, as
    for most programs. `str.splitlines` would end lines at a dozen characters.
    """
    with open(file, encoding="utf-8-sig", newline="\n") as lines:
        return [line.removesuffix("\n").removesuffix("\r") for line in lines]


def split_by_hash(pairs: Pairs) -> Split:
    """Holds out sentences by a hash: 2.5 % for the test, 1 % for validation.

    Sentences that differ in their case, digits and punctuation alone are held
    out together. Otherwise the test would have sentences that were learned.
    """
    split = Split(*(Pairs([], []) for _ in range(3)))
    keys = [_hash(source) for source in pairs.sources]
    # Sorted by hash, so that any number of first pairs is a fair sample.
    for key, *pair in sorted(zip(keys, *pairs, strict=True)):
        share = key % 1000
        part = split[2 if share < 25 else 1 if share < 35 else 0]
        for side, sentence in zip(part, pair, strict=True):
            side.append(sentence)
    if not all(part.sources for part in split):
        raise SystemExit(
            f"{len(pairs.sources)} sentences are too few: some must be held "
            "out. Give a thousand or more."
        )
    return split


def add_options(parser):
    """Adds the options that tell which sentences to learn, and as what."""
    add_files(parser)
    add = parser.add_argument
    add(
        "--tokens",
        choices=("subwords", "words"),
        default="subwords",
        help="what sentences are split into",
    )
    add("--draw", metavar="SENTENCE", help="sentence to draw")


def add_files(parser):
    """Adds the option that names files of sentences."""
    parser.add_argument(
        "--files",
        type=Path,
        nargs=2,
        metavar="FILE",
        help="text files of your own, a sentence and its translation on the "
        "same line of both",
    )


def _hash(sentence: str) -> int:
    letters = re.sub(r"[\W\d_]+", " ", sentence.lower()).strip()
    digest = hashlib.sha256((letters or sentence).encode()).digest()
    return int.from_bytes(digest[:8], "big")
