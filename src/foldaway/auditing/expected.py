"""What an audit will find, from a plan and the number of units that are expected: before there is any record.

Records are assumed to be one for each unit, groups equally large, and levels equally common and independent. Levels
that are less even single out more people; pooling (`tallies/pooling.py`) then joins them before a state is saved.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from math import prod

import numpy as np

from foldaway.auditing.cells import FEWEST_GROUPS, LIKELY_ALONE, groups_that_hide
from foldaway.auditing.replicates import solvable
from foldaway.plan import Plan
from foldaway.plan.vocabulary import SUMS

SHARES = (0.01, 0.02, 0.05, 0.2)
"""Of so many people the outcome is not zero, in the examples."""


def expected(plan: Plan, units: int) -> Iterator[str]:
    """Sentences about who could be solved for from a state of so many units, by whoever has it in the clear."""
    arms = [units * share for share in plan.arms.values()]
    if plan.keeps != SUMS:
        yield from _in_moments(plan, arms)
    elif not plan.grouped:
        yield "There are no groups, only sums by arm: nobody is expected to stand out, unless one value outweighs all."
    else:
        yield from _in_groups(plan, arms)
    for bins in plan.bins:
        yield f"The histogram of {bins.column!r} would hold everybody's value to the width of a bin, without a name."


def _in_groups(plan: Plan, arms: list[float]) -> Iterator[str]:
    alone = sum(n * np.exp(-n / plan.groups) for n in arms)
    yield f"{_people(alone)} would be the only one of a group and arm."
    sole = ", ".join(f"{_sole(arms, plan.groups, share):,.0f} at {100 * share:g} %" for share in SHARES)
    yield (
        "A rare outcome, such as a purchase, singles out those who are likely the only ones in their group and arm to "
        f"have it. How many they would be, by the share of units with the outcome: {sole}."
    )
    hiding = [(share, min(groups_that_hide(n, share) for n in arms)) for share in SHARES]
    if told := [f"{groups} at {100 * share:g} %" for share, groups in hiding if FEWEST_GROUPS <= groups < plan.groups]:
        yield f"To hide them, set `groups` to {', '.join(told)}. Fewer groups make intervals a little wider."


def _sole(arms: list[float], groups: int, share: float) -> float:
    """Who is alone in a cell with an outcome, as far as an attacker would claim it: see `cells.groups_that_hide`."""
    rates = [(n, n * share / groups) for n in arms]
    return float(sum(n * share * np.exp(-rate) for n, rate in rates if rate < LIKELY_ALONE))


def _in_moments(plan: Plan, arms: list[float]) -> Iterator[str]:
    sizes = [len(levels) for levels in plan.levels.values()]
    threes = [prod(three) for three in combinations(sizes, 3)] or [prod(sizes)]
    alone = sum(n * (1 - prod(1 - np.exp(-(n - 1) / cells) for cells in threes)) for n in arms if n > 1)
    yield (
        f"{_people(alone)} would be alone in a combination of three levels, and more if levels are not equally common. "
        "Before a state is saved, levels are pooled until nobody is."
    )
    yield "What pooling does not hide: the amount of whoever has, alone in two levels, an outcome that few have."
    if plan.bootstrap is not None:
        replicates = plan.bootstrap.replicates
        people = sum(solvable(replicates, round(n), n) for n in arms)
        sparse = sum(solvable(replicates, round(n), n * 0.02) for n in arms)
        yield (
            f"With the key and all identifiers the replicates tell {people:,} people's outcomes, and those of "
            f"{sparse:,} if 2 % have any. Seal the trial to destroy the key."
        )


def _people(count: float) -> str:
    return "Nobody" if count < 0.5 else f"About {count:,.0f} people" if count >= 1.5 else "About 1 person"
