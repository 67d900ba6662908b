"""From the arms' levels and their covariance to effects: differences, relative effects, or why there are none.

An estimator gives each arm a level (a mean, an adjusted mean, a total per assigned unit, a ratio). The jackknife or
Welch's formula gives the levels' covariance, and how well the arms' variances are known. All that follows is written
once here, for arrays with any leading axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foldaway.inference.claim import DIFFERS, Claim
from foldaway.inference.intervals import critical
from foldaway.numerics.block import Floats

LEAST_GROUPS = 5
"""With fewer non-empty groups in an arm, no error is told."""

UNBOUNDED = "the control's level cannot be told from zero, so a relative effect has no bounds."
"""Why a relative effect is withheld."""

_ONE_GROUP = "one group of units has nearly all of an arm's weight, so there is no error to give."

ROUNDING = 4e-16
"""What sums leave of the spread of a number that is always the same, next to that number."""

ONE_CARRIES = 1.01
"""An arm with fewer effective records, (Σw)² / Σw², is one record."""

TOO_SMALL = 1e-100
"""Numbers below this have squares that double precision cannot tell from zero, or not exactly."""


# Degrees of freedom that are a whole number but for rounding.
_WHOLE = 1e-13


class Steps(Protocol):
    """What distribution functions say of quantiles, which in steps have no standard error: see `inference.stepped`."""

    @property
    def value(self) -> Floats:
        """The quantiles: (…, A)."""

    def difference(self, arm: int, z: Floats | float, control: int = 0) -> tuple[Floats, Floats]:
        """Where the interval of an arm's quantile less the control's begins and ends."""

    def ratio(self, arm: int, z: Floats | float, control: int = 0) -> tuple[Floats, Floats]:
        """Where the interval of their ratio begins and ends."""

    def score(self, arm: int, threshold: Floats | float, control: int = 0) -> Floats:
        """How far the difference lies above a threshold, as a normal score."""

    def of(self, places: Sequence[int]) -> Self:
        """Those of the arms at these places."""


class Levels(NamedTuple):
    """The arms' levels, with any leading axes.

    Attributes:
        value: The levels: (…, A).
        covariance: Their covariance: (…, A, A).
        doubt: How well the arms' variances are known: (…, A, A). Where an arm's variance has f degrees of freedom, its
            own entry is 1/f; an entry of two arms is 0 if what is not known of their variances has nothing in common.
        n: The number of records: (…, A).
        groups: The number of groups with records: (…, A); None if records are taken as independent.
        away: The levels less a number that they share, with the digits that this number takes away; None where the
            levels themselves have all that there are.
        why: By arm, why no error can be told of it, empty if one can; no entries if the counts decide that.
        steps: Of quantiles, what their distribution functions say; None of other levels.
    """

    value: Floats
    covariance: Floats
    doubt: Floats
    n: Floats
    groups: Floats | None = None
    away: Floats | None = None
    why: tuple[str, ...] = ()
    steps: Steps | None = None

    def of(self, places: Sequence[int]) -> Levels:
        """Those at these places alone."""
        own = list(places)
        return Levels(
            self.value[..., own],
            self.covariance[..., own, :][..., own],
            self.doubt[..., own, :][..., own],
            self.n[..., own],
            None if self.groups is None else self.groups[..., own],
            None if self.away is None else self.away[..., own],
            tuple(self.why[place] for place in own) if self.why else (),
            None if self.steps is None else self.steps.of(own),
        )


class Difference(NamedTuple):
    """An arm's level less the control's: estimate, variance and degrees of freedom, over the leading axes."""

    estimate: Floats
    variance: Floats
    df: Floats


class Relative(NamedTuple):
    """An arm's level over the control's, less 1.

    Attributes:
        estimate: The relative effect.
        std_error: By the delta method.
        lower: Where Fieller's set begins.
        upper: Where it ends.
        bounded: Whether the set is an interval; if not, `lower` and `upper` are NaN.
    """

    estimate: Floats
    std_error: Floats
    lower: Floats
    upper: Floats
    bounded: NDArray[np.bool_]


class ArmEffect(NamedTuple):
    """What a row tells of an arm against the control. A number that cannot be told is None, and `why` says so."""

    estimate: float | None = None
    control_level: float | None = None
    std_error: float | None = None
    df: float | None = None
    ci_lower: float | None = None
    ci_upper: float | None = None
    statistic: float | None = None
    p_value: float | None = None
    p_against: float | None = None
    relative: float | None = None
    relative_std_error: float | None = None
    relative_ci_lower: float | None = None
    relative_ci_upper: float | None = None
    odds_ratio: float | None = None
    odds_ratio_ci_lower: float | None = None
    odds_ratio_ci_upper: float | None = None
    first_stage: float | None = None
    reliable: bool = True
    why: str = ""
    relative_why: str = ""
    odds_ratio_why: str = ""


def difference_of(levels: Levels, arm: int, control: int = 0) -> Difference:
    """The difference of two levels, with the degrees of freedom of its variance."""
    value, covariance = levels.value if levels.away is None else levels.away, levels.covariance
    ours, theirs = covariance[..., arm, arm], covariance[..., control, control]
    variance = np.maximum(ours + theirs - 2 * covariance[..., arm, control], 0)
    df = _degrees(levels, arm, control, ours, theirs)
    return Difference(value[..., arm] - value[..., control], variance, df)


def _degrees(levels: Levels, arm: int, control: int, ours: Floats, theirs: Floats) -> Floats:
    """Satterthwaite's (V_a + V_c)² / (V_a² k_aa + V_c² k_cc + 2 V_a V_c k_ac); Welch's if k_ac is 0.

    Where nothing varies, that of equal variances.
    """
    nothing = ours + theirs == 0
    doubt = levels.doubt
    with np.errstate(divide="ignore", invalid="ignore"):
        # Shares, whose squares are not lost, however small the variances.
        one, other = (np.where(nothing, 0.5, each / (ours + theirs)) for each in (ours, theirs))
        own = one**2 * doubt[..., arm, arm] + other**2 * doubt[..., control, control]
        df: Floats = 1 / (own + 2 * one * other * doubt[..., arm, control])
        whole = np.round(df)
        return np.where(np.abs(df - whole) <= _WHOLE * df, whole, df)


def relative_of(levels: Levels, arm: int, confidence: float) -> Relative:
    """The relative effect with Fieller's set, from the levels' covariance."""
    from scipy.special import stdtrit

    base, difference = levels.value[..., 0], difference_of(levels, arm)
    ours, theirs = levels.covariance[..., arm, arm], levels.covariance[..., 0, 0]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        df = _degrees(levels, arm, 0, ours, (1 + difference.estimate / base) ** 2 * theirs)
        reach = stdtrit(df, 0.5 + confidence / 2)
    between = levels.covariance[..., arm, 0] - theirs
    return share_of(difference.estimate, base, (difference.variance, theirs, between), reach)


def share_of(effect: ArrayLike, base: ArrayLike, covariance: tuple[Any, Any, Any], reach: ArrayLike) -> Relative:
    """An effect as a share of a base, with Fieller's set: see `fieller`."""
    own, below, between = covariance
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        share = np.asarray(effect) / np.asarray(base)
        spread = _unless_rounding(own + share**2 * below, 2 * share * between)
        error = np.sqrt(spread) / np.abs(base)
    return Relative(share, error, *fieller(effect, base, covariance, reach))


def fieller(
    a: ArrayLike, b: ArrayLike, covariance: tuple[Any, Any, Any], reach: ArrayLike
) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """Where the set of all ρ with |a − ρb| ≤ reach · error begins and ends (Fieller 1954), and whether it is bounded.

    It is if b differs from zero at this confidence; otherwise there is nothing to tell.

    Args:
        a: The numerator.
        b: The denominator.
        covariance: The variance of a, that of b, and their covariance.
        reach: How many standard errors.

    Example:
        >>> lower, upper, bounded = fieller(1.0, 2.0, (0.01, 0.01, 0.0), 1.96)
        >>> float(lower.round(3)), float(upper.round(3)), bool(bounded)
        (0.395, 0.615, True)
    """
    below, t2 = np.asarray(b, dtype=np.float64), np.square(reach)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        # In units of b, so that no square is lost; and what cancels in the roots of the quadratic is left out of them.
        ratio = np.asarray(a) / below
        ours, theirs, between = (np.asarray(each) / below / below for each in covariance)
        spread = _unless_rounding(ours + ratio**2 * theirs, 2 * ratio * between)
        lead, middle = 1 - t2 * theirs, ratio - t2 * between
        root = np.sqrt(np.maximum(t2 * (spread - t2 * _unless_rounding(ours * theirs, between**2)), 0))
        bounded = np.asarray((lead > 0) & np.isfinite(ratio))
        lower, upper = (np.where(bounded, (middle + side * root) / lead, np.nan) for side in (-1, 1))
    return lower, upper, bounded


def _unless_rounding(large: Floats, other: Floats) -> Floats:
    """What is left of a positive number less another that is no larger; 0 where that is rounding."""
    left: Floats = np.where(large - other > 1e-14 * large, large - other, 0.0)
    return left


def effect_of(levels: Levels, arm: int, confidence: float, claim: Claim = DIFFERS) -> ArmEffect:
    """What is told of one trial's arm: effect, error and interval, or why they are withheld.

    Example:
        >>> levels = Levels(np.array([10.0, 12.0]), np.diag([0.1, 0.15]), np.eye(2) / 99, np.array([100, 100]))
        >>> effect = effect_of(levels, 1, 0.95)
        >>> effect.estimate, effect.std_error, round(effect.ci_lower, 3), effect.reliable
        (2.0, 0.5, 1.014, True)
        >>> round(effect.relative, 3), round(effect.relative_ci_lower, 3), round(effect.relative_ci_upper, 3)
        (0.2, 0.097, 0.312)
    """
    if why := withheld(levels, (arm, 0)):
        own, base = (float(x) if np.isfinite(x) else None for x in levels.value[[arm, 0]])
        return ArmEffect(None if own is None or base is None else own - base, base, reliable=False, why=why)
    estimate, variance, df = (float(x) for x in difference_of(levels, arm))
    if df < 1:
        return ArmEffect(estimate, float(levels.value[0]), reliable=False, why=_ONE_GROUP)
    relative = relative_of(levels, arm, claim.coverage(confidence))
    return arm_effect(estimate, float(levels.value[0]), float(np.sqrt(variance)), df, relative, confidence, claim)


def arm_effect(
    estimate: float, base: float, error: float, df: float, relative: Relative, confidence: float, claim: Claim
) -> ArmEffect:
    """An effect with its error, by Student's t; and as a share of the control's level, if that has bounds."""
    found = ArmEffect(estimate, base, error, df, *(claim.tested(estimate, error, df, confidence) if error else ()))
    if not relative.bounded:
        return found._replace(relative_why=UNBOUNDED)
    lower, upper = claim.opened(float(relative.lower), float(relative.upper), of=base)
    return found._replace(
        relative=float(relative.estimate),
        relative_std_error=float(relative.std_error),
        relative_ci_lower=lower,
        relative_ci_upper=upper,
    )


def share_effect_of(levels: Levels, arm: int, confidence: float, claim: Claim = DIFFERS) -> ArmEffect:
    """As `effect_of`, for levels that are shares: the relative effect is the risk ratio less 1, beside the odds ratio.

    Both have their intervals on the log scale (Katz et al. 1978; Woolf 1955), with the levels' own covariance in place
    of the binomial one: Var log p = V/p² and Var logit p = V/(p(1 − p))².

    Example:
        >>> levels = Levels(np.array([0.2, 0.3]), np.diag([0.0016, 0.0021]), np.eye(2) / 99, np.array([100, 100]))
        >>> effect = share_effect_of(levels, 1, 0.95)
        >>> round(effect.relative, 3), round(effect.odds_ratio, 3), round(effect.odds_ratio_ci_lower, 3)
        (0.5, 1.714, 0.891)
    """
    found, p = effect_of(levels, arm, confidence, claim), levels.value
    if found.why:
        return found
    if min(p[arm], p[0]) <= 0:
        why = "an arm's share is zero, so there is no ratio to give."
        none = found._replace(relative=None, relative_std_error=None, relative_ci_lower=None, relative_ci_upper=None)
        return none._replace(relative_why=why, odds_ratio_why=why)
    risk, lower, upper = _log_ratio(levels, arm, confidence, claim, p, p)
    found = found._replace(
        relative=risk - 1,
        relative_std_error=float(relative_of(levels, arm, confidence).std_error),
        relative_ci_lower=lower - 1 if lower > 0 else -np.inf,  # open, as the effect's own then is
        relative_ci_upper=upper - 1,
        relative_why="",
    )
    if max(p[arm], p[0]) >= 1:
        return found._replace(odds_ratio_why="an arm's share is one, so there are no odds to give.")
    odds, lower, upper = _log_ratio(levels, arm, confidence, claim, p / (1 - p), p * (1 - p))
    return found._replace(odds_ratio=odds, odds_ratio_ci_lower=lower, odds_ratio_ci_upper=upper)


def _log_ratio(
    levels: Levels, arm: int, confidence: float, claim: Claim, of: Floats, over_slope: Floats
) -> tuple[float, float, float]:
    """The ratio of a function of two levels and its interval, on the log scale, where its slope is 1/over_slope."""
    slope = np.where(over_slope > 0, over_slope, np.nan)
    logs = levels._replace(
        value=np.log(of, out=np.zeros_like(of), where=of > 0),
        covariance=levels.covariance / slope[:, None] / slope,
        away=None,
    )
    estimate, variance, df = (float(x) for x in difference_of(logs, arm))
    reach = critical(claim.coverage(confidence), df) * float(np.sqrt(variance))
    lower, upper = np.exp(claim.opened(*np.clip([estimate - reach, estimate + reach], -700, 700).tolist())).tolist()
    return float(np.exp(estimate)), lower, upper


def withheld(levels: Levels, arms: tuple[int, int]) -> str:
    """Why no error can be told for a comparison of these arms; empty if it can."""
    n = float(min(levels.n[..., arm] for arm in arms))
    if n <= 0:
        return "an arm has no records yet."
    if levels.why:  # whoever made them has judged them
        return next((levels.why[arm] for arm in arms if levels.why[arm]), "")
    if levels.groups is None:
        return "" if n >= 2 else "an arm has a single record, which shows no spread."
    groups = int(min(levels.groups[..., arm] for arm in arms))
    if groups >= LEAST_GROUPS:
        return ""
    if not groups:
        return "a coefficient rests on the units of one group alone, so there is no error to give."
    return f"an arm has units in only {groups} of the groups that the error is computed from; it takes {LEAST_GROUPS}."


def over(numerator: Floats | float, denominator: Floats) -> Floats:
    """The quotient; NaN where the denominator is 0, since an arm is empty."""
    above, below = np.broadcast_arrays(numerator, denominator)
    quotient: Floats = np.divide(above, below, out=np.full(above.shape, np.nan), where=below != 0)
    return quotient
