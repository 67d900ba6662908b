"""Attacks on sums by arm and group.

They look for cells of one record, arms of two, one value that outweighs all others, and outcomes that most people do
not have. Whoever holds the sums does not know who is in which group: these attacks find
amounts. To put a name to one takes the trial's key and the identifiers, or other knowledge of that person.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from foldaway.auditing.finding import Finding, Range, both, largest
from foldaway.numerics.block import Floats
from foldaway.plan import Plan
from foldaway.plan.groups import groups_for, units_for
from foldaway.tallies.sums import Sums

ALONE, PAIR, LARGEST, SPARSE = "cells of one record", "arms of two records", "dominance", "sparse outcomes"

# An attacker claims a value if it is more likely than not to be right.
_CLAIM = 0.5

LIKELY_ALONE = 1.2564
"""Of so many in a cell who have an outcome, each is the only one with chance λ/(e^λ − 1) = 1/2."""

_ROUNDING = 1e-12

# Sums that came from moments are zero up to rounding.
_ZERO = 1e-9


class ArmCells(NamedTuple):
    """One arm and outcome: the number of records and Σv by group, and of the arm Σv² and whether no value is negative.

    Without second-order sums, as of devices, `square` is infinite.
    """

    records: Floats
    total: Floats
    square: float
    positive: bool

    def less(self, before: ArmCells) -> ArmCells:
        """What was added since."""
        total = self.total - before.total
        noise = _ZERO * np.maximum(np.abs(self.total), np.abs(before.total))
        total = np.where(np.abs(total) <= noise, 0.0, total)
        positive = self.positive and before.positive
        return ArmCells(self.records - before.records, total, self.square - before.square, positive)


class CellsSolved(NamedTuple):
    """What each attack on the cells of an arm finds."""

    alone: list[Range]
    pair: list[Range]
    largest: list[Range]
    sparse: float
    claims: int


def attack_cells(plan: Plan, outcome: str, arms: Sequence[ArmCells]) -> Iterator[Finding]:
    """Every attack on one outcome's sums."""
    found = [solve(arm) for arm in arms]
    cells = "the number of records and the sum of the outcome, by arm and group"
    squares = "sums of squares by arm"
    remedy = _remedy(plan, arms)
    for attack, ranges, numbers in (
        (ALONE, [each for arm in found for each in arm.alone], cells),
        (PAIR, [each for arm in found for each in arm.pair], f"counts, sums and {squares}"),
        (LARGEST, [each for arm in found for each in arm.largest], f"{cells}; {squares}"),
    ):
        exact = sum(each.exact for each in ranges)
        yield from Finding.of(len(ranges), exact=exact, attack=attack, outcome=outcome, numbers=numbers, remedy=remedy)
    expected, claims = round(sum(each.sparse for each in found)), sum(each.claims for each in found)
    numbers = f"{cells}; the share of cells whose sum is zero"
    yield from Finding.of(expected, claims=claims, attack=SPARSE, outcome=outcome, numbers=numbers, remedy=remedy)


def cells_of_arms(sums: Sums, column: int, before: Sums | None = None) -> list[ArmCells]:
    """The cells of each arm; or, with an earlier state of the same trial, those of the records in between."""
    arms = [_arm(sums, arm, column) for arm in range(sums.shape.arms)]
    if before is None:
        return arms
    return [now.less(then) for now, then in zip(arms, cells_of_arms(before, column), strict=True)]


def _arm(sums: Sums, arm: int, column: int) -> ArmCells:
    count, weight = sums.counts(column)[arm], sums.weights(column)[arm]
    total = sums.totals(column)[arm]
    square, mass = np.inf, sums.mass[arm, column]
    if mass > 0 and sums.weight is None:
        first = sums.first[arm, column] + mass * sums.level[column]
        square = float(sums.square[arm, column] + first**2 / mass)
    if sums.weight is not None:  # of one record the value; of several nothing that the attacks below could use
        total = np.where(count == 1, total / np.where(weight > 0, weight, 1), total)
    positive = sums.weight is None and bool(np.isclose(sums.absolute[arm, column], total.sum(), rtol=1e-9, atol=0))
    total = np.where(np.abs(total) <= _ZERO * np.abs(total).max(initial=0), 0.0, total)
    return ArmCells(count, total, square, positive)


def solve(arm: ArmCells) -> CellsSolved:
    """Carry the attacks out on one arm.

    Example:
        >>> arm = ArmCells(np.array([1.0, 4.0, 5.0]), np.array([3.0, 0.0, 7.0]), square=58.0, positive=True)
        >>> found = solve(arm)  # 3, and 7 of one person: 3² + 7² = 58
        >>> found.alone, found.largest
        ([Range(low=3.0, high=3.0)], [Range(low=7.0, high=7.0)])
    """
    count, total = arm.records, arm.total
    single = count == 1
    alone = [Range(v, v) for v in total[single].tolist()]
    others, rest = int(count[~single].sum()), float(total[~single].sum())
    square = arm.square - float((total[single] ** 2).sum())
    if others == 2 and np.isfinite(square):
        return CellsSolved(alone, both(rest, square), [], 0.0, 0)
    several = (count > 1) & (total > 0) if arm.positive and np.isfinite(square) else np.zeros(len(count), bool)
    found = _dominated(count[several], total[several], square, float((total[~single & ~several] ** 2).sum()))
    hidden = np.flatnonzero(several)[[not each.near for each in found]] if found else np.flatnonzero(several)
    if not arm.positive:
        hidden = np.flatnonzero((count > 1) & (total != 0))
    expected, claims = _sparse(count, total, hidden)
    return CellsSolved(alone, [], [each for each in found if each.near], expected, claims)


def _dominated(count: Floats, total: Floats, square: float, elsewhere: float) -> list[Range]:
    """The largest value of each cell: what Σv² of the arm leaves for the cell when others have their most and least."""
    squares, least = total**2, total**2 / count
    noise = _ROUNDING * square
    low = np.maximum(least, square - elsewhere - (squares.sum() - squares) - noise)
    high = np.minimum(squares, square - (least.sum() - least) + noise)
    return largest(count, total, low, high)


def _sparse(count: Floats, total: Floats, hidden: NDArray[np.intp]) -> tuple[float, int]:
    """Cells in which, by the share of cells with nothing in them, more likely than not a single person has something.

    If a record has the outcome with chance q, the chance of exactly one follows for each cell that has some.

    Returns:
        How many such claims are expected to be right, and how many there are.
    """
    q = _chance(count, total)
    if q == 1 or not len(hidden):
        return 0.0, 0
    n = count[hidden]
    sole = n * q * (1 - q) ** (n - 1) / -np.expm1(n * np.log1p(-q))
    claimed = sole[sole > _CLAIM]
    return float(claimed.sum()), len(claimed)


def _chance(count: Floats, total: Floats) -> float:
    """The share q of records that have the outcome, as far as the cells tell; 1 if they do not.

    A cell of n has none with chance (1 − q)ⁿ, so Σ (1 − q)ⁿ is the number of empty cells: solved for q by bisection.
    """
    cells, empty = count[count > 0], int(np.sum((count > 0) & (total == 0)))
    low, high = 0.0, 1.0
    for _ in range(60 if 0 < empty < len(cells) else 0):
        middle = (low + high) / 2
        low, high = (middle, high) if float(((1 - middle) ** cells).sum()) > empty else (low, middle)
    return high


def _remedy(plan: Plan, arms: Sequence[ArmCells]) -> str:
    groups = len(arms[0].records)
    noise = "Publish a release with noise, and destroy the state."
    if groups == 1:
        return f"Collect more records. {noise}"
    sizes = ((float(arm.records.sum()), _chance(arm.records, arm.total)) for arm in arms if arm.records.sum())
    fewer = min((groups_that_hide(*size) for size in sizes), default=0)
    hides = f"Set {fewer_groups(plan, fewer)}. " if fewest_groups(plan) <= fewer < groups else ""
    return f'{hides}If no unit has more than one record, set `records_per_unit = "one"`: there are no groups then.'


def fewest_groups(plan: Plan) -> int:
    """The fewest groups that the plan can have, whatever number of units it expects."""
    return groups_for(0, plan.privacy.smallest_cell)


def fewer_groups(plan: Plan, groups: int) -> str:
    """The setting with which a plan has so many groups."""
    units = units_for(groups, min(plan.arms.values()), plan.privacy.smallest_cell)
    return f"`expected_units = {units}` (for {groups} groups)"


def groups_that_hide(records: float, chance: float = 1.0) -> int:
    """The largest power of two of groups in whose cells nobody stands out; 0 if there is none.

    With n records in a cell on average, some cell of G has a single record unless G n e⁻ⁿ is far below 1. With λ of
    them who have the outcome, whoever has it is the only one with chance λ/(e^λ − 1): under a half above λ = 1.26.

    Example:
        >>> groups_that_hide(2500, 0.02), groups_that_hide(2500)
        (32, 256)
    """
    for groups in (1 << power for power in range(12, -1, -1)):
        n = records / groups
        if records * np.exp(-n) < _CLAIM and (chance == 1 or n * chance > LIKELY_ALONE):
            return groups
    return 0
