"""`ShownFigure`: a figure that a notebook shows without Matplotlib's help.

It imports Matplotlib, so it is imported where something is drawn.
"""

import io

from matplotlib.figure import Figure


class ShownFigure(Figure):
    """A figure that is the value of a notebook's cell appears under it."""

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png")
        return buffer.getvalue()
