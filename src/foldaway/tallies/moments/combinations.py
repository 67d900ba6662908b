"""Combinations of levels: what fourth-order sums say of the people who have them.

The tally of scores holds Σ x_a x_b x_c x_d and Σ x_a x_b x_c y. Where x_a, x_b and x_c are levels of three covariates,
the first, with the intercept for x_d, counts the people who have all three, and the second is the sum of their
outcomes: of one person it is the outcome. Of pairs of levels there is Σ x_a x_b y² too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from foldaway.numerics.block import Floats
from foldaway.plan import Plan
from foldaway.tallies.moments.arm import ArmTally
from foldaway.tallies.moments.frame import Frame
from foldaway.tallies.moments.kinds import RECORDS, UNITS
from foldaway.tallies.moments.scores import Scores, split
from foldaway.tallies.moments.vech import lift

Who = tuple[int, ...]
"""Somebody's level of each covariate, by its place."""

# How far from a whole number a count may be for rounding.
_WHOLE = 1e-3


class RawScores(NamedTuple):
    """An arm's fourth-order sums, of rows as they came.

    Attributes:
        vv: Σ vech(x x') vech(x x')'.
        vs: Σ vech(x x') x' y, by outcome.
        ss: Σ x x' y², by outcome.
    """

    vv: Floats
    vs: Floats
    ss: Floats


def raw_scores(arm: ArmTally, center: Floats | None = None) -> RawScores | None:
    """The arm's sums of fourth order, if it keeps them; of regressors about this center, where one is given."""
    tally = arm.tallies.get(RECORDS) or arm.tallies.get(UNITS)
    if not isinstance(tally, Scores) or not tally.n:
        return None
    rows = np.eye(arm.shape.columns, order="F")
    if center is not None:
        rows[0, 1 : len(center)] = center[1:]
    raw = Frame(rows, arm.frame.n)
    return RawScores(*split(tally.rebase(arm.frame.change_to(raw)).sums, arm.shape))


class LevelColumns(NamedTuple):
    """A covariate with levels: the columns of all but the first of them."""

    covariate: str
    columns: range


def level_columns(plan: Plan, scores: Sequence[RawScores] = ()) -> list[LevelColumns]:
    """The categorical covariates. A numeric column of zeros and ones is one too, if the scores show it."""
    found, column = [], 1
    for covariate in (*plan.covariates, *plan.fixed_effects):
        levels = plan.levels_of(covariate)
        width = 1 if levels is None else len(levels) - 1
        if levels is not None or (scores and all(_is_indicator(each, column) for each in scores)):
            found.append(LevelColumns(covariate, range(column, column + width)))
        column += width
    return found


def _is_indicator(scores: RawScores, column: int) -> bool:
    """Whether a column has no other values than 0 and 1: Σx²(1 − x)² is 0."""
    x, one = np.eye(len(scores.ss[0]))[[column, 0]]
    vanishes = lift(x, one - x)
    return bool(abs(vanishes @ scores.vv @ vanishes) < _WHOLE)


def indicators(regressors: int, columns: Sequence[int]) -> Floats:
    """What makes the indicators of a covariate's levels from x = [1, covariates]: the first is what others leave."""
    rows = np.eye(regressors)[list(columns)]
    return np.vstack([np.eye(regressors)[0] - rows.sum(axis=0), rows])


class Combinations:
    """The counts of all combinations of two, three and four levels in one arm, and the sums of outcomes by three.

    Args:
        scores: The arm's sums.
        covariates: The indicators of each covariate's levels.
    """

    def __init__(self, scores: RawScores, covariates: Sequence[Floats]) -> None:
        everyone = np.eye(len(scores.ss[0]))[:1]
        # With fewer than three covariates, a combination of three is one of fewer.
        self._covariates = [*covariates, *[everyone] * (3 - len(covariates))]
        self._scores = scores
        self._sizes = [len(rows) for rows in self._covariates]
        self._starts = np.cumsum([0, *self._sizes])
        self._of = np.repeat(np.arange(len(self._sizes)), self._sizes)
        self._level = np.vstack(self._covariates)
        i, j = np.triu_indices(len(self._level), 1)
        apart = self._of[i] != self._of[j]
        self._first, self._second = i[apart], j[apart]
        self._pair = lift(self._level[self._first], self._level[self._second])
        self._by_pair = self._pair @ scores.vv
        self.pairs = _whole(self._by_pair[:, 0])
        self._threes = _whole(self._by_pair @ lift(self._level, everyone).T)  # pairs by levels
        self._at = np.zeros((len(self._level), len(self._level)), dtype=np.intp)
        self._at[self._first, self._second] = np.arange(len(self._first))

    def _fours(self, pair: int, level: int) -> Floats:
        """How many people have a pair of levels, a third one, and each level there is."""
        return _whole(self._by_pair[pair] @ lift(self._level, self._level[level]).T)

    def pair_sums(self, outcome: int) -> tuple[Floats, Floats]:
        """Σ y and Σ y² of everybody who has a pair of levels."""
        one, two = self._level[self._first], self._level[self._second]
        square = np.einsum("pi,ij,pj->p", one, self._scores.ss[outcome], two)
        return self._pair @ self._scores.vs[outcome][:, 0], square

    def twos(self) -> set[Who]:
        """The pairs of levels that two people have, as two covariates and their levels: Σy and Σy² tell both values."""
        first, second = self._first[self.pairs == 2], self._second[self.pairs == 2]
        return {
            (int(self._of[a]), int(a - self._starts[self._of[a]]), int(self._of[b]), int(b - self._starts[self._of[b]]))
            for a, b in zip(first, second, strict=True)
        }

    def people(self) -> dict[Who, list[float]]:
        """Everybody whose outcomes can be told, with these: those alone in three levels, and others by subtraction."""
        totals = np.array([self._pair @ vs @ self._level.T for vs in self._scores.vs])
        third = self._of[None] > self._of[self._second][:, None]
        found: dict[Who, list[float]] = {}
        for pair, level in np.argwhere((self._threes == 1) & third).tolist():
            levels = self._fours(pair, level)
            who = tuple(int(levels[self._of == c].argmax()) for c in range(len(self._sizes)))
            found.setdefault(who, totals[:, pair, level].tolist())
        if len(self._sizes) == 4:
            self._subtract(found, totals)
        return found

    def _subtract(self, found: dict[Who, list[float]], totals: Floats) -> None:
        """Of four covariates every cell's count is known, and sums over three levels are sums of a few cells' totals.

        Where all of a sum but one cell is known, so is that cell: until nothing new comes of it.
        """
        starts, sizes = self._starts, self._sizes
        counts, sums = np.zeros(sizes), []
        for a, b, c in np.ndindex(*sizes[:3]):
            counts[a, b, c] = self._fours(self._at[a, starts[1] + b], starts[2] + c)[starts[3] :]
        for summed in range(4):
            first, second, third = (slice(starts[c], starts[c + 1]) for c in range(4) if c != summed)
            sums.append(totals[:, self._at[first, second], third])
        unknown = counts > 0
        known = -1
        while known != (known := int(unknown.sum())):
            for summed in range(4):
                for place in np.argwhere(unknown.sum(axis=summed) == 1).tolist():
                    i, j, k = place
                    at = int(np.moveaxis(unknown, summed, 0)[:, i, j, k].argmax())
                    cell = (*place[:summed], at, *place[summed:])
                    total = sums[summed][:, i, j, k].copy()
                    unknown[cell] = False
                    for other in range(4):
                        i, j, k = cell[:other] + cell[other + 1 :]
                        sums[other][:, i, j, k] -= total
                    if counts[cell] == 1:
                        found.setdefault(cell, total.tolist())


def _whole(counts: Floats) -> Floats:
    """Counts without rounding; -1 where they are none, as with observation weights."""
    rounded = np.round(counts)
    return np.where(np.abs(counts - rounded) < _WHOLE, rounded, -1.0)
