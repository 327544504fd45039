"""`HeatMap`: weights of target tokens over source tokens, as cells."""

import re
import textwrap

import numpy as np

from keras_attn.viewing.plots.fonts import FAINT
from keras_attn.viewing.plots.fonts import GRID
from keras_attn.viewing.plots.fonts import INK
from keras_attn.viewing.plots.fonts import LETTER
from keras_attn.viewing.plots.fonts import letters_in
from keras_attn.viewing.plots.marks import draw_mark
from keras_attn.viewing.shown import Shown
from keras_attn.viewing.shown import is_right_to_left

CELL = 0.36  # inches, width of a cell, unless the cells would exceed `LONGEST`
LONGEST = 12.0  # inches, largest total length of the cells along a side


class HeatMap:
    """A heat map that knows its size before it is drawn.

    Args:
        shown: The `Shown` weights and tokens.
        title: Text above the cells.
        name: Name of the weights, written at the colour bar.
        marks: Names of the marks to draw, of `MARKS`.
    """

    def __init__(self, shown: Shown, title, name="attention", marks=()):
        self.shown = shown
        self.title = title
        self.name = name
        self.marks = marks
        self.rows, self.columns = shown.rows, shown.columns
        self.mirrored = is_right_to_left(self.columns)
        self.fit(min(CELL, LONGEST / max(shown.alignment.shape)))

    @property
    def text(self) -> str:
        """All characters that this panel draws."""
        return "".join([*self.rows, *self.columns, self.title, self.name])

    def fit(self, cell: float):
        """Sets the width of a cell in inches."""
        self.cell = cell
        self.size = max(5.0, min(11.0, 30.0 * cell))  # points
        # Column labels are horizontal if they fit above their cell.
        widest = max(map(letters_in, self.columns)) * LETTER * self.size
        self.turned = widest > 0.95 * cell

    def fit_axes(self, ax):
        """Sets the width of a cell so that the cells fill given axes."""
        target, source = self.shown.alignment.shape
        box, dpi = ax.get_window_extent(), ax.get_figure(root=True).dpi
        self.fit(min(box.width / source, box.height / target) / dpi)

    @property
    def inches(self) -> tuple[float, float]:
        """Width and height in inches, with labels."""
        target, source = self.shown.alignment.shape
        letter = LETTER * self.size
        above = max(map(letters_in, self.columns)) * letter * 0.75
        above = above if self.turned else letter
        beside = max(map(letters_in, self.rows)) * letter
        return (
            max(source * self.cell + beside + 1.8, 3.2),
            max(target * self.cell + above + 1.3, 1.8),
        )

    def draw(self, ax, font):
        """Draws into axes.

        Args:
            ax: Matplotlib axes.
            font: Text properties, as `font_of(text)` returns them.
        """
        self._draw_cells(ax)
        self._draw_labels(ax, font | {"size": self.size})
        for mark in self.marks:
            draw_mark(mark, ax, self.shown.alignment, self.cell)
        # Wraps the title to about the width of the cells and the colour bar.
        width = (self.shown.alignment.shape[1] * self.cell + 1) / LETTER / 11
        ax.set_title(
            wrapped(self.title, width), loc="left", size=11, color=INK, **font
        )

    def _draw_cells(self, ax):
        target, source = self.shown.alignment.shape
        image = ax.pcolormesh(
            np.arange(source + 1) - 0.5,
            np.arange(target + 1) - 0.5,
            self.shown.alignment,
            cmap="Blues",
            vmin=0.0,
            vmax=1.0,
            edgecolors=GRID,
            linewidth=1.5 * self.cell,
        )
        ax.set_aspect("equal")
        ax.invert_yaxis()
        if self.mirrored:
            ax.invert_xaxis()
        ax.spines[:].set_visible(False)
        # The colour bar is an inset of these axes, so it is as high as the
        # cells.
        width = source * self.cell
        bar = ax.inset_axes([1 + 0.14 / width, 0, 0.12 / width, 1])
        bar = ax.figure.colorbar(image, cax=bar, ticks=[0, 0.5, 1])
        bar.outline.set_visible(False)
        bar.ax.tick_params(length=0, labelsize=8, labelcolor=FAINT)
        bar.set_label(self.name, color=FAINT, size=8)

    def _draw_labels(self, ax, font):
        ax.xaxis.tick_top()
        ax.xaxis.set_label_position("top")
        ax.tick_params(length=0, labelcolor=INK)
        place = {}
        if self.turned:  # the left end of a label is at its cell
            place = {"rotation": 45, "ha": "left", "rotation_mode": "anchor"}
        ax.set_xticks(range(len(self.columns)), self.columns, **font, **place)
        ax.set_yticks(range(len(self.rows)), self.rows, **font)
        ax.set_xlabel("source", color=FAINT, size=8)
        ax.set_ylabel("target", color=FAINT, size=8)


def wrapped(title, width):
    """Returns at most three lines of about `width` letters of usual width.

    A title that is too long keeps the score at its end.
    """
    share = len(title) / max(
        letters_in(title), 1
    )  # below 1 if letters are wide
    score = re.search(r"\(score \S+\)$", title)
    end = f" …   {score[0]}" if score else " …"
    # No-break spaces keep the score on one line.
    lines = textwrap.wrap(
        title.replace("(score ", "(score\u00a0"),
        max(int(share * max(24, width)), len(end)),
        max_lines=3,
        placeholder=end.replace(" ", "\u00a0"),
    )
    return "\n".join(lines).replace("\u00a0", " ")
