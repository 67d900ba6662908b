"""The chance by size, or the smallest effect by size, by matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from foldaway.errors import not_installed
from foldaway.planning.comparing import Comparing
from foldaway.planning.planned import Planned, Wanted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# As in `effects.plot`.
_INK, _BAR = "#17645f", "#7fb5ae"
_POINTS, _FEW = 40, 12


def curves(pairs: Sequence[tuple[Planned, Comparing]], wanted: Wanted, power: float) -> Figure:
    """A panel for each row: the curve, and the row's own point on it.

    No window opens, and nothing of matplotlib's global state changes: works without a screen.

    Args:
        pairs: The rows, and how each is computed at other sizes.
        wanted: What was asked for.
        power: The chance that was asked for.

    Raises:
        ValueError: There is nothing to draw.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError(not_installed("matplotlib", "plot")) from None

    drawn = [pair for pair in pairs if pair[0].why is None]
    if not drawn:
        raise ValueError("there is nothing to draw.")
    figure = Figure(figsize=(7.0, 2.6 * len(drawn)), layout="constrained")
    panels = figure.subplots(len(drawn), 1, squeeze=False)[:, 0]
    for axes, (row, comparing) in zip(panels, drawn, strict=True):
        assert row.records is not None
        assert row.effect is not None
        sizes = np.geomspace(row.records / 8, row.records * 4, _FEW if wanted in ("effect", "margin") else _POINTS)
        if wanted == "effect":
            heights = [comparing.effect(size, row.margin, power) for size in sizes]
            axes.set_ylabel("smallest effect", fontsize="small")
            point = row.effect
        elif wanted == "margin":
            heights = [comparing.margin(size, row.effect, power) for size in sizes]
            axes.set_ylabel("smallest margin", fontsize="small")
            point = row.margin
        else:
            heights = [comparing.chance(size, row.effect, row.margin) for size in sizes]
            axes.set_ylabel(f"chance, effect {row.effect:.3g}", fontsize="small")
            axes.set_ylim(0, 1.02)
            assert row.power is not None
            point = row.power
        axes.plot(sizes, [np.nan if height is None else height for height in heights], color=_BAR, linewidth=3)
        axes.plot(row.records, point, "o", color=_INK, markersize=6, markeredgecolor="white", zorder=3)
        axes.axvline(row.records, color="0.4", linewidth=0.8, linestyle=(0, (4, 3)), zorder=0)
        axes.set_xscale("log")
        # A dollar sign in a name is a dollar sign, and begins no formula.
        title = f"{row.outcome}: {row.arm} against {row.control}"
        axes.set_title(title, loc="left", fontsize="medium", fontweight="bold", parse_math=False)
        axes.set_xlabel("records of the whole trial", fontsize="small")
        axes.spines[["top", "right"]].set_visible(False)
    return figure
