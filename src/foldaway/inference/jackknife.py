"""The delete-a-group jackknife: an error clustered by unit for any smooth statistic of the arms' sums.

Units are dealt into G groups at random. Let θ₍g₎ be the statistic without group g; then

    V = (G − 1)/G Σ_g (θ₍g₎ − θ̄)(θ₍g₎ − θ̄)'

(Kott 2001, "The delete-a-group jackknife"; for streams Chamandy et al. 2012). It is taken jointly over the arms, so a
unit that is in both is no fault. An arm's variance has about e − 1 degrees of freedom, e = (Σ_g n)² / Σ_g n² being its
number of effective groups. That of a difference has those of both arms together only where these lie in different
groups: being joint, V is the variance of one number per group.

A statistic is a function of `Cells`: sums of one outcome by arm, with any leading axes. Totals, groups left out,
replicates, segments and whole simulations are then the same call.

**How far to trust a prediction, from groups alone.** Where sums come from devices, nothing is known of single records,
and λ of `adjusted_mean` comes from least squares over the cells. With d = Σv − n v̄ the deviation of a cell from its
arm,

    λ = Σ_a n_a⁻² Σ_g d_y d_p / Σ_a n_a⁻² Σ_g d_p²,

which makes the variance of a difference smallest, and allows for devices of several records. It is fitted to as few as
eight groups, and therefore again without each of them. Simulated with 30 to 1,000 devices in 8 to 128 groups, coverage
was 95 to 96.5 %, where one λ for all left-out groups covered 93 to 95 %. With λ = 1 intervals are 30 % wider if the
coefficients are half of what they should be, and three times as wide if they have the wrong sign.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from foldaway.inference.levels import Levels, over
from foldaway.numerics.block import Floats
from foldaway.tallies.sums import Sums

# What is left of a prediction that is constant within arms, next to its sums.
_ROUNDING = 1e-12


class Cells(NamedTuple):
    """Sums of one outcome: arms on the last axis; groups, where there are any, on the one before.

    Attributes:
        weight: Σw, or the number of records.
        value: Σ w (y − level).
        adjusted: Σ w (ỹ − adjusted_level); None without adjustment.
        level: What the sums of y are about.
        adjusted_level: What those of ỹ are about.
        share: The share of all groups that is in the sums, for statistics that are totals.
        records: The number of records, where that is not their weight.
    """

    weight: Floats
    value: Floats
    adjusted: Floats | None = None
    level: float = 0.0
    adjusted_level: float = 0.0
    share: float = 1.0
    records: Floats | None = None

    def total(self) -> Cells:
        """The sums over all groups."""
        return self._map(lambda cells: cells.sum(axis=-2), 1.0)

    def left_out(self) -> Cells:
        """The sums without each group."""
        groups = self.weight.shape[-2]
        return self._map(lambda cells: cells.sum(axis=-2, keepdims=True) - cells, (groups - 1) / groups)

    def _map(self, change: Callable[[Floats], Floats], share: float) -> Cells:
        adjusted = None if self.adjusted is None else change(self.adjusted)
        return self._replace(weight=change(self.weight), value=change(self.value), adjusted=adjusted, share=share)


Statistic = Callable[..., Floats]
"""From cells (for a ratio, two of them) to the arms' levels."""


def cells_of(sums: Sums, outcome: int) -> Cells:
    """One outcome's sums, groups by arms."""
    adjusted = outcome + sums.shape.outcomes
    return Cells(
        sums.weights(outcome).T,
        sums.total[..., outcome].T,
        sums.total[..., adjusted].T if sums.shape.adjusted else None,
        float(sums.level[outcome]),
        float(sums.level[adjusted]) if sums.shape.adjusted else 0.0,
        records=None if sums.weight is None else sums.counts(outcome).T,
    )


def mean(cells: Cells) -> Floats:
    """The arms' means, whose differences are the estimator ``difference``."""
    return cells.level + over(cells.value, cells.weight)


def adjusted_mean(cells: Cells, rate: float | Floats, *, recentred: bool = True) -> Floats:
    """The arms' means of y − λ(p − p̄), where p = y − ỹ is the prediction and p̄ its mean over all arms.

    Their differences are the estimator ``adjusted``. Recentred by p̄, levels mean the same as those of y however far the
    covariates have drifted; without a group p̄ is again that of the records that are left.

    Args:
        cells: The sums.
        rate: λ, as `contrast_rate` gives it.
        recentred: Whether by p̄, which no difference depends on.
    """
    assert cells.adjusted is not None
    predicted = cells.value - cells.adjusted
    # Of p the part that all records share, level − adjusted_level, cancels where p̄ is taken out.
    overall = over(predicted.sum(axis=-1, keepdims=True), cells.weight.sum(axis=-1, keepdims=True))
    overall = overall if recentred else np.full_like(overall, cells.adjusted_level - cells.level)
    lam = np.asarray(rate, dtype=np.float64)
    lam = lam.reshape(lam.shape + (1,) * (cells.weight.ndim - lam.ndim))  # the same for all groups and arms
    return mean(cells) - lam * (over(predicted, cells.weight) - overall)


def total_per_unit(cells: Cells, probabilities: Floats, units: float = 1.0) -> Floats:
    """Σv / π_a, the total if all units were in the arm (paper, Eq. 3); per assigned unit, given how many there are.

    It needs no denominator, and is right also where the treatment changes how many records a unit has. Like every
    inverse-probability estimate it is noisier than a mean where the outcome's level is far from zero.
    """
    return (cells.value + cells.level * cells.weight) / (np.asarray(probabilities) * units * cells.share)


def ratio(numerator: Cells, denominator: Cells) -> Floats:
    """Σv / Σu, such as revenue per session."""
    above = numerator.value + numerator.level * numerator.weight
    return over(above, denominator.value + denominator.level * denominator.weight)


def jackknife(statistic: Statistic, *cells: Cells) -> Levels:
    """The statistic's levels and their covariance, from as many cells as it takes, groups by arms on the last two axes.

    Example:
        >>> rng = np.random.default_rng(1)
        >>> y = rng.normal(size=(16, 2))  # a record in each of 16 groups and 2 arms
        >>> levels = jackknife(mean, Cells(np.ones((16, 2)), y))
        >>> np.allclose(np.diag(levels.covariance), y.var(axis=0, ddof=1) / 16)
        True
    """
    level = cells[0].level if getattr(statistic, "func", statistic) in _MOVING else 0.0
    if level:  # without it until the end: it would cost what varies its digits
        about = cells[0]._replace(level=0.0, adjusted_level=cells[0].adjusted_level - level)
        levels = jackknife(statistic, about)
        return levels._replace(value=level + levels.value, away=levels.value)
    value = statistic(*(each.total() for each in cells))
    without = statistic(*(each.left_out() for each in cells))
    levels = jackknifed(value, without, cells[0].weight)
    return levels if cells[0].records is None else levels._replace(n=cells[0].records.sum(axis=-2))


# Statistics of one outcome that move with its level.
_MOVING = (mean, adjusted_mean)


def jackknifed(value: Floats, without: Floats, weight: Floats) -> Levels:
    """Levels with the covariance that they show without each group, whose records weigh so much."""
    groups = weight.shape[-2]
    away = without - without.mean(axis=-2, keepdims=True)
    covariance = (groups - 1) / groups * np.swapaxes(away, -1, -2) @ away
    n = weight.sum(axis=-2)
    return Levels(value, covariance, group_doubt(weight), n, (weight > 0).sum(axis=-2))


def group_doubt(weight: Floats) -> Floats:
    """How well the jackknife knows the arms' variances, as `Levels` has it.

    If group g holds the share p_ag of arm a, it adds p_ag V_a + p_cg V_c to the variance of a difference. By
    Satterthwaite's argument the sum of G such parts has (Σ s)² / Σ s² − 1 degrees of freedom, in which arms meet by
    o = Σ_g p_ag p_cg: 1/e for an arm with itself, 1/G for arms that fill all groups alike, 0 for arms in different
    groups. Entries are o/(1 − o): arms that fill all groups alike have G − 1 degrees of freedom together, not each.
    """
    share = np.nan_to_num(over(weight, weight.sum(axis=-2, keepdims=True)))
    meeting = np.swapaxes(share, -1, -2) @ share
    return over(meeting, 1 - meeting)


def jackknife_adjusted(cells: Cells) -> Levels:
    """The arms' means of y − λ(p − p̄), as `adjusted_mean` has them, with λ from the groups, and their covariance.

    Example:
        >>> rng = np.random.default_rng(1)
        >>> n = rng.poisson(20.0, (64, 2))
        >>> p = n * rng.normal(size=(64, 2))
        >>> y = n * [5.0, 6.0] + 2 * p + rng.normal(size=(64, 2))  # p is half of what it should be
        >>> np.diff(jackknife_adjusted(Cells(n, y, y - p)).value).round(2)
        array([1.])
    """
    return jackknifed(*adjusted_means(cells), cells.weight)


def adjusted_means(cells: Cells) -> tuple[Floats, Floats]:
    """Those means, of all groups and without each."""
    assert cells.adjusted is not None
    n, y, p = cells.weight, _away(cells.value, cells.weight), _away(cells.value - cells.adjusted, cells.weight)
    value = adjusted_mean(cells.total(), _rate(n, y, p, lambda of: of.sum(axis=-2)))
    without = adjusted_mean(cells.left_out(), _rate(n, y, p, lambda of: of.sum(axis=-2, keepdims=True) - of))
    return value, without


def _rate(n: Floats, y: Floats, p: Floats, added: Callable[[Floats], Floats]) -> Floats:
    """λ from cells added up over groups: all of them, or all but each. 0 where nothing is predicted."""
    count = added(n)
    Y, P = over(added(y), count), over(added(p), count)  # the means that cells deviate from
    both = added(y * p) - P * added(n * y) - Y * added(n * p) + Y * P * added(n * n)
    square = added(p * p) - 2 * P * added(n * p) + P * P * added(n * n)
    share = over(1.0, count**2)
    return np.nan_to_num(over(np.sum(share * both, axis=-1), np.sum(share * square, axis=-1)))


def _away(sums: Floats, n: Floats) -> Floats:
    """Each cell's sum less what it has by its arm's mean, so that squares keep their digits."""
    mean = np.nan_to_num(over(sums.sum(axis=-2, keepdims=True), n.sum(axis=-2, keepdims=True)))
    away = sums - n * mean
    return np.where(np.abs(away) > _ROUNDING * np.abs(sums), away, 0.0)
