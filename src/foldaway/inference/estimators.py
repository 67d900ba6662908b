"""The estimators: each is one regression over the arms, and a contrast of its coefficients.

ipw: the mean of z = 1[arm]·y/π_arm − 1[control]·y/π_control over all records (paper, Eq. 3 onwards).
difference: y on an indicator per arm.
regression: y on an indicator per arm and the covariates; with a pre-period outcome this is CUPED (Deng et al.
    2013).
interacted: y on an indicator per arm and covariates per arm, the effect taken at the covariates' mean over all
    records (Lin 2013). Taking it there by algebra at the end equals centring the covariates beforehand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from foldaway.errors import EstimateError
from foldaway.inference.fit import ArmModel, Fit
from foldaway.inference.population import MeanVariance
from foldaway.inference.variance import covariance, degrees_of_freedom, welch_df
from foldaway.numerics.block import Floats
from foldaway.tallies.arm import ArmTally
from foldaway.tallies.frame import Frame


class Estimate(NamedTuple):
    """An effect and its error, absolute and relative to the control's level."""

    estimate: float
    std_error: float
    df: float
    base: float
    relative: float
    relative_std_error: float


class Comparison(NamedTuple):
    """An arm against the control, for one outcome: what an estimator needs to know."""

    arms: Sequence[ArmTally]
    probabilities: Sequence[float]
    arm: int
    outcome: int
    population: bool = False


class Contrast(NamedTuple):
    """A fit, and the combinations of its coefficients that are the effect and the control's level."""

    fit: Fit
    effect: Floats
    base: Floats
    center: float
    mean_variance: MeanVariance | None = None

    def estimate(self, kind: str) -> Estimate:
        """The effect and its share of the control's level, the latter by the delta method."""
        fit, effect, base = self.fit, self.effect, self.base
        fit.require_identified(effect)
        value, level = float(effect @ fit.coef), float(base @ fit.coef) + self.center
        relative, gradient = np.nan, np.full_like(effect, np.nan)
        if level:
            relative = value / level
            gradient = (effect - relative * base) / level
        df = degrees_of_freedom(fit, kind)
        return Estimate(value, self._spread(effect, kind), df, level, relative, self._spread(gradient, kind))

    def _spread(self, contrast: Floats, kind: str) -> float:
        variance = float(contrast @ covariance(self.fit, kind) @ contrast)
        if self.mean_variance is not None:
            variance += self.mean_variance.of(_slopes(self.fit, contrast), kind)
        return _root(variance)


class MeanDifference(Contrast):
    """A difference of means, for which HC2 comes with Welch's degrees of freedom."""

    def estimate(self, kind: str) -> Estimate:
        """The effect and its share of the control's level."""
        involved = np.flatnonzero(self.effect)
        counts = np.array([model.arm.n for model in self.fit.models], dtype=np.float64)[involved]
        if kind == "HC2" and counts.min() < 2:
            raise EstimateError("both arms need two records for HC2.")
        result = super().estimate(kind)
        if kind != "HC2":
            return result
        return result._replace(df=welch_df(np.diag(covariance(self.fit, kind))[involved], counts))


class WeightedOutcomes:
    """The paper's mean of outcomes divided by the probability of their arm."""

    def __init__(self, comparison: Comparison) -> None:
        self.comparison = comparison
        arm, pi = comparison.arm, comparison.probabilities
        self._fit = self._mean({arm: 1 / pi[arm], 0: -1 / pi[0]})
        self._effect, self._base = float(self._fit.coef[0]), float(self._mean({0: 1 / pi[0]}).coef[0])
        self._relative, self._ratio = np.nan, None
        if self._base:
            self._relative = self._effect / self._base
            # The ratio's influence is (z − ratio·z_control)/base: again a mean of scaled outcomes.
            self._ratio = self._mean({arm: 1 / pi[arm], 0: -(1 + self._relative) / pi[0]})

    def estimate(self, kind: str) -> Estimate:
        """The effect and its share of the control's level."""
        std_error = _root(covariance(self._fit, kind)[0, 0])
        relative_error = np.nan
        if self._ratio is not None:
            relative_error = _root(covariance(self._ratio, kind)[0, 0]) / abs(self._base)
        df = degrees_of_freedom(self._fit, kind)
        return Estimate(self._effect, std_error, df, self._base, self._relative, relative_error)

    def _mean(self, scales: dict[int, float]) -> Fit:
        """The regression on a constant of the outcome times the arm's scale, zero for arms not named."""
        arms = self.comparison.arms
        L = np.zeros((1, arms[0].shape.regressors))
        L[0, 0] = 1
        models = [ArmModel(arm, L, scales.get(a, 0.0)) for a, arm in enumerate(arms)]
        return Fit(models, self.comparison.outcome, plain_frame(arms[0], center=0.0))


class Estimator(Protocol):
    """Gives the effect with any kind of standard error."""

    def estimate(self, kind: str) -> Estimate:
        """The effect and its error."""
        ...


def estimator(name: str, comparison: Comparison) -> Estimator:
    """The estimator of that name for this comparison."""
    if not comparison.arms[0].n or not comparison.arms[comparison.arm].n:
        raise EstimateError("an arm has no records yet.")
    return ESTIMATORS[name](comparison)


def overall_mean(arms: Sequence[ArmTally], frame: Frame) -> Floats:
    """The weighted mean of x = [1, covariates] over all records, in the frame."""
    k = arms[0].shape.regressors
    total = np.zeros(k)
    for arm in arms:
        R = arm.factor.R @ arm.frame.change_to(frame)
        total += R[0, 0] * R[0, :k]  # the first row of R'R
    mean: Floats = total / total[0]
    return mean


def _difference(comparison: Comparison) -> MeanDifference:
    arms = comparison.arms
    frame, center = common_frame(comparison)
    models = []
    for a, arm in enumerate(arms):
        L = np.zeros((len(arms), arm.shape.regressors))
        L[a, 0] = 1
        models.append(ArmModel(arm, L))
    base, treated = np.eye(len(arms))[[0, comparison.arm]]
    return MeanDifference(Fit(models, comparison.outcome, frame), treated - base, base, center)


def _regression(comparison: Comparison) -> Contrast:
    arms = comparison.arms
    frame, center = common_frame(comparison)
    k, A = arms[0].shape.regressors, len(arms)
    models = []
    for a, arm in enumerate(arms):
        L = np.zeros((A + k - 1, k))
        L[a, 0] = 1
        L[A:, 1:] = np.eye(k - 1)
        models.append(ArmModel(arm, L))
    effect, base = np.zeros((2, A + k - 1))
    effect[comparison.arm], effect[0] = 1, -1
    base[0], base[A:] = 1, overall_mean(arms, frame)[1:]
    return Contrast(Fit(models, comparison.outcome, frame), effect, base, center)


def _interacted(comparison: Comparison) -> Contrast:
    arms = comparison.arms
    frame, center = common_frame(comparison)
    k, A = arms[0].shape.regressors, len(arms)
    models = []
    for a, arm in enumerate(arms):
        L = np.zeros((A * k, k))
        L[a * k : (a + 1) * k] = np.eye(k)
        models.append(ArmModel(arm, L))
    mean = overall_mean(arms, frame)
    treated, base = np.zeros((2, A * k))
    treated[comparison.arm * k : (comparison.arm + 1) * k] = mean
    base[:k] = mean
    extra = MeanVariance(arms, frame, mean) if comparison.population else None
    return Contrast(Fit(models, comparison.outcome, frame), treated - base, base, center, extra)


def common_frame(comparison: Comparison) -> tuple[Frame, float]:
    """A frame for all arms, and what the outcome is centred at in it: the control's mean."""
    control = comparison.arms[0]
    R = control.factor.R
    mean = float(R[0] / R[0, 0] @ control.frame.F[:, control.shape.regressors + comparison.outcome])
    return plain_frame(control, mean), mean


def plain_frame(arm: ArmTally, center: float) -> Frame:
    """The arm's frame for the covariates; outcomes in their own units, at most shifted, so that effects are too."""
    k = arm.shape.regressors
    F = arm.frame.F.copy(order="F")
    F[:, k:] = 0
    F[0, k:] = center
    F[range(k, len(F)), range(k, len(F))] = 1
    return Frame(F, arm.frame.n)


def _slopes(fit: Fit, contrast: Floats) -> Floats:
    """How the contrast moves with the covariates' mean: each arm's coefficients times the arm's share in it."""
    k = fit.models[0].arm.shape.regressors
    shares, coef = contrast.reshape(-1, k)[:, :1], fit.coef.reshape(-1, k)
    slopes: Floats = (shares * coef).sum(axis=0)
    return slopes


def _root(variance: float) -> float:
    """The square root, of zero where rounding left a zero variance below it."""
    return float(np.sqrt(max(variance, 0.0)))


ESTIMATORS: dict[str, Callable[[Comparison], Estimator]] = {
    "difference": _difference,
    "regression": _regression,
    "interacted": _interacted,
    "ipw": WeightedOutcomes,
}
