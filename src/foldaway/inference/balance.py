"""Covariate balance: how far the arms lie apart in what was measured before treatment.

The standardised mean difference is d = (x̄_arm − x̄_control) / √((s²_arm + s²_control)/2) (Austin 2009, "Balance
diagnostics for comparing the distribution of baseline covariates"). Means and variances come from the arms' factors:
the first row of R holds the mean times the root of the total weight, the rows below it what is left about the mean.
How much d varies by chance is the robust standard error of the difference of means, over the same spread. It allows for
units of several records where units are counted, or a bootstrap by unit is kept; otherwise it is by record.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, cast

import numpy as np

from foldaway.inference.adjusting import fit_starts
from foldaway.inference.bootstrap import replicates_of, sum_variance
from foldaway.inference.intervals import critical
from foldaway.inference.jackknife import Cells, cells_of, jackknife
from foldaway.inference.levels import difference_of, over, withheld
from foldaway.inference.rounding import STEPS, to_steps, two_digits
from foldaway.inference.sample_ratio import SUSPICIOUS
from foldaway.inference.welch import Spread, spread_of, welch
from foldaway.numerics.block import Floats
from foldaway.plan import Plan
from foldaway.plan.outcomes.value import Value
from foldaway.tallies import Grouped
from foldaway.tallies.moments.arm import ArmTally
from foldaway.tallies.moments.kinds import RECORDS, UNITS
from foldaway.tallies.moments.scores import Scores

CUSTOMARY = 0.1
"""The difference beyond which covariates are customarily called out of balance (Austin 2009)."""

# As rare as this by chance, per covariate and arm, is more than chance.
_BEYOND_CHANCE = SUSPICIOUS

# What is left of a constant column, next to its length, when its mean is taken out.
_ROUNDING = 1e-14


Verdict = Literal["even", "small", "chance", "uneven", "open"]


class Balance(NamedTuple):
    """One covariate, or one level of one, in an arm and in the control.

    Attributes:
        covariate: Its column, with the level in brackets if it is categorical.
        arm: The arm.
        mean: Its mean there; for a level, the share of records that have it.
        control_mean: Its mean in the control.
        difference: The standardised mean difference.
        chance: The standard deviation that randomisation alone gives the difference.
        df: The degrees of freedom with which that is known.
        by_record: Whether it is too small if units have several records, since these could not be told apart, or if
            weights differ much and only their sum is known.
        predicted: Whether it is what the covariates predict of an outcome, and none of them by itself.
    """

    covariate: str
    arm: str
    mean: float
    control_mean: float
    difference: float
    chance: float
    df: float = math.inf
    by_record: bool = False
    predicted: bool = False

    def rounded(self) -> Balance:
        """As it is told to others: the difference to a quarter of what chance gives it, the means to match."""
        scale = abs(self.mean - self.control_mean) / abs(self.difference) if self.difference else math.nan
        chance = float(two_digits(self.chance))
        means = [float(to_steps(mean, scale * chance / STEPS)) for mean in (self.mean, self.control_mean)]
        difference = float(to_steps(self.difference, chance / STEPS))
        df = float(two_digits(self.df))
        return self._replace(mean=means[0], control_mean=means[1], difference=difference, chance=chance, df=df)

    @property
    def verdict(self) -> Verdict:
        """What the difference comes to.

        ``"even"``; ``"small"`` if even, but more than chance gives; ``"chance"`` if not even, but what chance gives in
        so small a trial; ``"uneven"`` if neither; ``"open"`` if not even, and what chance gives cannot be told.
        """
        large = abs(self.difference) > CUSTOMARY
        beyond = abs(self.difference) > critical(1 - _BEYOND_CHANCE, self.df) * self.chance
        if beyond and self.by_record:
            return "open" if large else "even"
        if large:
            return "uneven" if beyond else "chance"
        return "small" if beyond else "even"


def balance(plan: Plan, arms: Sequence[ArmTally]) -> list[Balance]:
    """The balance of every covariate in every arm against the control; none for arms with fewer than two records."""
    control = arms[0]
    return [
        _balance(covariate, name, _seen(plan, arm, column), _seen(plan, control, column))
        for covariate, column in _columns(plan)
        for name, arm in list(zip(plan.arms, arms, strict=True))[1:]
        if min(control.n, arm.n) > 1
    ]


def prediction_balance(plan: Plan, tallies: Grouped) -> list[Balance]:
    """The balance of what the covariates predict of each outcome, y − ỹ: all of them that matters for the effect.

    None if outcomes are not adjusted, or where an arm's error cannot be told.
    """
    sums = tallies.plain() if (cases := tallies.cases) is None else cases.lean(fit_starts(cases).predictor)
    if not sums.shape.adjusted:
        return []
    balances = []
    for outcome, value in enumerate(plan.values):
        spread = spread_of(sums, outcome)
        apart = np.array([1.0, -1.0])
        products = np.einsum("i,...ij,j->...", apart, spread.products, apart)
        predicted = Spread(
            spread.n, spread.weight, ((spread.level + spread.mean) @ apart)[:, None], products[:, None, None]
        )
        levels = jackknife(_predicted, cells_of(sums, outcome)) if plan.grouped else welch(predicted)
        variances = np.maximum(products, 0) / np.maximum(spread.n - 1, 1)
        for arm in range(1, len(plan.arms)):
            if withheld(levels, (arm, 0)):
                continue
            scale = math.sqrt((variances[arm] + variances[0]) / 2)
            difference, variance, df = (float(x) for x in difference_of(levels, arm))
            name, (mean, control_mean) = f"prediction of {_named(plan, value)}", levels.value[[arm, 0]].tolist()
            away, chance = _standardised(difference, scale), math.sqrt(variance) / scale if scale else 0.0
            found = Balance(name, list(plan.arms)[arm], mean, control_mean, away, chance, df, predicted=True)
            balances.append(found)
    return balances


def _named(plan: Plan, value: Value) -> str:
    """The outcome that a value is, or the value where several outcomes are computed from it, or one from several."""
    readers = plan.read_from(value)
    return readers[0].name if len(readers) == 1 and len(readers[0].values) == 1 else value.name


def _predicted(cells: Cells) -> Floats:
    """The arms' means of the prediction y − ỹ."""
    assert cells.adjusted is not None
    return cells.level - cells.adjusted_level + over(cells.value - cells.adjusted, cells.weight)


def _balance(covariate: str, name: str, ours: _Seen, theirs: _Seen) -> Balance:
    spread = math.sqrt((ours.variance + theirs.variance) / 2)
    difference = _standardised(ours.mean - theirs.mean, spread)
    if not spread:
        return Balance(covariate, name, ours.mean, theirs.mean, difference, 0.0)
    chance, df = math.sqrt(ours.squared_error + theirs.squared_error) / spread, min(ours.df, theirs.df)
    by_record = ours.by_record or theirs.by_record
    return Balance(covariate, name, ours.mean, theirs.mean, difference, chance, df, by_record)


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


def _standardised(difference: float, spread: float) -> float:
    if spread > 0:
        return difference / spread
    return math.copysign(math.inf, difference) if difference else 0.0


class _Seen(NamedTuple):
    """A covariate in an arm: its mean, its variance, and the squared standard error of the mean."""

    mean: float
    variance: float
    squared_error: float
    df: float = math.inf
    by_record: bool = False


def _seen(plan: Plan, arm: ArmTally, column: Floats) -> _Seen:
    """The squared error is Σ_j (Σ_{i∈j} w (x − x̄))² / (Σ w)², by unit or by record (CR0 or HC0).

    Without a tally for it, s²/n, which is the same for records of equal weight.
    """
    R = arm.raw_factor()[:, : len(column)]
    whole, total, mean = R @ column, float(R[0, 0]) ** 2, float(R[0] @ column / R[0, 0])
    variance = 0.0
    if not np.linalg.norm(whole[1:]) <= _ROUNDING * np.linalg.norm(whole):
        variance = float(np.sum((whole[1:] / R[0, 0]) ** 2)) * arm.n / (arm.n - 1)
    in_units = plan.clustering is not None or plan.federated is not None
    centred = column - mean * np.eye(len(column))[0]
    if UNITS in arm.tallies and arm.tallies[UNITS].n == arm.n:
        return _Seen(mean, variance, _sum_squares(arm, UNITS, centred) / total / total)
    if (count := replicates_of(arm)) and (in_units or RECORDS not in arm.tallies):
        return _Seen(mean, variance, sum_variance(arm, centred) / total / total, count)
    if RECORDS in arm.tallies:
        return _Seen(mean, variance, _sum_squares(arm, RECORDS, centred) / total / total, by_record=in_units)
    return _Seen(mean, variance, variance / arm.n, by_record=in_units or plan.weight is not None)


def _sum_squares(arm: ArmTally, tally: str, column: Floats) -> float:
    """Σ_j (Σ_{i∈j} w x'c)² from a score tally, in the arm's frame: vech(x x') begins with the sums of x."""
    k = len(column)
    framed = arm.frame.F[:k, :k] @ column
    return max(float(framed @ cast(Scores, arm.tallies[tally]).vv[:k, :k] @ framed), 0.0)
