"""The grid as a picture: a panel for each design, a row for each kind of error, a mark for each estimator."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from studies.coverage.designs import DESIGNS, Design
from studies.coverage.expectations import ANYTIME, NOMINAL, NORMAL, PERCENTILE, POPULATION, Cell, chance, expectation
from studies.coverage.runs import Grid
from studies.figures import COLOURS, drawn, style

KINDS = ("classical", "HC0", "HC1", "HC2", "CR0", "CR1", NORMAL, PERCENTILE)
_ESTIMATORS = ("difference", "regression", "interacted", "horvitz_thompson", POPULATION)
_MARKS = dict(zip(_ESTIMATORS, "osD^v", strict=True))
_COLOURS = dict(zip(_ESTIMATORS, COLOURS, strict=False))
_TICKS = (0.99, 0.98, 0.95, 0.9, 0.8, 0.5, 0.1)
_WORST, _BEST = 0.96, 0.005  # misses at the left and the right end: what lies beyond is drawn at the end


def picture(grid: Grid, trials: int) -> str:
    """As SVG. The scale is that of misses, in logarithms, so that 94 % and 99 % are as far apart as 60 % and 94 %."""
    panels = [(design, form) for design in DESIGNS for form in (("", ANYTIME) if design.looks else ("",))]
    columns = 4
    with style():
        rows = -(-len(panels) // columns)
        figure = Figure(figsize=(11, 2.15 * rows + 0.6), layout="constrained")
        axes: Sequence[Axes] = figure.subplots(rows, columns, sharex=True, sharey=True).ravel()
        for ax, (design, form) in zip(axes, panels, strict=False):
            _panel(ax, design, form, grid, trials)
        for ax in axes[len(panels) :]:
            ax.set_axis_off()
        figure.supxlabel("per cent of trials whose 95 % interval held the effect", fontsize=9)
        figure.legend(handles=_legend(), loc="outside upper center", ncols=8, frameon=False, fontsize=8.5)
        return drawn(figure)


def _panel(ax: Axes, design: Design, form: str, grid: Grid, trials: int) -> None:
    ax.set_title(f"{design.name}: {form or 'for one look'}" if design.looks else design.name)
    ax.set_xscale("log")
    ax.set_xlim(_WORST, _BEST)
    ax.set_xticks([1 - tick for tick in _TICKS], [f"{100 * tick:.0f}" for tick in _TICKS], fontsize=7.5)
    ax.minorticks_off()
    ax.set_yticks(range(len(KINDS)), KINDS, fontsize=7.5)
    ax.set_ylim(len(KINDS) - 0.4, -0.6)
    ax.tick_params(length=0, labelbottom=True)
    ax.grid(axis="x", color="#eeeeee", lw=0.6)
    ax.set_axisbelow(True)
    misses, luck = 1 - NOMINAL, chance(NOMINAL, trials)
    ax.axvspan(misses - luck, misses + luck, color="#dddddd", lw=0, zorder=0)
    ax.axvline(misses, color="#888888", lw=0.8)
    for cell, hits in grid.items():
        if (cell.design, cell.form) != (design.name, form):
            continue
        filled = expectation(design, cell).verdict != "falls short"
        colour = _COLOURS[cell.estimator]
        ax.plot(
            min(max(1 - hits.coverage, _BEST), _WORST),
            KINDS.index(cell.kind) + _offset(cell),
            _MARKS[cell.estimator],
            color=colour,
            markerfacecolor=colour if filled else "white",
            markersize=4,
            clip_on=False,
        )


def _offset(cell: Cell) -> float:
    """Estimators one below the other within the row of a kind."""
    return 0.16 * (_ESTIMATORS.index(cell.estimator) - 1.5)


def _legend() -> list[Line2D]:
    marks = [
        Line2D([], [], marker=_MARKS[name], color=_COLOURS[name], linestyle="", markersize=4, label=name)
        for name in _ESTIMATORS
    ]
    hollow = Line2D(
        [], [], marker="o", color="#555555", markerfacecolor="white", linestyle="", label="should not cover"
    )
    band = Line2D([], [], color="#dddddd", linewidth=6, label="95 %, three Monte Carlo errors")
    return [*marks, hollow, band]
