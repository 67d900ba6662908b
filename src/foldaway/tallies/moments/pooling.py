"""Which levels too few people have, alone or in combination, for their sums to leave memory.

Fourth-order sums tell the outcome of whoever is alone in a combination of three levels (`combinations.py`). A level
that too few people have is joined to the first of its covariate: its column becomes zero. Where people would still be
alone, or two of them, in a combination, the rarest level of theirs is joined as well, until there is nobody left. What
is joined depends on covariates alone, never on an outcome.

A numeric covariate of few values is like levels (`few_values.py`), but its values cannot be joined: where somebody
stands out by one of them, the covariate is left out, and so it is where a value outweighs all others (`outlying.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from foldaway.numerics.block import Floats
from foldaway.plan import Plan
from foldaway.tallies.moments.arm import ArmTally
from foldaway.tallies.moments.combinations import (
    Combinations,
    LevelColumns,
    RawScores,
    indicators,
    level_columns,
    raw_scores,
)
from foldaway.tallies.moments.few_values import FewValues, Powers, few_values, standing_out
from foldaway.tallies.moments.kinds import RECORDS, UNITS
from foldaway.tallies.moments.outlying import outlies_within, outlying
from foldaway.tallies.moments.scores import Scores
from foldaway.tallies.moments.vech import lift

# Stands for the name of a covariate with levels, where a numeric one is left out.
_NUMBER = ""


def rare_levels(plan: Plan, arms: Sequence[ArmTally], least: int) -> list[int]:
    """The columns to pool.

    Args:
        plan: The plan.
        arms: The arms' tallies.
        least: No level may have fewer people of an arm, unless it has none.
    """
    arms = [arm for arm in arms if arm.n]
    if not arms:
        return []
    scores = [each for each in map(raw_scores, arms) if each is not None]
    left = {each.covariate: list(each.columns) for each in level_columns(plan, scores) or _zeros_and_ones(plan, arms)}
    before = {column for columns in left.values() for column in columns}
    for columns in left.values():
        _join_rare(columns, arms, least)
    powers = [each for each in map(Powers.of, arms) if each is not None]
    numbers = [column for column in range(1, len(plan.regressors)) if column not in before]
    few = {c: found for c in numbers if (found := few_values(c, powers)) is not None}
    kept = [c for c in numbers if c in few or not any(outlying(each, c) for each in powers)]
    while True:
        joining = _standing_out(left, arms, scores) or _standing_out_in_numbers(left, kept, few, powers)
        if joining is None:
            break
        left.get(joining[0], kept).remove(joining[1])
    return sorted(before.difference(*left.values()).union(numbers).difference(kept))


def _zeros_and_ones(plan: Plan, arms: Sequence[ArmTally]) -> list[LevelColumns]:
    """Where there are no sums of fourth order: the covariates with levels, and columns whose squares sum as they do."""
    alike = np.ones(len(plan.regressors), bool)
    for arm in arms:
        raw = arm.raw_factor()[:, : len(alike)]
        total, square = raw[:, 0] @ raw, (raw**2).sum(axis=0)
        alike &= np.abs(total - square) <= 1e-9 * square
    listed = level_columns(plan)
    known = {column for each in listed for column in each.columns}
    numbers = [c for c in np.flatnonzero(alike).tolist() if c and c not in known]
    return [*listed, *(LevelColumns(plan.regressors[c], range(c, c + 1)) for c in numbers)]


def _join_rare(columns: list[int], arms: Sequence[ArmTally], least: int) -> None:
    """Leave out the columns of rare levels; as long as the first is rare itself, that of the rarest other too."""
    while columns:
        counts = np.array([_people(arm, columns) for arm in arms])
        first, *others = np.any((counts > 0) & (counts < least), axis=0).tolist()
        if not (first or any(others)):
            return
        # The first level by itself: with one of the others it may be enough.
        rare = [place for place, few in enumerate(others) if few] or [_rarest(counts[:, 1:])]
        columns[:] = [column for place, column in enumerate(columns) if place not in rare]


def _rarest(counts: Floats) -> int:
    """The level that the fewest people have, among those that somebody has."""
    return int(np.argmin(np.where(counts.sum(axis=0) > 0, counts.sum(axis=0), np.inf)))


def _standing_out(
    left: dict[str, list[int]], arms: Sequence[ArmTally], scores: Sequence[RawScores]
) -> tuple[str, int] | None:
    """The rarest of the levels of people who stand out in a combination: its covariate and column; none if nobody does.

    If that is the first level, the rarest of the others takes its place.
    """
    names = [name for name, columns in left.items() if columns]
    if not names or not scores:
        return None
    rows = [indicators(len(scores[0].ss[0]), left[name]) for name in names]
    levels: set[tuple[int, int]] = set()
    for each in scores:
        table = Combinations(each, rows)
        levels.update((c, level) for who in table.people() for c, level in enumerate(who[: len(names)]))
        levels.update(both for a, i, b, j in table.twos() for both in ((a, i), (b, j)) if both[0] < len(names))
    if not levels:
        return None
    counts = [np.sum([_people(arm, left[name]) for arm in arms], axis=0) for name in names]
    covariate, level = min(levels, key=lambda at: counts[at[0]][at[1]])
    columns = left[names[covariate]]
    return names[covariate], columns[level - 1 if level else _rarest(counts[covariate][None, 1:])]


def _standing_out_in_numbers(
    left: dict[str, list[int]], kept: Sequence[int], few: dict[int, FewValues], arms: Sequence[Powers]
) -> tuple[str, int] | None:
    """The same where numeric covariates are among what people have in common, or one outweighs others within a level.

    The rarest goes: a level is joined to its first, a numeric covariate left out.
    """
    if not arms:
        return None
    values = [few[c] for c in kept if c in few]
    names = [name for name, columns in left.items() if columns]
    rows = [indicators(arms[0].regressors, left[name]) for name in names]
    common = {place for arm in arms for alone in standing_out(arm, values, rows, 0) for place in alone.who}
    if common:
        forms = [each.forms(arms[0].regressors) for each in values] + [[[row] for row in level] for level in rows]
        part, place = min(common, key=lambda at: sum(arm.people(forms[at[0]][at[1]]) for arm in arms))
        if part < len(values) or not place:
            column = next(values[p].column for p, _ in sorted(common) if p < len(values))
            return _NUMBER, column
        return names[part - len(values)], left[names[part - len(values)]][place - 1]
    for column in kept:
        for name, level in zip(names, rows, strict=True):
            if (
                column not in few
                and (out := np.any([outlies_within(arm, column, level) for arm in arms], axis=0)).any()
            ):
                place = int(np.flatnonzero(out)[-1])
                return (name, left[name][place - 1]) if place else (_NUMBER, column)
    return None


def _people(arm: ArmTally, columns: Sequence[int]) -> Floats:
    """How many people have each level, the first one first: units where these are told apart, or else records.

    Of g_j records of unit j, or weight g_j, (Σ g_j)²/Σ g_j² is never more than there are units.
    """
    k = arm.shape.regressors
    F, R = arm.frame.F[:k, :k], arm.factor.R[:, :k]
    framed = indicators(k, columns) @ F.T
    total = framed @ (R.T @ (R @ F[:, 0]))
    total = np.where(total < 1e-9 * total.max(initial=0), 0.0, total)
    tally = arm.tallies.get(UNITS) or arm.tallies.get(RECORDS)
    if not isinstance(tally, Scores) or tally.n != arm.n:
        counts: Floats = np.round(total, 6)
        return counts
    products = lift(framed, np.broadcast_to(F[:, 0], framed.shape))
    squares = np.einsum("ij,jk,ik->i", products, tally.vv, products)
    units: Floats = np.round(np.divide(total**2, squares, out=np.zeros(len(total)), where=total > 0), 6)
    return units


def pooling_notes(plan: Plan, pooled: frozenset[int]) -> Iterator[str]:
    """What was pooled, or left out, in a sentence for each covariate."""
    every = [LevelColumns(name, range(c, c + 1)) for c, name in enumerate(plan.regressors) if name in plan.covariates]
    for covariate, columns in [*level_columns(plan), *every]:
        if joined := pooled.intersection(columns):
            if (levels := plan.levels_of(covariate)) is None:
                yield (
                    f"{covariate} is left out of a saved state, because one or two people would stand out by it, alone "
                    "or together with levels of other covariates. `bounds` keep a value from outweighing all others."
                )
                continue
            names = [levels[0], *(levels[column - columns.start + 1] for column in sorted(joined))]
            yield (
                f"Some levels of {covariate} had too few people, alone or together with levels of other covariates, to "
                f"be kept apart in a saved state: {', '.join(names)} are one level here."
            )
