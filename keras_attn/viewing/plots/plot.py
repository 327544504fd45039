"""`plot_attention`: results as heat maps, or over pictures."""

from types import SimpleNamespace

import numpy as np

from keras_attn.viewing.plots.fonts import font_of
from keras_attn.viewing.plots.heat_map import HeatMap
from keras_attn.viewing.plots.marks import names_of
from keras_attn.viewing.plots.over_picture import LEFT
from keras_attn.viewing.plots.over_picture import OverPicture
from keras_attn.viewing.plots.over_sound import OverSound
from keras_attn.viewing.shown import Shown
from keras_attn.viewing.shown import are_several
from keras_attn.viewing.shown import score_of

_ALONE = OverPicture, OverSound  # panels with no other beside them
_WIDEST = 15.0  # inches, largest width of heat maps beside each other
_REST = 0.5  # inches of space beside or below a panel that are left empty
_MOST = 50  # results in a figure
_PIXELS = 30000  # largest length of a side; Matplotlib's limit is 65,535


def plot_attention(
    translation=None,
    ax=None,
    *,
    alignment=None,
    source_tokens=None,
    tokens=None,
    title=None,
    words=False,
    mark=None,
    saliency=None,
    picture=None,
    grid=None,
    sound=None,
    rate=16_000,
):
    """Draws the attention of decoded sequences as heat maps.

    A row of a heat map is a target token, a column a source token. The darker
    a cell, the more the decoder attended to the source token when it wrote
    the target token. The colours of heat maps always run from 0 to 1, so
    plots can be compared. An end token appears as `⏎`, a space as `␣`.
    Characters that Matplotlib's default font lacks are taken from another
    installed font. For a source that is written from right to left, the
    columns run from right to left.

    Args:
        translation: One result of a `Translator`, as in `results[0]`: an
            object with `alignment`, `source_tokens` and `tokens`. If it has
            `text` and `score`, they become the title. Or a sequence of up to
            50 results, which are drawn in one figure.
        ax: Matplotlib axes to draw one heat map into. Defaults to those of a
            new figure, whose size follows the number of tokens.
        alignment: Array of shape `(target, source)` with values in `[0, 1]`.
            Pass this and the next two instead of `translation`.
        source_tokens: List of `source` strings.
        tokens: List of `target` strings.
        title: Title of the plot, instead of text and score. With a list of
            results and without `ax`, a title of the figure.
        words: Whether subwords are joined into words: the attention to the
            subwords of a source word is summed, the attention of the subwords
            of a target word is averaged. Words are recognized by the marks of
            SentencePiece (`▁`), WordPiece (`##`) and subword-nmt (`@@`), and
            from bytes. Subwords without such marks are not joined: a single
            word of `BytePair` has none.
        mark: The marks to draw in each row, one of these or a list:
            `"choice"`, a box around the largest weight; `"path"`, a line
            through the largest weights, as for monotonic attention; and
            `"window"`, a dashed box around all weights that are not 0, as for
            local attention.
        saliency: Result of `saliency` for the result, an array of shape
            `(target, source)` to draw beside the attention. With several
            results, a list of these.
        picture: Array of shape `(height, width)` or `(height, width,
            channels)` with 1, 3 or 4 channels, uint8 or with values from 0 to
            1, if the source is a picture. The attention is then drawn over
            it, in a panel for each target token. With several results, a list
            of these.
        grid: `(rows, columns)` of the feature map of a picture. Defaults to
            the grid with as many positions as there are weights whose aspect
            ratio is closest to that of the picture.
        sound: Array of samples, if the result has the times of words, as
            results of `Translator.words` do. The words are then written over
            the spectrogram at their times. With several results, a list of
            these.
        rate: Samples per second of `sound`.

    Returns:
        The `matplotlib.figure.Figure`, which a notebook shows. Save it with
        `figure.savefig(path)`.

    Raises:
        ImportError: If Matplotlib is not installed.
        ValueError: If the shapes of weights, tokens and pictures do not fit,
            if there are more than 50 results, if `ax` is given for more than
            one heat map, or if an argument would have no effect: `grid`
            without `picture`; `words`, `mark` or `saliency` with `picture` or
            `sound`; `picture` or `grid` with `sound`.

    Example:
        >>> figure = keras_attn.plot_attention(
        ...     alignment=[[0.9, 0.1, 0.0], [0.0, 0.2, 0.8]],
        ...     source_tokens=["black", "cat", "</s>"],
        ...     tokens=["Katze", "</s>"],
        ...     mark="choice",
        ... )
        >>> figure.savefig("attention.png")
    """
    if alignment is None and source_tokens is None and tokens is None:
        several = are_several(translation)
        results = list(translation) if several else [translation]
    else:
        _require_alone(translation, alignment, source_tokens, tokens)
        several = False
        results = [
            SimpleNamespace(
                alignment=alignment, source_tokens=source_tokens, tokens=tokens
            )
        ]
    _require_count(results, ax, saliency, picture, sound)
    _require_used(words, mark, saliency, picture, grid, sound)
    of_figure = several and ax is None
    titles = [
        title if title is not None and not of_figure else _title(x)
        for x in results
    ]
    marks = names_of(mark)
    saliencies = _for_each(saliency, results, several, "saliency")
    pictures = _for_each(picture, results, several, "picture")
    sounds = _for_each(sound, results, several, "sound")
    groups = [
        _panels(*one, words, marks, grid)
        if heard is None
        else [OverSound(_words_of(one[0]), one[1], heard, rate)]
        for heard, *one in zip(
            sounds, results, titles, saliencies, pictures, strict=True
        )
    ]
    text = "".join(x.text for group in groups for x in group)
    if ax is not None:
        require_matplotlib()
        ((panel,),) = groups
        panel.fit_axes(ax)
        panel.draw(ax, font_of(text))
        return ax.get_figure(root=True)
    heading = title if of_figure and title else ""
    return _drawn(groups, heading, text)


def _require_alone(translation, alignment, source_tokens, tokens):
    if translation is not None:
        raise ValueError(
            "`plot_attention` takes either results, or `alignment`, "
            "`source_tokens` and `tokens`. Received: both. Leave one or the "
            "other out."
        )
    if alignment is None or source_tokens is None or tokens is None:
        raise ValueError(
            "`alignment`, `source_tokens` and `tokens` go together. Received: "
            f"alignment={alignment}, source_tokens={source_tokens}, "
            f"tokens={tokens}. Pass all three."
        )


def _require_count(results, ax, saliency, picture, sound):
    if not 1 <= len(results) <= _MOST:
        raise ValueError(
            f"`plot_attention` draws 1 to {_MOST} results in a figure. "
            f"Received: {len(results)}. Pass some of them, such as "
            "`results[:9]`; `attention_html` shows any number."
        )
    others = saliency, picture, sound
    single = len(results) == 1 and all(x is None for x in others)
    if ax is not None and not single:
        raise ValueError(
            "`ax` has room for one heat map. Received: `ax` with several "
            "results, `saliency`, `picture` or `sound`. Leave `ax` out for a "
            "new figure, or draw one heat map in each of several axes."
        )


def _words_of(result):
    words = getattr(result, "words", ())
    if words == ():
        raise ValueError(
            "`sound` needs a result with the times of words. Received: "
            f"{type(result).__name__}. Pass the results of "
            "`translator.words(sounds)`, all of them or one as in "
            "`results[0]`."
        )
    return words


def _require_used(words, mark, saliency, picture, grid, sound):
    """Refuses arguments that would have no effect."""
    if sound is not None:
        given = {"words": words or None, "mark": mark, "saliency": saliency}
        given |= {"picture": picture, "grid": grid}
        unused = [f"`{name}`" for name, x in given.items() if x is not None]
        if unused:
            raise ValueError(
                f"{' and '.join(unused)} would have no effect with `sound`, "
                "which draws words over a spectrogram. Leave one or the other "
                "out."
            )
        return
    if picture is None:
        given = {"grid": grid}
        remedy = "`grid` is the feature map of a picture: pass `picture` too."
    else:
        given = {"words": words or None, "mark": mark, "saliency": saliency}
        remedy = "Heat maps have them: leave `picture` out."
    unused = [f"`{name}`" for name, x in given.items() if x is not None]
    if unused:
        shown = "with" if picture is not None else "without"
        raise ValueError(
            f"{' and '.join(unused)} would have no effect {shown} `picture`. "
            f"{remedy}"
        )


def _for_each(given, results, several, name):
    """Returns an argument's value for each result."""
    if given is None:
        return [None] * len(results)
    if not several:
        return [given]
    if len(given) != len(results):
        raise ValueError(
            f"`{name}` must be a list with one for each result. Received: "
            f"{len(given)} for {len(results)} results. Pass as many as there "
            "are results."
        )
    return list(given)


def _panels(result, title, saliency, picture, words, marks, grid):
    """Returns the panels of one result, from left to right."""
    shown = Shown.of("plot_attention", result)
    if picture is not None:
        return [OverPicture(shown, title, picture, grid)]
    panels = [HeatMap(shown.joined(words), title, marks=marks)]
    if saliency is not None:
        weights = np.asarray(saliency, "float32")
        if weights.shape != shown.alignment.shape:
            raise ValueError(
                "`saliency` must have the shape of the alignment, (target, "
                f"source). Received: {weights.shape} for "
                f"{shown.alignment.shape}. Pass the same result to both: "
                "`saliency(translator, source, result)`."
            )
        beside = shown._replace(alignment=weights).joined(words)
        panels.append(HeatMap(beside, "saliency", name="saliency"))
    return panels


def _drawn(groups, heading, text):
    """Returns a figure with all panels; a group's are beside each other."""
    figure_type, canvas_type = require_matplotlib()
    cell = min(
        (x.cell for group in groups for x in group if isinstance(x, HeatMap)),
        default=0,
    )
    for panel in (x for group in groups for x in group):
        if isinstance(panel, HeatMap):
            panel.fit(cell)
    lines = _lines(groups)
    widths = [sum(x.inches[0] for x in line) for line in lines]
    heights = [max(x.inches[1] for x in line) for line in lines]
    size = max(widths), sum(heights) + (0.4 if heading else 0)
    figure = figure_type(
        figsize=size,
        dpi=min(150, _PIXELS / max(size)),
        layout="constrained",
        facecolor="white",
    )
    figure.get_layout_engine().set(w_pad=0.12, h_pad=0.12)  # inches
    canvas_type(figure)
    font = font_of(text + heading)
    if heading:
        place = dict(x=LEFT / size[0], ha="left")
        figure.suptitle(heading, size=13, **place, **font)
    if len(lines) == 1 and len(lines[0]) == 1 and not heading:
        parts = [figure]
    else:
        parts = figure.subfigures(
            len(lines), 1, height_ratios=heights, squeeze=False
        ).ravel()
    for part, line, height in zip(parts, lines, heights, strict=True):
        _draw_line(part, line, (size[0], height), font)
    return figure


def _lines(groups):
    """Returns lists of panels that fit beside each other."""
    lines: list[list] = []
    width = _WIDEST
    for group in groups:
        own = sum(x.inches[0] for x in group)
        if width + own > _WIDEST or isinstance(group[0], _ALONE):
            lines.append([])
            width = 0.0
        lines[-1] += group
        width += own
    return lines


def _draw_line(part, line, size, font):
    """Draws panels beside each other, from the left, each in its own size.

    Args:
        part: A figure, or a part of one.
        line: The panels.
        size: Width and height of the part in inches.
        font: Text properties, as `font_of(text)` returns them.
    """
    rest = size[0] - sum(x.inches[0] for x in line)
    if isinstance(line[0], _ALONE):
        if rest > _REST:
            ratios = [line[0].inches[0], rest]
            part, _ = part.subfigures(1, 2, width_ratios=ratios)
        line[0].draw(part, font)
        return
    ratios = [x.inches[0] for x in line]
    if rest > _REST:
        ratios.append(rest)
    places = part.add_gridspec(1, len(ratios), width_ratios=ratios)
    for number, panel in enumerate(line):
        place, below = places[number], size[1] - panel.inches[1]
        if below > _REST:
            heights = [panel.inches[1], below]
            place = place.subgridspec(2, 1, height_ratios=heights)[0]
        ax = part.add_subplot(place)
        if len(line) > 1 or rest > _REST:
            ax.set_anchor("NW")
        panel.draw(ax, font)


def require_matplotlib():
    """Returns the classes of a figure and its canvas.

    Raises:
        ImportError: If Matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        from keras_attn.viewing.plots.shown_figure import ShownFigure
    except ImportError as error:
        raise ImportError(
            "`plot_attention` draws with Matplotlib, which is not installed. "
            "Install it with `pip install matplotlib`; it is also keras-attn's "
            "extra `plot`."
        ) from error
    return ShownFigure, FigureCanvasAgg


def _title(result):
    text = getattr(result, "text", None) or ""
    score = score_of(result)
    if score:
        text += f"   (score {score})"
    return text.strip()
