"""Attacks by numeric covariates on sums of products: covariates of few values, and values that outweigh all others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from foldaway.auditing.finding import Finding, Range, both, distinct
from foldaway.numerics.block import Floats
from foldaway.plan import Plan
from foldaway.tallies.moments import (
    Combinations,
    FewValues,
    Powers,
    RawScores,
    few_values,
    indicators,
    level_columns,
    outlies_within,
    outlying,
    standing_out,
)

VALUES, OUTLYING = "covariates of few values", "covariates that outweigh"


def attack_covariates(plan: Plan, scores: Sequence[RawScores], arms: Sequence[Powers]) -> Iterator[Finding]:
    """Both attacks; whom combinations of levels alone give away is not counted again.

    Args:
        plan: The plan.
        scores: The arms' sums, of rows as they came.
        arms: The same about any center.
    """
    levelled = level_columns(plan, scores)
    taken = {column for each in levelled for column in each.columns}
    numbers = [column for column in range(1, len(plan.regressors)) if column not in taken]
    few = [each for column in numbers if (each := few_values(column, arms)) is not None]
    many = [column for column in numbers if column not in {each.column for each in few}]
    rows = [indicators(len(plan.regressors), each.columns) for each in levelled]
    tables = [(Combinations(each, rows).people(), arm) for each, arm in zip(scores, arms, strict=True)]
    outlying_ones = sum(_outlying(arm, many, rows) for arm in arms)
    for o, outcome in enumerate(value.name for value in plan.values):
        found = [each for people, arm in tables for each in _by_values(people.values(), arm, few, rows, o)]
        yield from Finding.of(
            len(found),
            attack=VALUES,
            outcome=outcome,
            numbers="sums of powers of a covariate, and of the outcome times these, by arm",
            remedy="List the covariate's values as `levels`: rare ones are then pooled. Or leave it out.",
        )
        yield from Finding.of(
            outlying_ones,
            exact=0,
            attack=OUTLYING,
            outcome=outcome,
            numbers="sums of third and fourth powers of a covariate, and of the outcome times these, by arm",
            remedy="Give the covariate `bounds` that several people reach.",
        )


def _by_values(
    known: Iterable[Sequence[float]], arm: Powers, few: Sequence[FewValues], rows: Sequence[Floats], outcome: int
) -> list[Range]:
    """The outcomes of those who are alone, or with one other, in values and levels."""
    ranges: list[Range] = []
    for alone in standing_out(arm, few, rows, outcome + 1):
        total = alone.total[outcome]
        ranges += [Range(total, total)] if alone.square is None else both(total, alone.square[outcome])
    return distinct(ranges, [Range(each[outcome], each[outcome]) for each in known])


def _outlying(arm: Powers, columns: Sequence[int], rows: Sequence[Floats]) -> int:
    """At least so many people have a value that outweighs all others', in the arm or within levels of one covariate."""
    found = 0
    for column in columns:
        within = (sum(outlies_within(arm, column, level)) for level in rows)
        found = max(found, len(outlying(arm, column)), *within)
    return found
