"""Pictures for the pages: the same bytes in every run, and readable on light and dark pages alike.

A picture brings its own light ground along, since a page may turn dark under it.
"""

from __future__ import annotations

import io
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import matplotlib as mpl

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The palette of Okabe and Ito, told apart by those who do not see every colour.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")

_STYLE: dict[Any, Any] = {
    "svg.hashsalt": "foldaway",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.sans-serif": ["Helvetica", "Arial", "DejaVu Sans", "sans-serif"],
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#888888",
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
}


def style() -> AbstractContextManager[None]:
    """While it lasts, figures are made in the pages' style."""
    return mpl.rc_context(_STYLE)


def drawn(figure: Figure) -> str:
    """The figure as SVG, without the date and the version that matplotlib would put in."""
    buffer = io.StringIO()
    with style():
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    lines = (line.rstrip() for line in buffer.getvalue().splitlines())
    return "\n".join(lines) + "\n"
