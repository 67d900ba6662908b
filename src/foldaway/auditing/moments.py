"""Attacks on what a trial that keeps moments holds: sums of products by arm, and replicates.

In the sums they look for people who are alone, or two, in a combination of levels, and for values that outweigh all
others. With the key and the identifiers, every replicate is an equation for people's outcomes: replicate b holds
Σ_j w_j^(b) y_j, and whoever can make the weights has as many equations as replicates.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from foldaway.auditing.finding import Finding, Range, both, distinct, largest
from foldaway.plan import Plan
from foldaway.tallies.moments import (
    REPLICATES,
    ArmTally,
    Combinations,
    RawScores,
    indicators,
    level_columns,
    raw_scores,
)

ALONE, TWO, SOLE = "unique combinations of levels", "pairs of levels of two people", "dominance"
RESAMPLED = "replicates"

_REMEDY = "Leave out `moments`: `adjusted` needs no covariates in the state. Or drop some covariates."


def scores_of_arms(arms: Sequence[ArmTally], before: Sequence[ArmTally] | None = None) -> list[RawScores]:
    """The fourth-order sums of each arm that has some; or, with an earlier state, of the records in between."""
    if before is None:
        return [each for each in map(raw_scores, arms) if each is not None]
    pooled = arms[0].pooled | before[0].pooled
    now, then = ([raw_scores(arm.pool(pooled)) for arm in those] for those in (arms, before))
    return [
        each if earlier is None else RawScores(*(a - b for a, b in zip(each, earlier, strict=True)))
        for each, earlier in zip(now, then, strict=True)
        if each is not None
    ]


def attack_combinations(plan: Plan, scores: Sequence[RawScores]) -> Iterator[Finding]:
    """Every attack on the arms' fourth-order sums; a unit with several records counts as several people."""
    if not scores:
        return
    covariates = [indicators(len(plan.regressors), each.columns) for each in level_columns(plan, scores)]
    tables = [Combinations(each, covariates) for each in scores]
    people = [table.people() for table in tables]
    by_pairs = "counts, sums and sums of squares by pairs of levels"
    for o, outcome in enumerate(value.name for value in plan.values):
        alone = 0
        two: list[Range] = []
        sole: list[Range] = []
        for table, those in zip(tables, people, strict=True):
            known = [Range(values[o], values[o]) for values in those.values()]
            pairs = distinct(_of_two(table, o), known)
            alone += len(known)
            two += pairs
            sole += distinct(_sole(table, o), [*known, *pairs])
        for attack, exact, near, numbers in (
            (ALONE, alone, alone, "counts of four levels, and sums of the outcome by three"),
            (TWO, len(two), len(two), by_pairs),
            (SOLE, sum(each.exact for each in sole), len(sole), by_pairs),
        ):
            yield from Finding.of(
                near, exact=exact, attack=attack, outcome=outcome, numbers=f"{numbers}, by arm", remedy=_REMEDY
            )


def _of_two(table: Combinations, outcome: int) -> list[Range]:
    """Both values where two people have a pair of levels."""
    total, square = table.pair_sums(outcome)
    return [each for two in np.flatnonzero(table.pairs == 2) for each in both(total[two], square[two])]


def _sole(table: Combinations, outcome: int) -> list[Range]:
    """The largest value of each pair of levels, where it makes up nearly all; of shares there is nothing to find."""
    total, square = table.pair_sums(outcome)
    if np.allclose(total, square):
        return []
    several = (table.pairs > 2) & (total > 0)
    total, square = total[several], square[several]
    noise = 1e-11 * square  # rounding leaves some doubt whether Σy² is (Σy)²
    return [each for each in largest(table.pairs[several], total, square + noise, square - noise) if each.near]


def attack_replicates(plan: Plan, arms: Sequence[ArmTally]) -> Iterator[Finding]:
    """How many people's outcomes the replicates determine; a unit with several records counts as several people."""
    if plan.bootstrap is None or REPLICATES not in arms[0].tallies:
        return
    for o, outcome in enumerate(value.name for value in plan.values):
        people = sum(solvable(plan.bootstrap.replicates, arm.n, _spread(arm, o)) for arm in arms if arm.n)
        yield from Finding.of(
            people,
            attack=RESAMPLED,
            outcome=outcome,
            numbers=f"the sums of {plan.bootstrap.replicates:,} replicates, by arm",
            needs="the trial's key and all identifiers",
            remedy="End the trial: that destroys the key. Or leave out the bootstrap: `jackknife` errors need none.",
        )


def solvable(replicates: int, records: int, nonzero: float) -> int:
    """How many outcomes so many equations determine.

    They are enough if an arm has no more units than that. If most outcomes are zero, fewer do: the non-negative
    solution with the smallest sum is the right one as long as those who are not zero are fewer than about
    B/(2 ln(n/B)) (Donoho and Tanner 2010).

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
