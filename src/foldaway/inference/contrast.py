"""What estimators share: the question, a design, and a contrast of its coefficients as the answer.

A design says once what an estimator is: a regression over the arms, and how the control's level and the arm's are read
from its coefficients. A `Regression` is solved by QR on the arms' factors, whose errors are sandwiches of that fit; and
by the normal equations of every replicate of the bootstrap at once.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from foldaway.errors import EstimateError
from foldaway.inference.bootstrap import ArmReplicates, Replicated, lengths, solve
from foldaway.inference.few_units import degrees_of_freedom
from foldaway.inference.fit import ArmModel, Fit
from foldaway.inference.variance import covariance
from foldaway.numerics.block import Floats
from foldaway.plan.vocabulary import ERRORS
from foldaway.tallies.moments.arm import ArmTally
from foldaway.tallies.moments.frame import Frame


class Question(NamedTuple):
    """What an estimator is asked: the effect of an arm, against the control, on an outcome."""

    arms: Sequence[ArmTally]
    probabilities: Sequence[float]
    arm: int
    outcome: int
    population: bool = False


class EffectAndLevel(NamedTuple):
    """An effect and the control's level, with their errors and covariance."""

    estimate: float
    std_error: float
    df: float
    base: float
    base_std_error: float
    covariance: float


class Design(NamedTuple):
    """A regression over the arms.

    Attributes:
        maps: By arm, L: a record with the regressors x = [1, covariates] has the model row L x (q by k).
        scales: By arm, what its outcome is multiplied by.
        levels: From the mean of x over all records (…, k), the control's level and the arm's as combinations of the
            coefficients (…, 2, q).
    """

    maps: Sequence[Floats]
    scales: Sequence[float]
    levels: Callable[[Floats], Floats]


class Contrast:
    """A fit, and the combinations of its coefficients that are the effect and the control's level."""

    def __init__(self, fit: Fit, effect: Floats, base: Floats, center: float) -> None:
        self.fit = fit
        self.effect = effect
        self.base = base
        self.center = center

    def point(self) -> EffectAndLevel:
        """The effect and the control's level; errors and degrees of freedom are NaN."""
        self.fit.require_identified(self.effect)
        value, level = float(self.effect @ self.fit.coef), float(self.base @ self.fit.coef) + self.center
        return EffectAndLevel(value, math.nan, math.nan, level, math.nan, math.nan)

    def estimate(self, kind: str) -> EffectAndLevel:
        """Both with their errors."""
        own, below, both = (self._variance(each, kind) for each in (self.effect, self.base, self.effect + self.base))
        return self.point()._replace(
            std_error=root(own),
            df=degrees_of_freedom(self.fit, kind, self.effect),
            base_std_error=root(below),
            covariance=(both - own - below) / 2 if own and below else 0.0,
        )

    def _variance(self, contrast: Floats, kind: str) -> float:
        """The variance of a combination of the coefficients; zero where rounding has left nothing of it."""
        variance = self.variance(contrast, kind)
        return 0.0 if self.fit.has_cancelled(variance, contrast, ERRORS[kind].tally) else variance

    def variance(self, contrast: Floats, kind: str) -> float:
        """The variance of a combination of the coefficients."""
        return float(contrast @ covariance(self.fit, kind) @ contrast)


class Regression(ABC):
    """An estimator that is a regression over the arms, in every way in which it is computed."""

    @abstractmethod
    def design(self, question: Question) -> Design:
        """What the estimator is."""

    def fitted(self, question: Question) -> Contrast:
        """The regression on the arms' factors."""
        frame, center = common_frame(question)
        maps, scales, levels = self.design(question)
        models = [ArmModel(*each) for each in zip(question.arms, maps, scales, strict=True)]
        base, treated = levels(overall_mean(question.arms, frame))
        return Contrast(Fit(models, question.outcome, frame), treated - base, base, center)

    def replicated(self, question: Question, arms: Sequence[ArmReplicates], center: float) -> Replicated:
        """The same regression in every replicate at once, by its normal equations.

        Args:
            question: The question.
            arms: The arms' replicates, in the common frame.
            center: What their outcomes are less.
        """
        maps, scales, levels_at = self.design(question)
        each = list(zip(maps, scales, arms, strict=True))
        square: Floats = np.sum([L @ arm.xx @ L.T for L, _, arm in each], axis=0)
        cross: Floats = np.sum([scale * arm.xy @ L.T for L, scale, arm in each], axis=0)
        columns = self.fitted(question).fit.used  # those that add no direction in the sample have none in a replicate
        coef, good = solve(square, cross, columns, lengths(square))
        total = np.sum([arm.xx[:, 0] for arm in arms], axis=0)
        levels = np.einsum("...lq,...q->...l", levels_at(total / total[:, :1]), coef)
        return levels[..., 1] - levels[..., 0], levels[..., 0] + center, good


def overall_mean(arms: Sequence[ArmTally], frame: Frame) -> Floats:
    """The weighted mean of x = [1, covariates] over all records, in the frame."""
    k = arms[0].shape.regressors
    total = np.zeros(k)
    for arm in arms:
        R = arm.factor.R @ arm.frame.change_to(frame)
        total += R[0, 0] * R[0, :k]  # the first row of R'R
    mean: Floats = total / total[0]
    return mean


def common_frame(question: Question) -> tuple[Frame, float]:
    """A frame that all arms together make, and what the outcome is centred at in it: the control's mean."""
    control, arms = question.arms[0], [arm for arm in question.arms if arm.n]
    R = control.factor.R
    mean = float(R[0] / R[0, 0] @ control.frame.F[:, control.shape.regressors + question.outcome])
    rows = np.vstack([arm.factor.R @ arm.frame.change_to(control.frame) for arm in arms])
    if not np.isfinite(rows).all():
        raise EstimateError("the tallies hold numbers that are too large to work with.")
    triangle: Floats = np.linalg.qr(rows, mode="r")  # type: ignore[assignment]
    frame = Frame.of(triangle @ control.frame.F, control.shape, sum(arm.n for arm in arms))
    return plain_frame(frame, control.shape.regressors, mean), mean


def plain_frame(frame: Frame, k: int, center: float) -> Frame:
    """The frame for the k regressors; outcomes in their own units, at most shifted, so that effects are too."""
    F = frame.F.copy(order="F")
    F[:, k:] = 0
    F[0, k:] = center
    F[range(k, len(F)), range(k, len(F))] = 1
    return Frame(F, frame.n)


def root(variance: float) -> float:
    """The square root, of zero where rounding left a zero variance below it."""
    return float(np.sqrt(max(variance, 0.0)))
