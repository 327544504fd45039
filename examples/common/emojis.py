"""Pictures of emoji, drawn with a font, and their names in English.

The names are those of Unicode's CLDR, as the package `emoji` has them. Many
are composed: "woman firefighter dark skin tone". Those held out are new
combinations of parts that are learned.
"""

import random
import re
from pathlib import Path
from typing import NamedTuple

import emoji
import numpy as np
from fontTools.ttLib import TTFont
from matplotlib import font_manager
from PIL import Image
from PIL import ImageDraw
from PIL import ImageFont

FONT = "NotoColorEmoji.ttf"
FONT_SIZE = 109  # pixels; the only size that this font has
TONE = re.compile(r" (light|medium-light|medium|medium-dark|dark) skin tone")
OTHER_PERSON = {"man": "woman", "woman": "man"}
JOINERS = {0x200D, 0xFE0F}  # they join emoji and have no glyph


class Named(NamedTuple):
    """Pictures, `(rows, size, size, 3)`, the emoji and their names."""

    pictures: np.ndarray
    characters: list[str]
    names: list[str]

    def take(self, indices: list[int]) -> "Named":
        return Named(
            self.pictures[indices],
            [self.characters[i] for i in indices],
            [self.names[i] for i in indices],
        )


class Split(NamedTuple):
    """Pictures to learn, and those held out by kind of combination."""

    learned: Named
    held_out: dict[str, Named]


def find_font() -> Path:
    """Returns the path of the font, or ends the program."""
    for file in map(Path, font_manager.findSystemFonts()):
        if file.name == FONT:
            return file
    raise SystemExit(
        f"The font {FONT} is not installed. Debian's package "
        "`fonts-noto-color-emoji` has it; or give a font with `--font`."
    )


def draw(file: Path, size: int, count: int | None = None) -> Named:
    """Draws the emoji of people and hands that a font has as one glyph.

    They are those that come in several skin tones, so their names are made of
    parts. That of a watch or a flag has none that could be learned elsewhere.

    Args:
        file: The font.
        size: Pixels of a side.
        count: How many emoji to draw, chosen at random; `None` for all.
    """
    font = ImageFont.truetype(file, FONT_SIZE)
    drawn = {*TTFont(file).getBestCmap()} | JOINERS
    named = [
        (character, about["en"].strip(":").replace("_", " "))
        for character, about in emoji.EMOJI_DATA.items()
        if about["status"] == emoji.STATUS["fully_qualified"]
    ]
    toned = {TONE.sub("", name) for _, name in named if TONE.search(name)}
    found = [
        (character, name)
        for character, name in named
        if TONE.sub("", name) in toned
        and drawn.issuperset(map(ord, character))
        and font.getlength(character) < 1.5 * FONT_SIZE
    ]
    if count is not None and count < len(found):
        found = random.Random(0).sample(found, count)
    characters, names = zip(*found, strict=True)
    return Named(
        np.stack([_draw(x, font, size) for x in characters]),
        list(characters),
        list(names),
    )


def split(named: Named, tones: int, people: int, seed: int) -> Split:
    """Holds out combinations whose parts are all learned.

    Args:
        named: All pictures.
        tones: How many skin tones to hold out, each of one activity, of which
            the other tones are learned.
        people: How many activities to hold out of which only a man or only a
            woman is learned.
        seed: Seed of the choice.
    """
    chosen = random.Random(seed)
    bases = [
        TONE.sub("", name).removesuffix(" facing right") for name in named.names
    ]
    both = sorted(
        base
        for base in {*bases}
        if _other(base) in bases and not base.startswith("man ")
    )
    new = {
        chosen.choice((base, _other(base)))
        for base in chosen.sample(both, min(people, len(both)))
    }
    toned = [
        (base, *TONE.findall(name))
        for name, base in zip(named.names, bases, strict=True)
    ]
    rest = sorted({x for x in toned if x[0] not in new and len(x) == 2})
    few = {*chosen.sample(rest, min(tones, len(rest) // 5))}
    new_tone = [i for i, x in enumerate(toned) if x in few]
    other = [i for i, base in enumerate(bases) if base in new]
    learned = [i for i in range(len(bases)) if i not in {*new_tone, *other}]
    known = {word for i in learned for word in named.names[i].split()}
    held_out = {"new tone": new_tone, "new person": other}
    return Split(
        named.take(learned),
        {
            kind: named.take(
                [i for i in some if known.issuperset(named.names[i].split())]
            )
            for kind, some in held_out.items()
        },
    )


def _other(base: str) -> str | None:
    """Returns the same activity of the other person."""
    person, _, activity = base.partition(" ")
    if person not in OTHER_PERSON or not activity:
        return None
    return f"{OTHER_PERSON[person]} {activity}"


def _draw(character: str, font, size: int) -> np.ndarray:
    """Draws an emoji on white, in the middle."""
    left, top, right, bottom = font.getbbox(character)
    side = max(right - left, bottom - top)
    image = Image.new("RGB", (side, side), "white")
    where = (side - left - right) / 2, (side - top - bottom) / 2
    ImageDraw.Draw(image).text(
        where, character, fill="black", font=font, embedded_color=True
    )
    return np.array(image.resize((size, size), Image.Resampling.LANCZOS))
