"""`ShownFigure`: a figure that a notebook shows without `pyplot`.

This module imports Matplotlib, so it is only imported to draw.
"""

import io

from matplotlib.figure import Figure


class ShownFigure(Figure):
    """A figure that appears in a notebook if a cell's last line returns it."""

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png")
        return buffer.getvalue()
