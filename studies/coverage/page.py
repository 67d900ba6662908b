"""The page: every cell's coverage, what theory says of it, and whether the two agree."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from studies.coverage.designs import DESIGNS, EFFECT, REPLICATES
from studies.coverage.expectations import (
    ANYTIME,
    ERRORS,
    NOMINAL,
    Cell,
    Verdict,
    chance,
    expectation,
)
from studies.coverage.picture import KINDS, picture
from studies.coverage.runs import Grid, broken
from studies.coverage.tally import Hits
from studies.findings import Findings, Table, csv_text, markdown_table

MARKS: dict[Verdict, str] = {"covers": "", "at least": "≥", "may fall short": "≲", "falls short": "↓"}
_DESIGN = {design.name: design for design in DESIGNS}


def findings(grid: Grid, again: Mapping[Cell, Hits], trials: int, seed: int) -> Findings:
    """The table and what it says.

    Args:
        grid: The cells.
        again: Those outside of what theory says, simulated once more.
        trials: How many trials each cell has.
        seed: The seed.
    """
    apart = max(hits.apart for hits in grid.values())
    return Findings(
        "Coverage of the intervals",
        f"""We simulated {trials:,} trials of each design with a known effect, folded them with `fa.Trial`, and checked
        whether each 95 % interval contains the effect. The table has the estimator that covers least; the others are in
        the file. In brackets is the coverage of the same interval computed by statsmodels from all rows of the same
        trials. There is none for the bootstrap or for several looks.

        The outcome is y = 1 + {EFFECT} d + x + e with treatment d, a standard normal covariate x, and noise e. In
        designs with clusters it is y = 1 + {EFFECT} d + u + x/2 + e, where the records of a unit share a standard
        normal u, and x is u/2 plus standard normal noise. Each unit's arm is drawn with the plan's probabilities, half
        and half unless the design says otherwise; small numbers of clusters are divided evenly. The bootstrap has
        {REPLICATES} replicates with Poisson weights by unit. Where there are no clusters, each record is a unit. Errors
        by unit are withheld in trials with too few units, and coverage counts the other trials. CR1 of a difference is,
        for statsmodels too, that of each arm's mean.

        By chance, a share of {trials:,} trials is off by up to {100 * chance(NOMINAL, trials):.1f} points ({ERRORS}
        Monte Carlo standard errors). What theory predicts was written down beforehand. No mark: the cell should be at
        95 %. ≥: it should be at 95 % or more, or at least at a floor given below. ≲: it may fall short of 95 %, down to
        a floor given below. ↓: it should fall short, since the method is wrong for this design. ✗: it is not as theory
        says. Among about {len(grid)} cells, one is outside by chance now and then. So a design with such a cell is
        simulated once more from another seed, and the cell counts as broken if it is outside again.""",
        ["design", "estimator", *KINDS, "apart"],
        list(_rows(grid, again, trials)),
        _answer(grid, again, trials, apart),
        left=2,
        details=_details(grid, trials),
        summary=Table(["design", *KINDS], list(_least(grid, again, trials)), 1),
        figure="For each design, estimator and kind of error the share of intervals that hold the effect; "
        "the numbers are in the file",
        files={"svg": picture(grid, trials), "csv": _csv(grid, again, trials)},
        packages=("foldaway", "numpy", "scipy", "statsmodels", "matplotlib"),
    )


def _rows(grid: Grid, again: Mapping[Cell, Hits], trials: int) -> Iterator[list[str]]:
    lines = list(dict.fromkeys((cell.design, cell.arm, cell.estimator, cell.form) for cell in grid))
    order = list(_DESIGN)
    for design, arm, estimator, form in sorted(lines, key=lambda line: (order.index(line[0]), line[3], line[1])):
        cells = [Cell(design, arm, estimator, kind, form) for kind in KINDS]
        compared = [grid[cell].apart for cell in cells if cell in grid and grid[cell].apart]
        yield [
            _label(cells[0]),
            estimator,
            *(_cell(cell, grid[cell], again, trials) if cell in grid else "" for cell in cells),
            f"{max(compared):.0e}" if compared else "",
        ]


def _least(grid: Grid, again: Mapping[Cell, Hits], trials: int) -> Iterator[list[str]]:
    """By design and kind of interval, the estimator that covers least; one that is not as theory says comes first."""
    wrong = broken(again, trials)
    kinds: dict[str, dict[str, list[Cell]]] = {}
    for cell in grid:
        kinds.setdefault(_label(cell), {}).setdefault(cell.kind, []).append(cell)
    for label, cells in kinds.items():
        least = {
            kind: min(each, key=lambda one: (one not in wrong, grid[one].coverage)) for kind, each in cells.items()
        }
        yield [
            label,
            *(_cell(least[kind], grid[least[kind]], again, trials) if kind in least else "" for kind in KINDS),
        ]


def _label(cell: Cell) -> str:
    design = _DESIGN[cell.design]
    arm = f", {cell.arm}" if len(design.shares) > 2 else ""
    return design.name + arm + ({"": ", for one look", ANYTIME: ", any time"}[cell.form] if design.looks else "")


def _cell(cell: Cell, hits: Hits, again: Mapping[Cell, Hits], trials: int) -> str:
    verdict = expectation(_DESIGN[cell.design], cell).verdict
    kept = "" if math.isnan(hits.kept_coverage) else f" ({100 * hits.kept_coverage:.1f})"
    mark = f"✗ {MARKS[verdict]}" if cell in broken(again, trials) else MARKS[verdict]
    return f"{100 * hits.coverage:.1f}{kept} {mark}".strip()


def _answer(grid: Grid, again: Mapping[Cell, Hits], trials: int, apart: float) -> str:
    by_verdict: dict[Verdict, list[float]] = {}
    for cell, hits in grid.items():
        by_verdict.setdefault(expectation(_DESIGN[cell.design], cell).verdict, []).append(100 * hits.coverage)
    said = []
    for verdict, wording in _WORDING.items():
        shares = by_verdict.get(verdict, [])
        if shares:
            said.append(f"{len(shares)} cells {wording}: they cover between {min(shares):.1f} and {max(shares):.1f} %.")
    wrong = broken(again, trials)
    once = [cell for cell in again if cell not in wrong]
    verdicts = [" ".join(said)]
    if wrong:
        verdicts.append(f"Not as theory says, in both simulations: {_listed(wrong, grid, again)}.")
    else:
        verdicts.append("Every cell is as theory says.")
    if once:
        verdicts.append(f"Outside at first and inside when simulated once more: {_listed(once, grid, again)}.")
    verdicts.append(
        f"foldaway and statsmodels are nowhere further apart than {apart:.0e}: of standard errors relative to the "
        "error, or of estimates in standard errors."
    )
    return "\n\n".join(verdicts)


_WORDING: dict[Verdict, str] = {
    "covers": "should cover",
    "at least": "should cover at least",
    "may fall short": "may fall short",
    "falls short": "should fall short",
}


def _listed(cells: Sequence[Cell], grid: Grid, again: Mapping[Cell, Hits]) -> str:
    return "; ".join(
        f"{', '.join(part for part in cell if part)} ({100 * grid[cell].coverage:.1f} %, then "
        f"{100 * again[cell].coverage:.1f} %)"
        for cell in cells
    )


def _details(grid: Grid, trials: int) -> str:
    """The designs, and the reason for every expectation."""
    designs = markdown_table(["design", "records"], [[design.name, design.says] for design in DESIGNS], 2)
    reasons: dict[tuple[str, str], dict[str, list[float]]] = {}
    for cell in grid:
        said = expectation(_DESIGN[cell.design], cell)
        if said.verdict != "covers" or cell.design == "small":
            reasons.setdefault((said.verdict, said.reason), {}).setdefault(cell.design, []).append(said.floor)
    rows = [
        [verdict, "; ".join(designs), _floors(verdict, [*chain(*designs.values())]), reason]
        for (verdict, reason), designs in reasons.items()
    ]
    theory = markdown_table(["theory says", "in designs", "floor", "because"], rows, 4)
    return "\n\n".join(
        [
            "## The designs",
            designs,
            "## What theory says",
            _EVERYTHING_ELSE,
            theory,
        ]
    )


def _floors(verdict: str, floors: Sequence[float]) -> str:
    if verdict not in ("at least", "may fall short"):
        return ""
    return " to ".join(dict.fromkeys(f"{100 * floor:.1f} %" for floor in (min(floors), max(floors))))


_EVERYTHING_ELSE = "All other cells should cover, because everything that their interval assumes is true."


def _csv(grid: Grid, again: Mapping[Cell, Hits], trials: int) -> str:
    header = [*Cell._fields, "trials", "coverage", "statsmodels", "ratio", "apart", "theory", "floor", "as_theory_says"]
    rows: list[Sequence[object]] = []
    for cell, hits in grid.items():
        said = expectation(_DESIGN[cell.design], cell)
        kept = "" if math.isnan(hits.kept_coverage) else f"{hits.kept_coverage:.4f}"
        apart = f"{hits.apart:.0e}" if hits.apart else ""
        fine = cell not in broken(again, trials)
        numbers = [hits.trials, f"{hits.coverage:.4f}", kept, f"{hits.ratio:.3f}", apart]
        rows.append([*cell, *numbers, said.verdict, f"{said.floor:.4f}", str(fine).lower()])
    return csv_text(header, rows)
