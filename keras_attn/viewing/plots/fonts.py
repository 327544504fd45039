"""Fonts that have the characters of a figure, and sizes in inches."""

from functools import lru_cache

LETTER = 0.62 / 72  # inches, rough width of a letter per point of font size
INK, FAINT, GRID = "#222222", "#767676", "#e3e6ea"


def font_of(text) -> dict:
    """Returns properties of Matplotlib's texts that draw some characters."""
    return {
        "family": _families(text),
        "parse_math": False,  # a token may be a dollar sign
        "usetex": False,
    }


def _families(text):
    """Returns the default fonts, and installed ones for missing characters."""
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
    from matplotlib import font_manager

    return frozenset(font_manager.get_font(path).get_charmap())
