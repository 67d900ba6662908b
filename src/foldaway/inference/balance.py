"""Covariate balance: how far the arms lie apart in what was measured before treatment.

The standardised mean difference is d = (x̄_arm − x̄_control) / √((s²_arm + s²_control)/2) (Austin 2009, "Balance
diagnostics for comparing the distribution of baseline covariates"). Means and variances come from the arms' factors:
the first row of R holds the mean times the root of the total weight, the rows below it what is left about the mean.
How much d varies by chance is the robust standard error of the difference of means, over the same spread: by unit where
the plan promises complete units, so that it allows for units of several records, and otherwise by record.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple, cast

import numpy as np

from foldaway.block import Floats
from foldaway.plan import Plan
from foldaway.tallies import RECORDS, UNITS
from foldaway.tallies.arm import ArmTally
from foldaway.tallies.scores import Scores

CUSTOMARY = 0.1
"""The difference beyond which covariates are customarily called out of balance (Austin 2009)."""

# As rare as this by chance, per covariate and arm, is more than chance: that of the sample-ratio check, 0.001.
_BEYOND_CHANCE = 3.29

# What is left of a constant column, next to its length, when its mean is taken out.
_ROUNDING = 1e-14


class Balance(NamedTuple):
    """One covariate, or one level of one, in an arm and in the control.

    Attributes:
        covariate: Its column, with the level in brackets if it is categorical.
        arm: The arm.
        mean: Its mean there; for a level, the share of records that have it.
        control_mean: Its mean in the control.
        difference: The standardised mean difference.
        chance: The standard deviation that randomisation alone gives the difference.
    """

    covariate: str
    arm: str
    mean: float
    control_mean: float
    difference: float
    chance: float

    @property
    def verdict(self) -> str:
        """``"even"``, ``"chance"`` for a difference that chance would give in so small a trial, or ``"uneven"``."""
        if not abs(self.difference) > CUSTOMARY:
            return "even"
        return "uneven" if abs(self.difference) > _BEYOND_CHANCE * self.chance else "chance"


def balance(plan: Plan, arms: Sequence[ArmTally]) -> list[Balance]:
    """The balance of every covariate in every arm against the control; none for arms with fewer than two records."""
    names = list(plan.arms)
    control = arms[0]
    return [
        Balance(
            covariate,
            names[a],
            *(means := (_mean(arms[a], column), _mean(control, column))),
            _standardised(means[0] - means[1], _variance(arms[a], column), _variance(control, column)),
            _chance(arms[a], control, column),
        )
        for covariate, column in _columns(plan)
        for a in range(1, len(arms))
        if min(control.n, arms[a].n) > 1
    ]


def _columns(plan: Plan) -> Iterator[tuple[str, Floats]]:
    """Each covariate as a combination of a row's columns; the first level is what the others leave of the intercept."""
    intercept, *columns = np.eye(len(plan.regressors))
    rest = iter(columns)
    for covariate in plan.covariates:
        if covariate not in plan.levels:
            yield covariate, next(rest)
            continue
        others = [next(rest) for _ in plan.levels[covariate][1:]]
        for level, column in zip(plan.levels[covariate], [intercept - sum(others), *others], strict=True):
            yield f"{covariate}[{level}]", column


def _mean(arm: ArmTally, column: Floats) -> float:
    R = arm.raw_factor()[:, : len(column)]
    return float(R[0] @ column / R[0, 0])


def _variance(arm: ArmTally, column: Floats) -> float:
    R = arm.raw_factor()[:, : len(column)]
    whole = R @ column
    if np.linalg.norm(whole[1:]) <= _ROUNDING * np.linalg.norm(whole):
        return 0.0
    return float(np.sum((whole[1:] / R[0, 0]) ** 2)) * arm.n / (arm.n - 1)


def _standardised(difference: float, *variances: float) -> float:
    spread = math.sqrt(sum(variances) / 2)
    if spread > 0:
        return difference / spread
    return math.copysign(math.inf, difference) if difference else 0.0


def _chance(arm: ArmTally, control: ArmTally, column: Floats) -> float:
    spread = math.sqrt((_variance(arm, column) + _variance(control, column)) / 2)
    if not spread:
        return 0.0
    return math.sqrt(_mean_variance(arm, column) + _mean_variance(control, column)) / spread


def _mean_variance(arm: ArmTally, column: Floats) -> float:
    """Σ_j (Σ_{i∈j} w (x − x̄))² / (Σ w)²: the squared standard error of a mean, by unit or by record (CR0 or HC0)."""
    k = len(column)
    by_unit = UNITS in arm.tallies and arm.tallies[UNITS].n == arm.n
    scores = cast(Scores, arm.tallies[UNITS if by_unit else RECORDS])
    # The tally is in the arm's frame, whose first column is the intercept: vech(x x') begins with the sums of x.
    centred = column - _mean(arm, column) * np.eye(k)[0]
    framed = arm.frame.F[:k, :k] @ centred
    total = float(arm.raw_factor()[0, 0]) ** 2
    return max(float(framed @ scores.vv[:k, :k] @ framed), 0.0) / total**2
