"""Survival from histograms of exits: Kaplan–Meier curves, restricted means, the log-rank test and a hazard ratio.

An exit is in the bin of its time, by the event or not. With d_b events and c_b other exits in bin b, those at risk
there are n_b = Σ_{j ≥ b} (d_j + c_j): an exit without the event comes after the events of its bin. So

    S(t) = Π_{b ≤ t} (1 − d_b/n_b),   RMST = ∫₀ᵀ S(t) dt,   U = Σ_b (d_tb − d_b n_tb/n_b),

the last being the log-rank statistic of an arm t against the control (O − E), where d_b and n_b are those of both
arms. The hazard ratio is that of Mantel and Haenszel, Σ d_tb n_cb/n_b over Σ d_cb n_tb/n_b. Where units were randomised
within strata, those at risk are compared within them: the sums are over strata and bins.

Errors are by groups of units, or of independent exits. By groups, curves, restricted means and the logarithm of the
hazard ratio have the jackknife of `inference.jackknife`. U is a sum of each exit's own part,

    ψ = e (z − p_x) − Σ_{b ≤ x} (z − p_b) d_b/n_b,   p_b = n_tb/n_b,

of an exit in bin x, by the event if e = 1, and of the arm if z = 1: the score residual of Cox's model where the hazards
are the same (Lin and Wei 1989). The variance of U is that of the groups' sums. Of independent exits the error of a
curve and of its area is Greenwood's, written as the sum of squares of such parts, so that exits may have weights; and
that of U is the hypergeometric one.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from foldaway.inference.jackknife import group_doubt
from foldaway.inference.levels import Levels, difference_of, over
from foldaway.numerics.block import Floats

# Next to an arm's exits of a bin, what subtracting a group leaves where there are no others.
_ROUNDING = 1e-9


class Exited(NamedTuple):
    """Exits by bin of time, the first being those at time zero: (…, B).

    Attributes:
        events: How many were by the event, or Σw.
        others: How many were not.
    """

    events: Floats
    others: Floats

    @classmethod
    def of(cls, counts: Floats) -> Exited:
        """From a histogram's counts, whose bins are of other exits and of events by turns."""
        return cls(counts[..., 1::2], counts[..., 0::2])

    @property
    def every(self) -> Floats:
        """How many there were."""
        return self.events + self.others

    @property
    def at_risk(self) -> Floats:
        """How many had not left before."""
        return self.every[..., ::-1].cumsum(axis=-1)[..., ::-1]

    def total(self) -> Exited:
        """Over all groups, which are on the axis before the last: (…, B)."""
        return Exited(self.events.sum(axis=-2), self.others.sum(axis=-2))

    def left_out(self) -> Exited:
        """Without each group."""
        return Exited(*map(_without_each, self))

    def by_stratum(self, strata: int = 1) -> Exited:
        """With strata on the first axis, whose arms lie side by side until then; or all in a single one."""
        return Exited(*(each.reshape(strata, -1, *each.shape[1:]) for each in self))

    def pair(self, arm: int) -> Exited:
        """By stratum, the control and an arm."""
        return Exited(*(each[:, [0, arm]] for each in self))


def _without_each(counts: Floats) -> Floats:
    every = counts.sum(axis=-2, keepdims=True)
    left = every - counts
    return np.where(left > _ROUNDING * every, left, 0.0)


def curve(exits: Exited) -> Floats:
    """Kaplan–Meier: the share that has not had the event by the end of each bin; as before where nobody is at risk.

    Example:
        >>> curve(Exited(np.array([0.0, 1.0, 1.0]), np.array([0.0, 1.0, 1.0]))).tolist()  # 1, 1+, 2, 2+
        [1.0, 0.75, 0.375]
    """
    hazard = np.nan_to_num(over(exits.events, exits.at_risk))
    survival: Floats = np.multiply.accumulate(1 - hazard, axis=-1)
    return survival


def area(survival: Floats, ends: Floats) -> Floats:
    """The restricted mean: the area under a curve from zero to the last of the bins' ends.

    Example:
        >>> float(area(np.array([1.0, 0.75, 0.375]), np.array([0.0, 1.0, 2.0])))
        1.75
    """
    below: Floats = (survival[..., :-1] * np.diff(ends)).sum(axis=-1)
    return below


def curve_error(exits: Exited, survival: Floats, squares: Exited | None = None) -> Floats:
    """Of independent exits, the variance of log S at each time, which is Greenwood's: Σ d/(n (n − d)).

    With weights, the squares of which are summed in the same bins, Σ w² ψ². An exit's ψ at t is E(min(x, t)) less, for
    an event by t, 1/(n_x − d_x); E is Σ d/(n (n − d)) up to there.
    """
    step, expected = _steps(exits, survival)
    mass = exits if squares is None else squares
    gone = (mass.events * (expected - step) ** 2 + mass.others * expected**2).cumsum(axis=-1)
    there = mass.every.sum(axis=-1, keepdims=True) - mass.every.cumsum(axis=-1)
    found: Floats = gone + there * expected**2
    return found


def log_log_band(survival: Floats, error: Floats, reach: Floats | float) -> tuple[Floats, Floats]:
    """A pointwise band, by the error of log S, on the scale of log(−log S): its ends lie between 0 and 1.

    Example:
        >>> lower, upper = log_log_band(np.array([1.0, 0.5]), np.array([0.0, 0.1]), 1.96)
        >>> lower.round(3).tolist(), upper.round(3).tolist()
        ([1.0, 0.399], [1.0, 0.593])
    """
    inside = (survival > 0) & (survival < 1)
    log = np.log(np.where(inside, survival, 0.5))
    away = np.asarray(reach) * error / -log
    lower, upper = np.exp(log * np.exp(away)), np.exp(log * np.exp(-away))
    return np.where(inside, lower, survival), np.where(inside, upper, survival)


def _steps(exits: Exited, survival: Floats, worth: Floats | float = 1.0) -> tuple[Floats, Floats]:
    """By bin, what is worth so much over n − d, and the same times the hazard, up to there."""
    left = np.where(survival > 0, exits.at_risk - exits.events, 0.0)
    step = np.nan_to_num(over(worth, left))
    return step, (np.nan_to_num(over(exits.events, exits.at_risk)) * step).cumsum(axis=-1)


def area_error(exits: Exited, survival: Floats, ends: Floats, squares: Exited | None = None) -> Floats:
    """Of independent exits, the variance of the restricted mean: without weights, Σ A² d/(n (n − d)), A the area after.

    Example:
        >>> exits = Exited(np.array([0.0, 1.0, 1.0, 0.0]), np.array([0.0, 0.0, 0.0, 1.0]))  # 1, 2, 3+
        >>> float(area_error(exits, curve(exits), np.arange(4.0)).round(9))
        0.222222222
    """
    step, other = _steps(exits, survival, _after(survival, ends))
    mass = exits if squares is None else squares
    found: Floats = (mass.events * (other - step) ** 2 + mass.others * other**2).sum(axis=-1)
    return found


def _after(survival: Floats, ends: Floats) -> Floats:
    """The area from each bin's end on."""
    pieces = np.zeros_like(survival)
    pieces[..., :-1] = survival[..., :-1] * np.diff(ends)
    return pieces[..., ::-1].cumsum(axis=-1)[..., ::-1]


class HazardContrast(NamedTuple):
    """An arm against the control: the log-rank statistic, and the hazard ratio's logarithm, each as a difference.

    Attributes:
        observed: Events of the arm, O.
        expected: What it would have had with the hazard of both arms together, E.
        variance: Of O − E.
        df: Its degrees of freedom.
        log_ratio: The logarithm of Mantel's and Haenszel's hazard ratio; NaN without events in both arms.
        log_variance: Its variance.
    """

    observed: Floats
    expected: Floats
    variance: Floats
    df: Floats
    log_ratio: Floats
    log_variance: Floats

    @property
    def p_value(self) -> float:
        """Of the log-rank test: the chance of an O − E as far from 0, if the arms' hazards are the same."""
        from scipy.special import ndtr, stdtr

        if not self.variance > 0:
            return math.nan
        away = -abs(float(self.observed - self.expected)) / math.sqrt(float(self.variance))
        return float(2 * (ndtr(away) if math.isinf(self.df) else stdtr(self.df, away)))


def contrast_by_group(exits: Exited) -> HazardContrast:
    """By groups of units: exits by stratum, arm (the control, then the arm), group and bin."""
    whole = exits.total()
    events, others = (parts[:, :, None] for parts in _log_rank_parts(whole))
    sums = (exits.events * events + exits.others * others).sum(axis=(0, -1))  # (2, G)
    groups = sums.shape[-1]
    away = sums - sums.mean(axis=-1, keepdims=True)
    covariance = groups / (groups - 1) * away @ away.T
    signs = np.array([-1.0, 1.0])  # the control's part counts against the arm's
    doubt = np.nan_to_num(group_doubt(exits.events.sum(axis=(0, -1)).T))
    levels = Levels(signs * sums.sum(axis=-1), signs[:, None] * signs * covariance, doubt, np.ones(2))
    apart = difference_of(levels, 1)
    without = log_ratio(exits.left_out())
    spread = (groups - 1) / groups * ((without - without.mean()) ** 2).sum()
    return _contrast(whole, np.asarray(apart.variance), np.asarray(apart.df), spread)


def contrast_of_records(exits: Exited, squares: Exited | None = None) -> HazardContrast:
    """Of independent exits by stratum, arm (the control, then the arm) and bin; with weights, also their squares."""
    if squares is None:
        every, ours, n = exits.events.sum(axis=1), exits.at_risk[:, 1], exits.at_risk.sum(axis=1)
        theirs = n - ours
        variance = np.nan_to_num(over(every * ours * theirs * (n - every), n**2 * (n - 1))).sum()
    else:
        events, others = _log_rank_parts(exits)
        variance = (squares.events * events**2 + squares.others * others**2).sum()
    mass = exits if squares is None else squares
    events, others = _log_ratio_parts(exits)
    spread = (mass.events * events**2 + mass.others * others**2).sum()
    return _contrast(exits, np.asarray(variance), np.asarray(np.inf), spread)


def _contrast(whole: Exited, variance: Floats, df: Floats, spread: Floats) -> HazardContrast:
    observed = whole.events[:, 1].sum()
    risk = whole.at_risk
    expected = np.nan_to_num(over(whole.events.sum(axis=1) * risk[:, 1], risk.sum(axis=1))).sum()
    return HazardContrast(observed, expected, variance, df, log_ratio(whole), spread)


def log_ratio(exits: Exited) -> Floats:
    """The logarithm of the hazard ratio, of strata and two arms on the first axes, and bins on the last."""
    risk, events = exits.at_risk, exits.events
    every = risk.sum(axis=1)
    above, below = (
        np.nan_to_num(over(events[:, one] * risk[:, other], every)).sum(axis=(0, -1)) for one, other in ((1, 0), (0, 1))
    )
    return np.log(np.where((above > 0) & (below > 0), over(above, below), np.nan))


def _log_rank_parts(exits: Exited) -> tuple[Floats, Floats]:
    """ψ of an exit by the event, and of another, by stratum, arm and bin: what it adds to O − E."""
    risk = exits.at_risk
    every = risk.sum(axis=1, keepdims=True)
    share = np.nan_to_num(over(risk[:, 1:], every))
    hazard = np.nan_to_num(over(exits.events.sum(axis=1, keepdims=True), every))
    mark = np.array([[0.0], [1.0]]) - share
    others: Floats = -(mark * hazard).cumsum(axis=-1)
    return mark + others, others


def _log_ratio_parts(exits: Exited) -> tuple[Floats, Floats]:
    """The same for the logarithm of the hazard ratio, log R − log T."""
    risk, events = exits.at_risk, exits.events
    every = risk.sum(axis=1, keepdims=True)
    share, rate = (np.moveaxis(np.nan_to_num(over(each, every)), 1, 0) for each in (risk, events))
    R, T = (rate[1] * risk[:, 0]).sum(), (rate[0] * risk[:, 1]).sum()
    if not (R > 0 and T > 0):
        return np.full_like(risk, np.nan), np.full_like(risk, np.nan)
    # By arm: what one more at risk adds to R and to T in a bin, and what one more event adds.
    in_R = np.stack([rate[1] * share[1], -rate[1] * share[0]], axis=1).cumsum(axis=-1)
    in_T = np.stack([-rate[0] * share[1], rate[0] * share[0]], axis=1).cumsum(axis=-1)
    others = in_R / R - in_T / T
    own = np.stack([-share[1] / T, share[0] / R], axis=1)
    return others + own, others
