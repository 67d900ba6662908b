"""Few units: what degrees of freedom they give an error by unit, and when they are too few for one.

An arm whose units have n_j records has e = (Σ n_j)² / Σ n_j² effective units, and its part V_a of a variance has about
e_a − 1 degrees of freedom. Welch's (Σ V_a)² / Σ V_a²/(e_a − 1) follows the parts as they were estimated. It is
largest where a small arm happens to show little spread, which is where its interval misses: 2 units against 18 covered
88 %, t with units − 1 degrees of freedom 75 %. So no more are used than equal spread of all units would give (Carter,
Schnepel and Steigerwald 2017 count effective clusters alike): 95 to 99 %, as `studies/few_clusters.py` has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from foldaway.inference.bootstrap import sum_variance
from foldaway.inference.fit import Fit
from foldaway.inference.levels import LEAST_GROUPS
from foldaway.inference.variance import is_clustered
from foldaway.numerics.block import Floats
from foldaway.plan.vocabulary import CR0, ERRORS, UNITS
from foldaway.tallies.moments.arm import ArmTally

LEAST_EFFECTIVE = 1.5
"""With fewer effective units, an arm's records are all but those of one unit."""

ENOUGH_UNITS = 10
"""Effective units of an arm that errors without a correction for few of them take."""

NOTED_UNITS = 2 * ENOUGH_UNITS
"""With fewer, their rows have a note."""

PER_COEFFICIENT = 20
"""Effective units of an arm for each coefficient of covariates that differ between units, not within them."""

# Units of equal size are as many effective ones, but for rounding.
_ROUNDING = 1e-9


def welch_degrees(parts: Sequence[float] | Floats, units: Sequence[float] | Floats) -> float:
    """Satterthwaite's degrees of freedom of a sum of arms' variances.

    Example:
        >>> welch_degrees([1.0, 1.0], [11.0, 11.0])
        20.0
    """
    variances, free = np.maximum(np.asarray(parts, dtype=np.float64), 0), np.maximum(np.asarray(units) - 1, 1e-9)
    if not variances.any():  # nothing varies: any number will do, and the pooled one is a number
        return float(free.sum())
    shares = variances / variances.sum()  # whose squares are not lost, however small the variances
    return float(1 / np.sum(shares**2 / free))


def degrees_of_freedom(fit: Fit, kind: str, contrast: Floats) -> float:
    """n − k; of a contrast's error by unit Welch's, and no more than equal spread of all units would give."""
    if not is_clustered(kind):
        return float(fit.df)
    tally = ERRORS[kind].tally
    arms = range(len(fit.models))
    units = [fit.units(tally, a).effective for a in arms]
    found = [float(contrast @ part @ contrast) for part in fit.sandwiches(tally)]
    alike = [float(contrast @ fit.alike(tally, a) @ contrast) for a in arms]
    return min(welch_degrees(found, units), welch_degrees(alike, units))


def too_few_units(fit: Fit, kind: str, arms: Sequence[int], *, by_arm: bool) -> str:
    """Why the units of these arms are too few for an error of this kind; empty if they are not.

    Args:
        fit: The regression.
        kind: The kind of error, one by unit.
        arms: The arms that are compared.
        by_arm: Whether the error is corrected in each arm, so that two units do.
    """
    tally, least = ERRORS[kind].tally, 2 if by_arm else LEAST_GROUPS
    units = [fit.units(tally, a) for a in arms]
    counts, effective = [each.scored for each in units], [each.effective * (1 + _ROUNDING) for each in units]
    if not min(counts):
        return ""  # of devices that have not replied something else is to be said
    if min(counts) < least:
        return f"errors by unit need {least} units in each arm; an arm has {min(counts)}."
    if min(effective) < LEAST_EFFECTIVE:
        return "nearly all records of an arm are those of one unit, so there is no error to give."
    if kind == CR0 and min(effective) < ENOUGH_UNITS:
        return f"CR0 has no correction for few units: it needs {ENOUGH_UNITS} of about equal size in each arm."
    if tally == UNITS and any(e < PER_COEFFICIENT * each.carries for e, each in zip(effective, units, strict=True)):
        return (
            f"CR errors of a regression need about {PER_COEFFICIENT} units of an arm for each covariate that differs "
            "between units. Prefer difference, or leave out `moments` for adjusted with the jackknife."
        )
    return ""


class FewUnits(NamedTuple):
    """What the effective units of two arms mean for a bootstrap.

    Replicates of the mean of e units vary by (e − 1)/e too little, and as the normal distribution does. Intervals and
    tests reach `stretch` times as far, with t in place of the normal quantile (Hesterberg 2015, "expanded
    percentiles").
    """

    fewest: float
    df: float
    stretch: float

    @classmethod
    def of(cls, arms: Sequence[ArmTally]) -> FewUnits:
        """From the spread of the replicates' weights: units need not be counted for it."""
        units = np.array([effective_units(arm) for arm in arms])
        alike = 1 / units
        left = 1 - float(np.sum(alike**2) / np.sum(alike))
        stretch = float(1 / np.sqrt(left)) if left > 0 else np.inf
        return cls(float(units.min()), welch_degrees(alike, units), stretch)

    @property
    def why(self) -> str:
        """Why there are too few; empty if there are not."""
        if self.fewest >= ENOUGH_UNITS:
            return ""
        return (
            f"bootstrap errors need about {ENOUGH_UNITS} units of equal size in each arm, by the spread of the "
            "replicates' weights; with fewer they are too small."
        )

    @property
    def note(self) -> str | None:
        """What to know of a bootstrap of few units."""
        if self.fewest >= NOTED_UNITS:
            return None
        return f"The bootstrap has fewer than {NOTED_UNITS} effective units in an arm; its error is a little too small."

    def expanded(self, confidence: float) -> float:
        """The share of replicates that an interval of this confidence takes."""
        from scipy.special import ndtr, stdtrit

        return float(1 - 2 * ndtr(-self.stretch * stdtrit(self.df, 0.5 + confidence / 2)))

    def p_value(self, p: float, sides: int = 2) -> float:
        """The p-value that goes with it, for one of a test of so many sides that the replicates gave."""
        from scipy.special import ndtri, stdtr

        return float(sides * stdtr(self.df, ndtri(p / sides) / self.stretch))


def effective_units(arm: ArmTally) -> float:
    """(Σ n_j)² / Σ n_j², the latter from the spread of the replicates' weights."""
    intercept = np.eye(arm.shape.regressors)[0]
    weight = float(arm.factor.R[0, 0]) ** 2
    squares = sum_variance(arm, intercept)
    return weight * (weight / squares) if squares else np.inf
