"""Plots of attention: which source tokens each target token attended to.

The plots use Matplotlib's objects and not `pyplot`. So they keep no global
list of figures, need no display and may run in several threads, as in a
server.
"""

import textwrap
import unicodedata
from functools import lru_cache

import numpy as np

from keras_attn.words import by_words

END_TOKENS = {"</s>", "<end>", "<eos>", "[END]", "[EOS]"}
CELL = 0.36  # inches, width of a cell, unless the cells exceed `LONGEST`
LONGEST = 12.0  # inches, largest length of all cells along the longer side
LETTER = 0.62 / 72  # inches, rough width of a letter per point of font size
INK, FAINT, GRID = "#222222", "#767676", "#e3e6ea"


def plot_attention(
    translation=None,
    ax=None,
    *,
    alignment=None,
    source_tokens=None,
    tokens=None,
    title=None,
    words=False,
):
    """Draws the attention of one decoded sequence as a heat map.

    A row of the plot is a target token, a column a source token. The darker
    their cell, the more the decoder attended to the source token when it
    wrote the target token. The colours always run from 0 to 1, so that plots
    can be compared. An end token appears as `⏎`, a space as `␣`. Characters
    that Matplotlib's default font lacks are taken from another installed
    font.

    Args:
        translation: One result of a `Translator`, as `result[0]`: an object
            with `alignment`, `source_tokens` and `tokens`. If it has `text`
            and `score`, they become the title.
        ax: Matplotlib axes to draw into. Defaults to those of a new figure,
            whose size follows the number of tokens.
        alignment: Array of shape `(target, source)` with values in `[0, 1]`.
            Pass this and the next two in the place of `translation`.
        source_tokens: List of `source` strings.
        tokens: List of `target` strings.
        title: Title of the plot, in the place of text and score.
        words: Whether subwords are joined to words: the attention to those of
            a source word is summed, that of those of a target word averaged.
            Where words begin is told from the marks of SentencePiece (`▁`),
            WordPiece (`##`) and subword-nmt (`@@`), and from bytes. Pieces
            without such marks stay apart: a single word of `BytePair` has
            none.

    Returns:
        The `matplotlib.figure.Figure`. Save it with `figure.savefig(path)`.

    Raises:
        ImportError: If Matplotlib is not installed.

    Example:
        >>> figure = keras_attn.plot_attention(
        ...     alignment=[[0.9, 0.1, 0.0], [0.0, 0.2, 0.8]],
        ...     source_tokens=["black", "cat", "</s>"],
        ...     tokens=["Katze", "</s>"],
        ... )
        >>> figure.savefig("attention.png")
    """
    if alignment is None and source_tokens is None and tokens is None:
        alignment, source_tokens, tokens = _fields(translation)
    elif translation is not None:
        raise ValueError(
            "`plot_attention` takes either one result, or `alignment`, "
            "`source_tokens` and `tokens`. Received: both. Leave one of them "
            "out."
        )
    alignment = _checked(alignment, source_tokens, tokens)
    if words:
        alignment, source_tokens, tokens = by_words(
            alignment, source_tokens, tokens
        )
    if title is None:
        title = _title(translation)
    columns = [_legible(token) for token in source_tokens]
    rows = [_legible(token) for token in tokens]
    cell = _cell(alignment.shape, ax)
    size = max(5.0, min(11.0, 30.0 * cell))  # points
    # Column labels are horizontal if they fit above their cell.
    widest = max(len(label) for label in columns) * LETTER * size
    turned = widest > 0.95 * cell
    if ax is None:
        ax = _new_axes(alignment.shape, cell, size, rows, columns, turned)
    font = {
        "family": _families("".join([*rows, *columns, title])),
        "parse_math": False,  # a token may be a dollar sign
        "usetex": False,
    }
    _draw_cells(ax, alignment, cell)
    _draw_labels(ax, rows, columns, turned, font | {"size": size})
    # Wraps the title to about the width of cells and colour bar.
    title = _wrapped(title, (alignment.shape[1] * cell + 1) / LETTER / 11)
    ax.set_title(title, loc="left", size=11, color=INK, **font)
    return ax.get_figure(root=True)


def _fields(translation):
    try:
        return (
            translation.alignment,
            translation.source_tokens,
            translation.tokens,
        )
    except AttributeError:
        raise ValueError(
            "`plot_attention` draws one result, an object with `alignment`, "
            "`source_tokens` and `tokens`. Received: "
            f"{type(translation).__name__}. Pass one result of several, as "
            "in `plot_attention(results[0])`, or pass `alignment=`, "
            "`source_tokens=` and `tokens=` by name."
        ) from None


def _checked(alignment, source_tokens, tokens):
    if alignment is None or source_tokens is None or tokens is None:
        raise ValueError(
            "`alignment`, `source_tokens` and `tokens` go together. Received: "
            f"alignment={alignment}, source_tokens={source_tokens}, "
            f"tokens={tokens}. Pass all three."
        )
    alignment = np.asarray(alignment, "float32")
    expected = (len(tokens), len(source_tokens))
    if alignment.shape != expected or not alignment.size:
        raise ValueError(
            "`alignment` needs a row for each target token and a column for "
            "each source token, and at least one of both. Received: alignment "
            f"of shape {alignment.shape} for {len(tokens)} tokens and "
            f"{len(source_tokens)} source tokens. Cut off its padding."
        )
    return alignment


def _title(translation):
    text = getattr(translation, "text", None) or ""
    score = getattr(translation, "score", None)
    if score is not None:
        text += f"   (score {score:.3f})".replace("-", "−")
    return text.strip()


def _wrapped(title, width):
    lines = textwrap.wrap(
        title, max(24, int(width)), max_lines=3, placeholder=" …"
    )
    return "\n".join(lines)


def _cell(shape, ax):
    """Returns a cell's width in inches, approximate for given axes."""
    if ax is None:
        return min(CELL, LONGEST / max(shape))
    box, dpi = ax.get_window_extent(), ax.get_figure(root=True).dpi
    return min(box.width / shape[1], box.height / shape[0]) / dpi


def _legible(token):
    if token in END_TOKENS:
        return "⏎"
    if token and not token.strip(" "):
        return "␣" * len(token)
    if unicodedata.combining(token[:1] or " "):  # needs a base letter
        return "◌" + token
    if not token.isprintable():
        return token.encode("unicode_escape").decode()
    return token


def _new_axes(shape, cell, size, rows, columns, turned):
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            "`plot_attention` draws with Matplotlib, which is not installed. "
            "Install it with `pip install matplotlib`; it is also keras-attn's "
            "extra `plot`."
        ) from error
    letter = LETTER * size
    above = max(map(len, columns)) * letter * 0.75 if turned else letter
    beside = max(map(len, rows)) * letter
    figure = Figure(
        figsize=(
            max(shape[1] * cell + beside + 1.8, 3.2),
            max(shape[0] * cell + above + 1.3, 1.8),
        ),
        dpi=150,
        layout="constrained",
        facecolor="white",
    )
    figure.get_layout_engine().set(w_pad=0.12, h_pad=0.12)  # inches
    FigureCanvasAgg(figure)
    return figure.add_subplot()


def _draw_cells(ax, alignment, cell):
    target, source = alignment.shape
    image = ax.pcolormesh(
        np.arange(source + 1) - 0.5,
        np.arange(target + 1) - 0.5,
        alignment,
        cmap="Blues",
        vmin=0.0,
        vmax=1.0,
        edgecolors=GRID,
        linewidth=1.5 * cell,
    )
    ax.set_aspect("equal")
    ax.invert_yaxis()
    ax.spines[:].set_visible(False)
    # The colour bar is an inset of these axes, so it is as high as the cells.
    width = source * cell
    bar = ax.inset_axes([1 + 0.14 / width, 0, 0.12 / width, 1])
    bar = ax.figure.colorbar(image, cax=bar, ticks=[0, 0.5, 1])
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0, labelsize=8, labelcolor=FAINT)
    bar.set_label("attention", color=FAINT, size=8)


def _draw_labels(ax, rows, columns, turned, font):
    ax.xaxis.tick_top()
    ax.xaxis.set_label_position("top")
    ax.tick_params(length=0, labelcolor=INK)
    place = {"rotation": 45, "ha": "left", "rotation_mode": "anchor"}
    ax.set_xticks(
        range(len(columns)), columns, **font, **(place if turned else {})
    )
    ax.set_yticks(range(len(rows)), rows, **font)
    ax.set_xlabel("source", color=FAINT, size=8)
    ax.set_ylabel("target", color=FAINT, size=8)


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
