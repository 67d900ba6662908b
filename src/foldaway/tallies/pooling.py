"""Which levels too few people have, alone or in combination, for their sums to leave memory.

Fourth-order sums tell the outcome of whoever is alone in a combination of three levels (`combinations.py`). A level
that too few people have is joined to the first of its covariate: its column becomes zero. Where people would still be
alone, or two of them, in a combination, the rarest level of theirs is joined as well, until there is nobody left. What
is joined depends on covariates alone, never on an outcome.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from foldaway.numerics.block import Floats
from foldaway.plan import Plan
from foldaway.tallies.arm import ArmTally
from foldaway.tallies.combinations import Combinations, LevelColumns, RawScores, indicators, level_columns, raw_scores
from foldaway.tallies.kinds import RECORDS, UNITS
from foldaway.tallies.scores import Scores
from foldaway.tallies.vech import lift


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
    left = {each.covariate: list(each.columns) for each in level_columns(plan, scores)}
    before = {column for columns in left.values() for column in columns}
    for columns in left.values():
        _join_rare(columns, arms, least)
    while (joining := _standing_out(left, arms, scores)) is not None:
        left[joining[0]].remove(joining[1])
    return sorted(before.difference(*left.values()))


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
    """What was pooled, in a sentence for each covariate."""
    every = [LevelColumns(name, range(c, c + 1)) for c, name in enumerate(plan.regressors) if name in plan.covariates]
    for covariate, columns in [*level_columns(plan), *every]:
        if joined := pooled.intersection(columns):
            levels = plan.levels_of(covariate) or ("0", "1")
            names = [levels[0], *(levels[column - columns.start + 1] for column in sorted(joined))]
            yield (
                f"Some levels of {covariate} had too few people, alone or together with levels of other covariates, to "
                f"be kept apart in a saved state: {', '.join(names)} are one level here."
            )
