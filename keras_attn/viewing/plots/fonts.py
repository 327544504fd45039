"""Fonts that have a figure's characters, and the size and colours of text."""

import unicodedata
from functools import lru_cache

LETTER = 0.62 / 72  # approximate width of a letter, in inches per font point
_WIDE = 1.6  # width of a Chinese, Japanese or Korean letter, in other letters
INK, FAINT, GRID = "#222222", "#767676", "#e3e6ea"


def letters_in(text: str) -> float:
    """Returns the width of a text, in letters of the usual width."""
    return sum(map(_width, text))


def _width(character):
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0.0  # an accent or a mark, drawn over or between letters
    return _WIDE if unicodedata.east_asian_width(character) in "WF" else 1.0


def font_of(text) -> dict:
    """Returns properties with which Matplotlib can draw a text."""
    return {
        "family": _families(text),
        "parse_math": False,  # a token may be a dollar sign
        "usetex": False,
    }


def _families(text):
    """Returns the default fonts, and others for characters that they lack."""
    import matplotlib
    from matplotlib import font_manager

    families = list(matplotlib.rcParams["font.family"])
    missing = {ord(character) for character in text if not character.isspace()}
    for family in families:
        default = font_manager.FontProperties(family=[family])
        missing -= _characters(font_manager.findfont(default))
    for font in font_manager.fontManager.ttflist:
        if not missing:
            break
        # "Last Resort" draws every character, as a box.
        if font.name.startswith("Last Resort"):
            continue
        if missing & _characters(font.fname):
            families.append(font.name)
            missing -= _characters(font.fname)
    return families


@lru_cache(maxsize=64)
def _characters(path):
    """Returns the characters of a font; none if it cannot be read.

    Matplotlib remembers fonts that may have been removed since.
    """
    from matplotlib import font_manager

    try:
        return frozenset(font_manager.get_font(path).get_charmap())
    except (OSError, RuntimeError):  # there is no file, or FreeType refuses it
        return frozenset()
