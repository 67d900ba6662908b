"""A figure of matplotlib's that shows itself as the last line of a notebook's cell.

matplotlib teaches notebooks to show figures when `matplotlib.pyplot` is loaded, which nothing here does.
"""

from __future__ import annotations

from io import BytesIO

from matplotlib.figure import Figure

# Dots per inch: twice those of a screen, so that text is sharp.
_FINE = 144


class ShownFigure(Figure):
    """A figure that is also a PNG, whatever has been loaded."""

    def _repr_png_(self) -> bytes:
        image = BytesIO()
        self.savefig(image, format="png", dpi=_FINE)
        return image.getvalue()
