"""What to expect of a plan and a number of units, before there is any record: of an audit, and of the cohort.

Records are assumed to be one for each unit, groups equally large, and levels equally common and independent. Levels
that are less even single out more people; pooling (`tallies/moments/pooling.py`) then joins them before a state is
saved.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import combinations

import numpy as np

from foldaway.auditing.cells import LIKELY_ALONE, fewest_groups, groups_that_hide
from foldaway.auditing.moments import solvable
from foldaway.errors import many
from foldaway.keeping.cohort import GROWTH
from foldaway.plan import Plan
from foldaway.plan.groups import units_for
from foldaway.plan.vocabulary import MODES, SUMS

SHARES = (0.01, 0.02, 0.05, 0.2)
"""Of so many people the outcome is not zero, in the examples."""

# A trial that is stored fewer times has much to send again after a crash.
_OFTEN = 5


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
        within = "to the width of a bin"
        if plan.federated is not None:
            within = f"to within the times between which at least {plan.privacy.smallest_cell:,} of every arm have left"
        yield f"The histogram of {bins.column!r} would hold everybody's value {within}, without a name."


def _in_groups(plan: Plan, arms: list[float]) -> Iterator[str]:
    alone = f"{_people(sum(n * np.exp(-n / plan.groups) for n in arms))} would be the only one of a group and arm."
    if plan.federated is not None and plan.unit is not None:
        least = many(plan.privacy.smallest_cell, "unit")
        yield (
            f"At sites, nobody would be the only one of a group and arm: a site adds groups together until each has at "
            f"least {least} of an arm (`smallest_cell`). A rare outcome, such as a purchase, may still be that of one "
            "of these."
        )
        if plan.lacking and (plan.covariates or plan.received):
            yield (
                "The covariates, or the receipt, of the only unit of a group that lacks an outcome could be worked out "
                "from the group's sums."
            )
        if not plan.sites_only:
            devices = "Devices draw their groups one by one. If all of these units were devices"
            yield f"{devices}: {alone[0].lower()}{alone[1:]}"
        return
    yield alone
    sole = ", ".join(f"{_sole(arms, plan.groups, share):,.0f} at {100 * share:g} %" for share in SHARES)
    yield (
        "A rare outcome, such as a purchase, singles out those who are likely the only ones in their group and arm to "
        f"have it. How many they would be, by the share of units with the outcome: {sole}."
    )
    hiding = [(share, min(groups_that_hide(n, share) for n in arms)) for share in SHARES]
    fewest, smallest = fewest_groups(plan), min(plan.arms.values())
    fewer = [(share, groups) for share, groups in hiding if fewest <= groups < plan.groups]
    units = [(share, units_for(groups, smallest, plan.privacy.smallest_cell)) for share, groups in fewer]
    if told := [f"{number:,} at {100 * share:g} %" for share, number in units]:
        yield (
            f"To hide them, set `expected_units` to {', '.join(told)}. There are fewer groups then, and intervals are "
            "a little wider."
        )


def _sole(arms: list[float], groups: int, share: float) -> float:
    """Who is alone in a cell with an outcome, as far as an attacker would claim it: see `cells.groups_that_hide`."""
    rates = [(n, n * share / groups) for n in arms]
    return float(sum(n * share * np.exp(-rate) for n, rate in rates if rate < LIKELY_ALONE))


def _in_moments(plan: Plan, arms: list[float]) -> Iterator[str]:
    sizes = [len(levels) for levels in plan.levels.values()]
    threes = [math.prod(three) for three in combinations(sizes, 3)] or [math.prod(sizes)]
    alone = sum(n * (1 - math.prod(1 - np.exp(-(n - 1) / cells) for cells in threes)) for n in arms if n > 1)
    yield (
        f"{_people(alone)} would be alone in a combination of three levels, and more if levels are not equally common."
    )
    if plan.federated is not None:
        yield from ["Levels are not pooled: devices and sites send moments of all of them."] if plan.levels else []
    else:
        yield "Before a state is saved, levels are pooled until nobody is."
        yield "What pooling does not hide: the amount of whoever has, alone in two levels, an outcome that few have."
    if plan.bootstrap is not None:
        replicates = plan.bootstrap.replicates
        people = sum(solvable(replicates, round(n), n) for n in arms)
        sparse = sum(solvable(replicates, round(n), n * 0.02) for n in arms)
        yield (
            f"With the key and all identifiers the replicates tell {people:,} people's outcomes, and those of "
            f"{sparse:,} if 2 % have any. End the trial to destroy the key."
        )


def _people(count: float) -> str:
    return "Nobody" if count < 0.5 else f"About {count:,.0f} people" if count >= 1.5 else "About 1 person"


def pace(plan: Plan, units: int) -> Iterator[str]:
    """When a trial of so many units, each with one record, is stored and told; what a smaller cohort would cost.

    Example:
        >>> plan = Plan(name="demo", arm="g", arms={"a": 0.5, "b": 0.5}, outcomes=["y"])
        >>> next(pace(plan, 60))[:41], list(pace(plan, 60))[1][:18]
        ('It is too small for a cohort of 100 units', 'With `cohort = 12`')
    """
    cohort, cell = plan.privacy.cohort, plan.privacy.smallest_cell
    arm, share = min(plan.arms.items(), key=lambda each: each[1])
    at_sites = plan.federated is not None and plan.unit is not None
    if at_sites:
        yield "Each site's tallies would be stored as soon as they come, and count in the next effects that are shown."
    if units < cohort and not at_sites:
        yield (
            f"It is too small for a cohort of {many(cohort, 'unit')}: nothing would be stored, and there would be no "
            "effects at the end."
        )
    elif units * share < cell:
        yield (
            f"Arm {arm!r} would have about {many(round(units * share), 'unit')}, fewer than the {cell:,} that "
            "effects need (`smallest_cell`): there would be none."
        )
    elif not at_sites:
        first = max(cohort, math.ceil(cell / share))
        yield (
            f"Tallies would be stored about {_times(units // cohort)}. After a crash, what came since the last time "
            "must be sent again."
        )
        if plan.release is not None:
            yield "Effects would be shown once, when they are released."
        elif plan.federated is not None and MODES[plan.federated.mode].at_end:
            yield "Effects would be shown once, when the trial has ended."
        else:
            answers, at = 0, float(first)
            while at <= units:
                answers, at = answers + 1, at + max(cohort, GROWTH * at)
            yield f"Effects would be shown after about {many(first, 'unit')}, and {_times(answers)} in all."
    if not at_sites and (smaller := units // _OFTEN) and units < _OFTEN * cohort:
        yield (
            f"With `cohort = {smaller}` in [privacy], tallies would be stored {_OFTEN} times. That costs secrecy: two "
            f"stored states would differ by {many(smaller, 'unit')}, for whoever has them and the key."
        )


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"
