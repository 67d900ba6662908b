"""Attacks on moments: people who are alone, or two, in a combination of levels, and values that outweigh all others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from foldaway.auditing.finding import Finding, Range, distinct, largest
from foldaway.plan import Plan
from foldaway.tallies.arm import ArmTally
from foldaway.tallies.combinations import Combinations, RawScores, indicators, level_columns, raw_scores

ALONE, TWO, SOLE = "unique combinations of levels", "pairs of levels of two people", "dominance"

_REMEDY = 'Leave out `keep = "moments"`: `adjusted` needs no covariates in the state. Or drop some covariates.'


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
            pairs = distinct(_both(table, o), known)
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


def _both(table: Combinations, outcome: int) -> Iterator[Range]:
    """Both values where two people have a pair of levels: Σy and Σy² are two equations for them."""
    total, square = table.pair_sums(outcome)
    for place in np.flatnonzero(table.pairs == 2).tolist():
        apart = np.sqrt(max(square[place] / 2 - total[place] ** 2 / 4, 0.0))
        for side in (-1, 1):
            value = float(total[place] / 2 + side * apart)
            yield Range(value, value)


def _sole(table: Combinations, outcome: int) -> Iterator[Range]:
    """The largest value of each pair of levels, where it makes up nearly all; of shares there is nothing to find."""
    total, square = table.pair_sums(outcome)
    if np.allclose(total, square):
        return
    several = (table.pairs > 2) & (total > 0)
    total, square = total[several], square[several]
    noise = 1e-11 * square  # rounding leaves some doubt whether Σy² is (Σy)²
    low, high = largest(table.pairs[several], total, (square + noise, square - noise))
    for a, b in zip(low.tolist(), high.tolist(), strict=True):
        if (found := Range(min(a, b), b)).near:
            yield found
