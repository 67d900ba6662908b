"""The table of baseline characteristics, read from sums of its traits by arm, and as others are told it.

What says how far the arms lie apart is the standardised difference, by Austin's formulas ("Balance diagnostics for
comparing the distribution of baseline covariates between treatment groups", Statistics in Medicine 28, 2009).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from foldaway.effects.baseline import BaselineRow, BaselineTable
from foldaway.effects.door import Door
from foldaway.inference.rounding import ENOUGH_CARRIERS, coarse_error, coarseness, round_count, to_steps
from foldaway.plan import Plan
from foldaway.tallies.baseline import BaselineTallies
from foldaway.tallies.sums import Sums

# Squares that are the sums themselves, up to rounding, are of zeros and ones.
_BINARY = 1e-9

Cell = tuple[str, str, str]
"""A column, its level and an arm."""


def baseline_of(plan: Plan, held: BaselineTallies | None, door: Door) -> BaselineTable:
    """The table from what is held for it; for others rounded, and withheld where it would be of few."""
    if held is None:
        return BaselineTable()
    by_trait = (held.named().pooled() if door.others else held).by_trait()
    traits = [
        list(_arms(plan, sums, column, level, by_value=not door.others)) for (column, level), sums in by_trait.items()
    ]
    hidden = _hidden(plan, [row for trait in traits for row, _ in trait]) if door.others else frozenset[Cell]()
    rows = []
    for trait in traits:
        arms = [_told(plan, row, carriers, hidden) if door.others else row for row, carriers in trait]
        rows += [msgspec.structs.replace(row, std_difference=_apart(row, arms[0])) for row in arms]
    return BaselineTable(rows)


def _hidden(plan: Plan, rows: Sequence[BaselineRow]) -> frozenset[Cell]:
    """The levels, by arm, of which others are told nothing.

    Levels of one column add up to everybody, so that one alone would follow from the others: further ones are hidden,
    the rarest first, until those that are hidden are of enough people together.
    """
    least, found = plan.privacy.smallest_cell, set[Cell]()
    columns: dict[tuple[str, str], list[BaselineRow]] = {}
    for row in rows:
        if row.count is not None:
            columns.setdefault((row.column, row.arm), []).append(row)
    for levels in columns.values():
        rarest = sorted(levels, key=lambda row: row.count or 0)
        few = [row for row in rarest if min(row.count or 0, (row.n or 0) - (row.count or 0)) < least]
        others = [row for row in rarest if row not in few]
        while few and others and (len(few) == 1 or sum(row.count or 0 for row in few) < least):
            few.append(others.pop(0))
        found |= {(row.column, row.level, row.arm) for row in few}
    return frozenset(found)


def _arms(
    plan: Plan, sums: Sums, column: str, level: str | None, *, by_value: bool
) -> Iterator[tuple[BaselineRow, float]]:
    """The arms' rows, exactly, each with how many people carry the trait.

    Whether a numeric column has only zeros and ones is looked at for the owner alone: to others it would tell whether
    anybody has another value.
    """
    n, total = sums.counts(0)[:, 0], sums.totals(0)[:, 0]
    spread, everyone = sums.square[:, 0], sums.records[:, 0]
    about_zero = spread + np.divide(total**2, n, out=np.zeros(len(n)), where=n > 0)
    binary = level is not None or (by_value and bool(np.all(np.abs(about_zero - total) <= _BINARY * np.maximum(n, 1))))
    carriers = np.divide(sums.absolute[:, 0] ** 2, about_zero, out=np.zeros(len(n)), where=about_zero > 0)
    for arm, name in enumerate(plan.arms):
        having = int(n[arm])
        row = BaselineRow(column=column, level=level or "", arm=name, n=having, missing=int(everyone[arm]) - having)
        if having and binary:
            count = round(total[arm])
            row = msgspec.structs.replace(row, count=count, share=count / having)
        if having and level is None:
            deviation = math.sqrt(spread[arm] / (having - 1)) if having > 1 else None
            row = msgspec.structs.replace(row, mean=float(total[arm] / having), std_dev=deviation)
        yield row, float(carriers[arm])


def _told(plan: Plan, row: BaselineRow, carriers: float, hidden: frozenset[Cell]) -> BaselineRow:
    """The row as others are told."""
    assert row.n is not None
    assert row.missing is not None
    least = plan.privacy.smallest_cell
    missing = None if 0 < row.missing < least else round_count(row.missing)
    bare = BaselineRow(column=row.column, level=row.level, arm=row.arm, missing=missing)
    if row.n < least or (row.column, row.level, row.arm) in hidden:
        why = f"fewer than {least} of the arm have this, or fewer do not, or it would tell how many have another level."
        return msgspec.structs.replace(bare, why=why)
    n = round_count(row.n)
    bare = msgspec.structs.replace(bare, n=n)
    if row.count is not None:
        count = min(round_count(row.count), n)
        share = count / n
        bare = msgspec.structs.replace(bare, count=count, share=share)
    elif row.mean is not None and row.std_dev is not None:
        coarse = coarseness(np.array(carriers if carriers else ENOUGH_CARRIERS))
        error = float(coarse_error(np.array(row.std_dev / math.sqrt(row.n)), coarse))
        mean = float(to_steps(row.mean, error * float(coarse) / 4))
        known = math.isfinite(mean)
        deviation = float(f"{error * math.sqrt(n):.1e}") if known else None
        bare = msgspec.structs.replace(bare, mean=mean if known else None, std_dev=deviation)
    return bare


def _apart(row: BaselineRow, control: BaselineRow) -> float | None:
    """The standardised difference; None for the control itself, or where nothing varies."""
    if row.arm == control.arm:
        return None
    level, spread = (_level(each) for each in (row, control)), (_variance(each) for each in (row, control))
    (one, two), (own, other) = level, spread
    if one is None or two is None or own is None or other is None or own + other <= 0:
        return None
    return (one - two) / math.sqrt((own + other) / 2)


def _level(row: BaselineRow) -> float | None:
    return row.share if row.share is not None else row.mean


def _variance(row: BaselineRow) -> float | None:
    if row.share is not None:
        return row.share * (1 - row.share)
    return None if row.std_dev is None else row.std_dev**2
