"""The attack on replicates: with the key and the identifiers, every replicate is an equation for people's outcomes.

Replicate b holds Σ_j w_j^(b) y_j. Whoever can make the weights has as many equations as replicates: enough if an arm
has no more units than that. If most outcomes are zero, fewer do: the non-negative solution with the smallest sum is the
right one as long as those who are not zero are fewer than about B/(2 ln(n/B)) (Donoho and Tanner 2010).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from foldaway.auditing.finding import Finding
from foldaway.plan import Plan
from foldaway.tallies.arm import ArmTally
from foldaway.tallies.kinds import REPLICATES

NAME = "replicates"


def attack_replicates(plan: Plan, arms: tuple[ArmTally, ...]) -> Iterator[Finding]:
    """How many people's outcomes the replicates determine; a unit with several records counts as several people."""
    if plan.bootstrap is None or REPLICATES not in arms[0].tallies:
        return
    for o, outcome in enumerate(value.name for value in plan.values):
        people = sum(solvable(plan.bootstrap.replicates, arm.n, _spread(arm, o)) for arm in arms if arm.n)
        yield from Finding.of(
            people,
            attack=NAME,
            outcome=outcome,
            numbers=f"the sums of {plan.bootstrap.replicates:,} replicates, by arm",
            needs="the trial's key and all identifiers",
            remedy="Seal the trial: that destroys the key. Or leave out `bootstrap`: `jackknife` errors need none.",
        )


def solvable(replicates: int, records: int, nonzero: float) -> int:
    """How many outcomes so many equations determine.

    Example:
        >>> solvable(500, 400, 400), solvable(500, 3000, 60), solvable(500, 3000, 2900)
        (400, 60, 0)
    """
    if records <= replicates:
        return records
    return round(nonzero) if nonzero < replicates / (2 * np.log(records / replicates)) else 0


def _spread(arm: ArmTally, outcome: int) -> float:
    """(Σ|y|)²/Σy² at most as many as are not zero: so many there are if all of them have the same."""
    raw = arm.raw_factor()
    column = raw[:, arm.shape.regressors + outcome]
    square = float(column @ column)
    return float(raw[:, 0] @ column) ** 2 / square if square else float(arm.n)
