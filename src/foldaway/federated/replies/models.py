"""The regressions that devices reply to in mode scores: what is published of them, and where a reply's numbers stand.

Everything is in one frame, in which the rows of all arms together are orthonormal up to one scale: a score there loses
no digits to a large mean, δ is small, and what devices are sent holds no arm's own second moments.

A device's reply to a model is X'E, with X the first q columns of its framed
rows and E its residuals. Those without covariates use the intercept alone (q = 1). E has the intercept in front for
those by inverse probabilities, whose effect for any arm, and relative to the control, is a combination of the two.

Only the holder of a cluster's records can correct for leverage. The residuals of a cluster that has pulled the fit
towards itself are too small. With H_jj = X_j V X_j' the cluster's part of the hat matrix, CR2 (Bell and McCaffrey 2002)
uses (I − H_jj)^(−1/2) e_j, which makes the variance unbiased where errors are independent and alike; CR3 uses
(I − H_jj)⁻¹ e_j, the residuals of a fit without the cluster, and so is the jackknife over clusters (MacKinnon, Nielsen
and Webb 2023; ``inference.variance`` has the factor).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Literal, NamedTuple

import numpy as np

from foldaway.errors import EstimateError, MessageError
from foldaway.federated.messages import Model, PublishedCoefficients, packed, unpacked
from foldaway.inference.contrast import Question
from foldaway.inference.estimators import estimator
from foldaway.numerics.block import Floats
from foldaway.numerics.linalg import frame_rows
from foldaway.plan import Plan
from foldaway.plan.analysis import estimators_of
from foldaway.plan.vocabulary import ESTIMATORS
from foldaway.tallies.moments import ArmTally, Frame

# A direction with no more than this share left is one that the cluster alone determines: no residual says anything
# about it, and it is left out, as by the Moore–Penrose inverse.
_ALONE = 1e-8

_POWER = {"CR2": -0.5, "CR3": -1.0}


class ReplySegment(NamedTuple):
    """The part of a reply that belongs to one model: X'E, q by r, plain or corrected for leverage.

    Its numbers, and their products with one another, begin at these places among those of all parts.
    """

    model: Model
    corrected: bool
    q: int
    r: int
    start: int
    products_start: int

    @property
    def place(self) -> slice:
        """Where its numbers stand in the reply."""
        return slice(self.start, self.start + self.q * self.r)


def leverage_of(plan: Plan) -> Literal["CR2", "CR3"] | None:
    """The leverage correction that the plan asks for, if it does."""
    return None if plan.federated is None else plan.federated.leverage


def segments(models: Sequence[Model]) -> list[ReplySegment]:
    """The parts of a reply, in order."""
    parts: list[ReplySegment] = []
    start = products_start = 0
    for model in models:
        q, r = model.regressors, 2 if model.intercept else 1
        for corrected in (False,) if model.breads is None else (False, True):
            parts.append(ReplySegment(model, corrected, q, r, start, products_start))
            start, products_start = start + q * r, products_start + (q * r) ** 2
    return parts


def read_as(plan: Plan, name: str) -> tuple[int, bool]:
    """How many regressors a model has, and whether devices sum the intercept beside the residual."""
    word = ESTIMATORS[name]
    return len(plan.regressors) if word.adjusts else 1, bool(word.residuals_of)


def in_one_frame(arms: Sequence[ArmTally]) -> list[ArmTally]:
    """The arms in the frame that all their records together make: it says nothing of one arm's moments."""
    filled = [arm for arm in arms if arm.n]
    if not filled:
        return list(arms)
    R: Floats = np.linalg.qr(np.vstack([arm.raw_factor() for arm in filled]), mode="r")  # type: ignore[assignment]
    R *= np.where(np.diag(R) < 0, -1.0, 1.0)[:, None]
    frame = Frame.of(np.asfortranarray(R), filled[0].shape, sum(arm.n for arm in filled))
    return [arm.rebase(Frame(frame.F, arm.n)) if arm.n else arm for arm in arms]


def models_of(plan: Plan, arms: Sequence[ArmTally]) -> list[Model]:
    """Every regression of the plan that the arms' moments can be fitted to."""
    models = []
    for outcome in range(len(plan.values)):
        for name in estimators_of(plan):
            with suppress(EstimateError):  # the final effects say why
                models.append(_model(plan, arms, name, outcome))
    return models


def _model(plan: Plan, arms: Sequence[ArmTally], name: str, outcome: int) -> Model:
    # All arms are in one fit, whichever of them is compared with the control.
    question = Question(arms, list(plan.arms.values()), 1, outcome)
    word = ESTIMATORS[name]
    own = estimator(name, question)
    # Scores by inverse probabilities are combined from residuals about the arm's mean.
    contrast = estimator(word.residuals_of, question) if word.residuals_of else own
    places = range(len(arms))
    deltas = [packed(contrast.fit.reading(a).delta) for a in places]
    breads: list[bytes] | None = None
    q, intercept = read_as(plan, name)
    if leverage_of(plan) is not None:
        hats = [own.fit.leverage(a) for a in places]
        breads = [packed(hat[:q, :q]) for hat in hats]
    return Model(name, outcome, q, intercept, deltas, breads)


def frame_of(published: PublishedCoefficients, columns: int) -> Floats:
    """The frame again, K by K."""
    F = np.zeros((columns, columns), order="F")
    F[np.triu_indices(columns)] = unpacked(published.frame, columns * (columns + 1) // 2)
    return F


def readings(segment: ReplySegment, arm: int, F: Floats, framed: Floats, k: int) -> tuple[Floats, Floats]:
    """X and E of framed rows, as a model reads them: of a device's records, or of an arm's factor."""
    column = k + segment.model.outcome
    delta = unpacked(segment.model.deltas[arm], k)
    e = F[column, column] * framed[:, column] - framed[:, :k] @ delta
    columns = [framed[:, 0], e] if segment.r == 2 else [e]
    return framed[:, : segment.q], np.column_stack(columns)


def reply(
    plan: Plan, published: PublishedCoefficients, arm: str, rows: Floats, weights: Floats | None = None
) -> Floats:
    """A device's scores for every published model, to be sent as they are; of its rows z = [1, x, y], n by K."""
    k, columns, leverage = len(plan.regressors), len(plan.columns), leverage_of(plan)
    a = list(plan.arms).index(arm)
    if any(len(model.deltas) != len(plan.arms) for model in published.models):
        raise MessageError("what was published does not fit the plan: it has another number of arms.")
    F = frame_of(published, columns)
    framed = frame_rows(F, np.asfortranarray(rows, dtype=np.float64))
    if weights is not None:
        framed *= np.sqrt(weights)[:, None]
    parts = []
    for segment in segments(published.models):
        X, E = readings(segment, a, F, framed, k)
        if not segment.corrected:
            parts.append(X.T @ E)
        elif segment.model.breads is not None and leverage is not None:
            bread = unpacked(segment.model.breads[a], segment.q**2).reshape(segment.q, segment.q)
            parts.append(corrected_score(X, E, bread, leverage))
    return np.concatenate([np.empty(0), *(part.ravel() for part in parts)])


def corrected_score(X: Floats, e: Floats, bread: Floats, kind: Literal["CR2", "CR3"]) -> Floats:
    """X'(I − H)^(−1/2) e for CR2, X'(I − H)⁻¹ e for CR3, with H = X · bread · X'.

    Args:
        X: The cluster's rows, n by q.
        e: Its residuals: n, or n by any number of columns.
        bread: q by q, symmetric, positive semi-definite.
        kind: The correction.

    Example:
        >>> X, e = np.ones((2, 1)), np.array([1.0, 3.0])
        >>> corrected_score(X, e, np.array([[1 / 8]]), "CR3")  # H has 1/8 everywhere: (I − H)⁻¹ 1 = 1 / (1 − 2/8)
        array([5.33333333])
    """
    # With bread = C C' and X C = U S W', I − H has eigenvalues 1 − s² along U and 1 elsewhere: no n by n matrix.
    values, vectors = np.linalg.eigh(bread)
    U, s, _ = np.linalg.svd(X @ (vectors * np.sqrt(np.maximum(values, 0.0))), full_matrices=False)
    left = 1.0 - s**2
    alone = left <= _ALONE
    factor = np.where(alone, 0.0, np.where(alone, 1.0, left) ** _POWER[kind])
    corrected: Floats = X.T @ e + (X.T @ U) @ (((factor - 1.0) * (U.T @ e).T).T)
    return corrected
