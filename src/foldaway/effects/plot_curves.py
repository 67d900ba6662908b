"""Survival curves for notebooks and papers, by matplotlib: steps with bands, as in the report."""

from __future__ import annotations

from textwrap import fill
from typing import TYPE_CHECKING

import numpy as np

from foldaway.effects.curves import Curves
from foldaway.plan import Plan, Survival

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HEIGHT = 3.2
"""Inches of a panel."""

# Characters of a line above a panel.
_ABOVE = 44

# Colours that can be told apart by those who do not see red and green, and dashes for print in grey.
_COLOURS = "#17645f", "#9c4a11", "#4b4e9e", "#7a6a00"
_DASHES = "-", (0, (5, 2)), (0, (1, 1.5)), (0, (5, 1.5, 1, 1.5))


def draw_curves(axes: Axes, plan: Plan, shown: Curves, confidence: float) -> None:
    """Draw the arms' curves of an outcome."""
    outcome = plan.outcome(shown.outcome)
    assert isinstance(outcome, Survival)
    times = [0.0, *shown.times] if shown.times[0] else shown.times
    for place, each in enumerate(shown.curves):
        colour, dashes = _COLOURS[place % len(_COLOURS)], _DASHES[place // len(_COLOURS) % len(_DASHES)]
        start = len(times) - len(shown.times)  # everybody is there at time zero
        survival = np.array([1.0] * start + each.survival)
        lower, upper = (
            np.array([1.0] * start + [at if end is None else end for end, at in zip(ends, each.survival, strict=True)])
            for ends in (each.lower, each.upper)
        )
        axes.fill_between(times, lower, upper, step="post", color=colour, alpha=0.15, linewidth=0)
        axes.step(times, survival, where="post", color=colour, linestyle=dashes, linewidth=1.5, label=each.arm)
    axes.set_ylim(0, 1.02)
    axes.set_xlim(0, times[-1])
    axes.yaxis.set_major_formatter(lambda share, _: f"{100 * share:.0f}\u00a0%")
    title = fill(f"Survival curves: {outcome.label or outcome.time}", _ABOVE)
    axes.set_title(title, loc="left", fontsize="medium", fontweight="bold", parse_math=False)
    below = f"{outcome.time} ({100 * confidence:g}\u00a0% interval for each time by itself)"
    axes.set_xlabel(below, fontsize="small", parse_math=False)
    axes.set_ylabel(f"without the event ({outcome.event})", fontsize="small", parse_math=False)
    for text in axes.legend(loc="best", frameon=False, fontsize="small").get_texts():
        text.set_parse_math(False)
    axes.spines[["top", "right"]].set_visible(False)
