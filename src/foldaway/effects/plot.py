"""A forest plot for notebooks and papers, by matplotlib."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from textwrap import fill
from typing import TYPE_CHECKING

from foldaway.effects.effect import Effect, has_anytime, margins_of
from foldaway.effects.findings import Findings
from foldaway.effects.headline import comparisons
from foldaway.effects.plot_curves import HEIGHT, draw_curves
from foldaway.errors import instead_of, not_installed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# Readable in print, in grey, and to those who do not see red and green.
INK, BAR, MARGIN = "#17645f", "#7fb5ae", "#a3262a"

# Characters of an arm's name, and of a line beside, above and below a panel: longer ones would leave no room for the
# plot, or leave the page.
_LONGEST = 40
_BESIDE, _ABOVE, _BELOW = 22, 44, 66

# Inches of a line.
_LINE = 0.17


def forest(effects: Findings, axes: Axes | None = None, *, estimators: bool = False) -> Figure:
    """Findings with their intervals: a dot, a bar for a single look, a thin line for any number of looks.

    Below are the curves of survival outcomes. No window opens, and nothing of matplotlib's global state changes: works
    without a screen.

    Args:
        effects: What to draw; filter them first for less.
        axes: Where to draw; the effects must then be of one outcome. A new figure if left out, a panel per outcome.
        estimators: Every estimator, in place of the one that the report leads with.

    Raises:
        ValueError: There is nothing to draw, or several outcomes for one pair of axes.
    """
    known = [each for each in comparisons(effects) if each.lead.estimate is not None]
    shown = [
        (
            fill(effects.heading(outcome), _ABOVE),
            [row for each in those for row in (each.best if estimators else [each.lead])],
        )
        for outcome, those in groupby(known, key=lambda each: each.outcome)
    ]
    if not shown:
        raise ValueError("there are no effects to draw.")
    if axes is not None:
        if len(shown) > 1:
            raise ValueError("one pair of axes can show only one outcome: effects.filter(outcome=...).plot(axes).")
        figure = axes.get_figure(root=True)
        assert figure is not None  # axes are always somewhere
        _draw(axes, *shown[0], effects.confidence, estimators)
        return figure
    outcomes = {row.outcome for row in effects.rows}
    curves = [each for each in effects.curves if each.curves and each.outcome in outcomes]
    heights = [_height(title, rows, estimators) for title, rows in shown]
    figure = panels([*heights, *(HEIGHT for _ in curves)])
    forests, below = figure.axes[: len(shown)], figure.axes[len(shown) :]
    for target, (title, rows) in zip(forests, shown, strict=True):
        _draw(target, title, rows, effects.confidence, estimators)
    for target, each in zip(below, curves, strict=True):
        draw_curves(target, effects.plan, each, effects.confidence)
    return figure


def _height(title: str, rows: Sequence[Effect], estimators: bool) -> float:
    """Inches of a panel."""
    lines = max(_label(row, estimators).count("\n") for row in rows)
    return 1.2 + _LINE * title.count("\n") + (0.42 + _LINE * max(0, lines - 1)) * len(rows)


def panels(heights: Sequence[float]) -> Figure:
    """A new figure with a panel of each height, in inches, one below the other."""
    with instead_of(ImportError, ImportError(not_installed("matplotlib", "plot"))):
        from foldaway.effects.figure import ShownFigure

    figure = ShownFigure(figsize=(7.0, sum(heights)), layout="constrained")
    figure.subplots(len(heights), 1, squeeze=False, gridspec_kw={"height_ratios": heights})
    return figure


def _draw(axes: Axes, title: str, rows: Sequence[Effect], confidence: float, estimators: bool) -> None:
    axes.axvline(0, color="0.4", linewidth=0.8, linestyle=(0, (4, 3)), zorder=0)
    margins = dict.fromkeys(margin for row in rows for margin in margins_of(row))
    for margin in margins:
        axes.axvline(margin, color=MARGIN, linewidth=1.5, linestyle=":", zorder=0)
    low, high, one_sided = _reach(rows)

    def ends(*interval: float | None) -> list[float]:
        """Where to draw an interval; an end that there is not lies out of sight."""
        return [min(max(end, 2 * low - high), 2 * high - low) for end in interval if end is not None]

    for y, row in enumerate(rows):
        if row.estimate is None:
            continue
        if anytime := ends(row.anytime_ci_lower, row.anytime_ci_upper):
            reach = [[abs(end - row.estimate)] for end in anytime]
            axes.errorbar(row.estimate, y, xerr=reach, color=INK, linewidth=1, capsize=3, zorder=1)
        if once := ends(row.ci_lower, row.ci_upper):
            axes.hlines(y, min(once), max(once), color=BAR, linewidth=6, zorder=2)
        axes.plot(row.estimate, y, "o", color=INK, markersize=5, markeredgecolor="white", zorder=3)
    if one_sided:
        axes.set_xlim(low, high)
    # A dollar sign in a name is a dollar sign, and begins no formula.
    axes.set_yticks(range(len(rows)), [_label(row, estimators) for row in rows], parse_math=False)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_title(title, loc="left", fontsize="medium", fontweight="bold", parse_math=False)
    dotted = "; dotted: the margin" if margins else ""
    thin = "; thin: any number of looks" if any(map(has_anytime, rows)) else ""
    looks = f"{100 * confidence:g}\u00a0% interval{thin}{dotted}"
    below = f"effect against {_cut(rows[0].control)} ({looks})"
    axes.set_xlabel(fill(below, _BELOW), fontsize="small", parse_math=False)
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)


def _reach(rows: Sequence[Effect]) -> tuple[float, float, bool]:
    """From where to where a panel shows zero, the margins and all ends of intervals, and whether some lack one."""
    ends = [
        end
        for row in rows
        for end in (row.estimate, row.ci_lower, row.ci_upper, row.anytime_ci_lower, row.anytime_ci_upper)
        if end is not None
    ]
    shown = [0.0, *filter(math.isfinite, ends), *(margin for row in rows for margin in margins_of(row))]
    room = 0.05 * (max(shown) - min(shown)) or 1.0
    return min(shown) - room, max(shown) + room, any(map(math.isinf, ends))


def _label(row: Effect, estimators: bool) -> str:
    arm = _cut(row.arm)
    return fill(f"{arm}, {row.estimator} ({row.se_kind})" if estimators else arm, _BESIDE)


def _cut(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1].rstrip()}…"
