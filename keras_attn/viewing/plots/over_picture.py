"""`OverPicture`: attention over a picture, a panel for each target token."""

import math

import numpy as np

from keras_attn.viewing.plots.fonts import FAINT
from keras_attn.viewing.plots.fonts import INK
from keras_attn.viewing.plots.heat_map import wrapped

_SIDE = 1.7  # inches, longer side of a panel
_COLUMNS = 6  # largest number of panels beside each other
_LINE = 3  # smallest width / height of a line, a picture of text or sound
_LINE_SIDE = 6.5  # inches, width of a line
LEFT = 0.12  # inches, from the left edge to the title, as to the first panel
_VEIL = 0.8  # opacity of the veil at positions without attention


class OverPicture:
    """Draws a panel for each token: the picture under a veil.

    The veil, a layer of one colour, is transparent where the token attended,
    as in figure 3 of [Xu et al., 2015](https://arxiv.org/abs/1502.03044).
    Matplotlib interpolates between the positions of the grid. All panels have
    one scale: the largest weight of all tokens makes the veil fully
    transparent. If the picture is a line (at least 3 times as wide as high),
    the panels are one below the other.

    Args:
        shown: The `Shown` weights and tokens.
        title: Text above the panels.
        picture: Array of shape `(height, width)` or `(height, width,
            channels)` with 1, 3 or 4 channels.
        grid: `(rows, columns)` of the feature map, or None for the grid that
            fits the picture best.

    Raises:
        ValueError: If the picture has another shape or values outside its
            range, or if no grid fits the weights.
    """

    def __init__(self, shown, title, picture, grid=None):
        self.shown = shown
        self.title = title
        self.picture = _checked(picture)
        self.grid = _grid(shown.alignment.shape[1], self.picture, grid)
        count = len(shown.tokens) + 1  # and the picture itself
        height, width = self.picture.shape[:2]
        self.is_line = width >= _LINE * height
        self.lines = count if self.is_line else math.ceil(count / _COLUMNS)
        self.columns = math.ceil(count / self.lines)
        side = _LINE_SIDE if self.is_line else _SIDE
        scale = side / max(height, width)
        self.panel = width * scale, height * scale

    @property
    def text(self) -> str:
        """All characters that this panel draws."""
        return "".join([*self.shown.rows, self.title])

    @property
    def inches(self) -> tuple[float, float]:
        """Width and height in inches, with labels."""
        width, height = self.panel
        beside, above = (0.9, 0.1) if self.is_line else (0.15, 0.4)
        return (
            max(self.columns * (width + beside) + 0.9, 3.2),
            self.lines * (height + above) + 0.7,
        )

    def draw(self, figure, font):
        """Draws into a figure, or a part of one."""
        panels = figure.subplots(self.lines, self.columns, squeeze=False)
        panels = panels.ravel()
        weights = np.nan_to_num(self.shown.alignment)
        most = weights.max() or 1.0
        # A dark veil on a bright picture and a bright one on a dark picture.
        ends = (1.0,) * 3, (0.05,) * 3
        if _brightness(self) > 0.4:
            ends = ends[::-1]
        colour, behind = ends
        veil = None
        for ax in panels:
            ax.set_axis_off()
        names = ["picture", *self.shown.rows]
        for number, (ax, name) in enumerate(zip(panels, names, strict=False)):
            self._label(ax, name, font)
            ax.imshow(self.picture, cmap="gray", vmin=0, vmax=_top(self))
            if number:
                veil = self._draw_veil(ax, weights[number - 1], most, colour)
        bar = figure.colorbar(
            veil, ax=list(panels), ticks=[0, most], fraction=0.03, aspect=30
        )
        bar.ax.set_yticklabels(["0", f"{most:.2g}"])
        bar.ax.tick_params(length=0, labelsize=8, labelcolor=FAINT)
        bar.outline.set_edgecolor(FAINT)
        bar.ax.set_facecolor(behind)
        bar.set_label("attention", color=FAINT, size=8)
        title = wrapped(self.title, (self.inches[0] - 0.5) / 0.085)
        place = dict(x=LEFT / self.inches[0], ha="left")
        figure.suptitle(title, size=11, color=INK, **place, **font)

    def _label(self, ax, name, font):
        """Writes a token above its panel, or to the left of a line."""
        ax.set_title("" if self.is_line else name, size=10, color=INK, **font)
        if self.is_line:
            label = dict(ha="right", va="center", size=10, color=INK)
            ax.text(
                *(-0.01, 0.5), name, transform=ax.transAxes, **label, **font
            )

    def _draw_veil(self, ax, weights, most, colour):
        from matplotlib.colors import LinearSegmentedColormap

        ends = [(*colour, _VEIL), (*colour, 0.0)]
        height, width = self.picture.shape[:2]
        return ax.imshow(
            weights.reshape(self.grid),
            cmap=LinearSegmentedColormap.from_list("veil", ends),
            vmin=0,
            vmax=most,
            extent=(-0.5, width - 0.5, height - 0.5, -0.5),
            interpolation="bicubic",
            interpolation_stage="data",
        )


def _top(panels):
    return 255 if panels.picture.dtype == np.uint8 else 1.0


def _brightness(panels):
    """Returns the mean brightness from 0 to 1, on the figure's white."""
    picture = panels.picture / _top(panels)
    if picture.shape[2:] == (4,):
        opacity = picture[..., 3:]
        picture = picture[..., :3] * opacity + 1 - opacity
    return np.mean(picture)


def _checked(picture):
    picture = np.asarray(picture)
    if picture.ndim == 3 and picture.shape[2] == 1:
        picture = picture[:, :, 0]
    shaped = picture.ndim == 2 or picture.shape[2:] in ((3,), (4,))
    if not shaped or not picture.size:
        raise ValueError(
            "`picture` must be an array of shape (height, width), or (height, "
            f"width, channels) with 1, 3 or 4 channels. Received: "
            f"{picture.shape}. From a batch pass one picture, `pictures[0]`."
        )
    if picture.dtype == np.uint8:
        return picture
    picture = picture.astype("float32")
    if not (picture.min() >= 0 and picture.max() <= 1):
        raise ValueError(
            "`picture` must be of dtype uint8, or have values from 0 to 1. "
            f"Received: values from {picture.min()} to {picture.max()}. Undo "
            "the scaling that the model needs, such as `picture / 255`."
        )
    return picture


def _grid(places, picture, grid):
    """Returns rows and columns of the feature map behind an alignment."""
    height, width = picture.shape[:2]
    if grid is None:
        off, found = min(
            (abs(math.log(rows * rows * width / (places * height))), rows)
            for rows in range(1, places + 1)
            if places % rows == 0
        )
        if off <= math.log(1.5):
            return found, places // found
    elif np.shape(grid) == (2,):
        rows, columns = grid
        if rows > 0 and rows * columns == places:
            return rows, columns
    raise ValueError(
        "Attention over a picture needs a weight for each position of a grid. "
        f"Received: {places} weights for each token, a picture of {height} x "
        f"{width} and grid={grid}. Pass `grid=(rows, columns)` of the feature "
        f"map, whose product is {places}."
    )
