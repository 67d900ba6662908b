"""Least squares from the arms' tallies: coefficients and their covariance, in any model linear in the rows.

Every estimator of foldaway is one regression. In arm a, record i has the model row L_a x_i and the response
c_a y_i, where x = [1, covariates]: stack the arms' factors times these maps, factor once more, and the
coefficients, the residual sum of squares and the bread are there. The meat is the arms' score tallies, mapped
alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol, cast

import numpy as np

from foldaway.errors import EstimateError
from foldaway.numerics.block import Floats
from foldaway.numerics.linalg import solve_upper
from foldaway.tallies.moments.arm import ArmTally
from foldaway.tallies.moments.frame import NO_DIRECTION, Frame

# A column of which less than this share is left, once the intercept and then the columns before it are taken out, adds
# no direction: rounding is more than a millionth of what is left.
COLLINEAR = 1e-10

# Residuals that are this share of the response have lost half of their digits.
_NO_RESIDUAL = 1e-8

# So has a variance that is this share of what it is the difference of.
_CANCELLED = 1e-8

_NOT_IDENTIFIED = 1e-7


class ClusterScores(Protocol):
    """What an arm must know of its clusters for a robust variance: a score tally, or scores that were collected."""

    n: int
    clusters: int

    @property
    def scored(self) -> int:
        """The clusters whose scores are in the meat: all, but for devices that have not replied."""
        ...

    def meat(self, outcome: int, delta: Floats, scale: float = 1.0) -> Floats:
        """Σ_j u_j u_j' with u_j = Σ_i x (scale·y − x'δ), in the arm's frame."""
        ...

    @property
    def squared_sums(self) -> Floats | None:
        """Σ_j s_j s_j' with s_j = Σ_i x, in the arm's frame; None where clusters do not tell."""
        ...


class Units(NamedTuple):
    """How many clusters an arm has.

    Attributes:
        scored: Those whose scores are in the meat.
        effective: (Σ n_j)² / Σ n_j² over their numbers of records: how many of equal size tell as much.
        carries: How many coefficients rest on differences between them, beside their mean; 0 where that is not known.
    """

    scored: int
    effective: float
    carries: float


class ModelRows(NamedTuple):
    """How a model reads an arm's framed rows s: model row = rows · s_x, residual = scale·s_y − s_x'δ."""

    rows: Floats
    delta: Floats
    scale: float


@dataclass(frozen=True)
class ArmModel:
    """One arm in a model: row = L x (q by k, x in the model's frame), response = scale · y."""

    arm: ArmTally
    L: Floats
    scale: float = 1.0


class Fit:
    """A regression over the arms.

    Attributes:
        coef: Coefficients of the model's columns; zero where a column adds no direction.
        n: Records.
        rank: Columns that add a direction.
        rss: Weighted sum of squared residuals.
    """

    def __init__(self, models: Sequence[ArmModel], outcome: int, frame: Frame) -> None:
        self.models = models
        self.outcome = outcome
        self.n = sum(model.arm.n for model in models)
        self._sandwiches: dict[str, list[Floats]] = {}
        self._sizes: dict[str, list[tuple[Floats, Floats]]] = {}
        self._changes = [model.arm.frame.change_to(frame) for model in models]
        self._k = k = models[0].arm.shape.regressors
        self._column = k + outcome
        factors = [model.arm.factor.R @ B for model, B in zip(models, self._changes, strict=True)]
        # Each arm's factor in the model's frame, as rows [L x, scale·y].
        rows = ((R[:, :k] @ m.L.T, m.scale * R[:, self._column]) for m, R in zip(models, factors, strict=True))
        stacked = np.vstack([np.column_stack(each) for each in rows])
        if not np.isfinite(stacked).all():
            raise EstimateError("the tallies hold numbers that are too large to work with.")
        self._solve(_triangle(stacked), _least(models, factors, frame))

    def _solve(self, R: Floats, least: Floats) -> None:
        q = R.shape[1] - 1
        self.used = directions(R[:, :q], least)
        self.left_out = [column for column in range(q) if column not in self.used]
        self.rank = r = len(self.used)
        if not r:
            raise EstimateError("there are no records to fit.")
        if self.left_out:
            R = _triangle(R[:, [*self.used, *self.left_out, q]])
        self._R, self._rest = R[:r, :r], R[:r, r:-1]
        self.coef = np.zeros(q)
        self.coef[self.used] = solve_upper(self._R, R[:r, -1])
        # What the kept columns leave of the response stands below their rows.
        self.rss = float(np.sum(R[r:, -1] ** 2))
        self._explained = bool(self.rss <= (_NO_RESIDUAL * np.linalg.norm(R[:, -1])) ** 2)

    @property
    def df(self) -> int:
        """Residual degrees of freedom, n − rank."""
        return self.n - self.rank

    @cached_property
    def bread(self) -> Floats:
        """(Σ x x')⁻¹, zero in the rows and columns of those left out."""
        return self._spread(self._inverse @ self._inverse.T)

    @cached_property
    def _inverse(self) -> Floats:
        return solve_upper(self._R, np.eye(self.rank))

    def _spread(self, matrix: Floats) -> Floats:
        full = np.zeros((len(self.coef), len(self.coef)))
        full[np.ix_(self.used, self.used)] = matrix
        return full

    def robust(self, tally: str, factors: Sequence[float] | None = None) -> Floats:
        """bread · meat · bread, the meat from each arm's tally of that name, times the arm's factor if there is one."""
        arms = self.sandwiches(tally)
        scaled = arms if factors is None else [factor * arm for factor, arm in zip(factors, arms, strict=True)]
        return sum(scaled, np.zeros_like(arms[0]))

    def sandwiches(self, tally: str) -> list[Floats]:
        """Each arm's part of it.

        The bread is applied to each arm's rows in the arm's own frame, before the meat: taken into a frame in which
        they are long or short, the scores of an arm would lose the square of that.
        """
        # HC1 is HC0 scaled, and each is asked for by effect and relative effect: the sandwich is made once.
        if tally not in self._sandwiches:
            read = [(self._clusters(tally, a), self.reading(a)) for a in range(len(self.models))]
            meats = [clusters.meat(self.outcome, reading.delta, reading.scale) for clusters, reading in read]
            self._sandwiches[tally] = [self._around(a, meat) for a, meat in enumerate(meats)]
        return self._sandwiches[tally]

    def _around(self, arm: int, meat: Floats) -> Floats:
        half = self._inverse @ (self._inverse.T @ self.reading(arm).rows)
        return self._spread(half @ meat @ half.T)

    def alike(self, tally: str, arm: int) -> Floats:
        """An arm's part of the covariance, up to a factor, if its records differed by their cluster alone."""
        return self._around(arm, self._squared_sums(tally, arm)) * self.models[arm].scale ** 2

    def units(self, tally: str, arm: int) -> Units:
        """An arm's clusters."""
        clusters = self._clusters(tally, arm)
        squared = self._squared_sums(tally, arm)
        if not squared[0, 0]:
            return Units(clusters.scored, 0.0, 0.0)
        weight = float(self.models[arm].arm.factor.R[0, 0]) ** 2
        carries = 0.0
        if clusters.squared_sums is not None:
            carries = float(np.sum(self.leverage(arm) * squared)) * weight / float(squared[0, 0]) - 1
        return Units(clusters.scored, weight * (weight / float(squared[0, 0])), carries)

    def _squared_sums(self, tally: str, arm: int) -> Floats:
        """Σ_j (Σ_{i∈j} z_i)(Σ_{i∈j} z_i)'; where it is not kept, n̄ Σ z z', as if clusters had n̄ equal records."""
        clusters = self._clusters(tally, arm)
        if clusters.squared_sums is not None:
            return clusters.squared_sums
        R = self.models[arm].arm.factor.R[:, : self._k]
        assumed: Floats = R.T @ R * (R[0, 0] ** 2 / max(clusters.scored, 1))
        return assumed

    def has_cancelled(self, variance: float, contrast: Floats, tally: str) -> bool:
        """Whether a contrast's variance, from that tally or from none, is rounding for the most part.

        Either the model explains the response, but for rounding, or the clusters that the contrast rests on: their
        scores are zero, and those of others cancel.
        """
        if self._explained or not tally:
            return self._explained
        if tally not in self._sizes:
            self._sizes[tally] = [self._size(tally, a) for a in range(len(self.models))]
        direction = self._inverse @ (self._inverse.T @ contrast[self.used])
        size = math.hypot(*(float(np.abs(direction @ rows) @ lengths) for rows, lengths in self._sizes[tally]))
        return math.sqrt(max(variance, 0)) <= math.sqrt(_CANCELLED) * size  # whose squares might overflow

    def _size(self, tally: str, arm: int) -> tuple[Floats, Floats]:
        """An arm's rows, and how long what they are multiplied with would be if nothing cancelled."""
        reading, clusters = self.reading(arm), self._clusters(tally, arm)
        # With y turned around, what was subtracted is added.
        both = sum(clusters.meat(self.outcome, reading.delta, side * reading.scale) for side in (1, -1))
        return reading.rows, np.sqrt(np.maximum(np.diag(both), 0))

    def reading(self, arm: int) -> ModelRows:
        """The model in an arm's own frame; there δ is small, and nothing large cancels in the residual."""
        model, B, k = self.models[arm], self._changes[arm], self._k
        delta = B[:k, :k] @ (model.L.T @ self.coef) - model.scale * B[:k, self._column]
        scale = float(model.scale * B[self._column, self._column])
        return ModelRows((model.L @ B[:k, :k].T)[self.used], delta, scale)

    def leverage(self, arm: int) -> Floats:
        """V (k by k) with X V X' the part of the hat matrix that belongs to rows X of an arm, in the arm's frame."""
        half = self._inverse.T @ self.reading(arm).rows
        return half.T @ half

    def clusters(self, tally: str) -> list[int]:
        """How many clusters that tally has, by arm."""
        return [self._clusters(tally, a).clusters for a in range(len(self.models))]

    def _clusters(self, tally: str, arm: int) -> ClusterScores:
        return cast(ClusterScores, self.models[arm].arm.tallies[tally])

    def covers(self, tally: str) -> bool:
        """Whether that tally exists and has seen every record."""
        arms = [model.arm for model in self.models]
        return all(tally in arm.tallies and arm.tallies[tally].n == arm.n for arm in arms)

    def require_identified(self, contrast: Floats) -> None:
        """Refuse a contrast that depends on how a column without direction is counted."""
        if self.rank == len(self.coef):
            return
        gap = contrast[self.left_out] - (self._inverse @ self._rest).T @ contrast[self.used]
        if np.any(np.abs(gap) > _NOT_IDENTIFIED):
            raise EstimateError("the covariates are collinear within an arm, so the effect is not identified.")


def _triangle(rows: Floats) -> Floats:
    R: Floats = np.linalg.qr(rows, mode="r")  # type: ignore[assignment]
    return R


def _least(models: Sequence[ArmModel], factors: Sequence[Floats], frame: Frame) -> Floats:
    """How long a column must be, in the frame, after those before it: so that the digits it came with show it.

    A frame brings every column to about one length, however little of it the others leave. What counts is the share in
    the column as it came; or in what the intercept leaves of it, for that is taken out without rounding.
    """
    k = models[0].arm.shape.regressors
    whole, about = np.zeros((2, len(models[0].L)))
    # In each arm a column of the model is one of the frame's, up to a factor, or zero.
    shares = np.sum([np.abs(model.L) for model in models], axis=0)
    scale = shares @ np.abs(np.diag(frame.F)[:k]) / shares.sum(axis=1)
    for model, R in zip(models, factors, strict=True):
        whole += np.sum((R[:, :k] @ frame.F[:k, :k] @ model.L.T) ** 2, axis=0)
        about += np.sum((R[:, 1:k] @ frame.F[1:k, 1:k] @ model.L[:, 1:].T) ** 2, axis=0)
    least: Floats = np.maximum(NO_DIRECTION * np.sqrt(whole), COLLINEAR * np.sqrt(about)) / scale
    return least


def directions(columns: Floats, least: Floats) -> list[int]:
    """The columns of which more than the least length is left after those before them, by Gram–Schmidt done twice."""
    basis = np.empty((len(columns), 0))
    chosen: list[int] = []
    for column in range(columns.shape[1]):
        rest = columns[:, column] - basis @ (basis.T @ columns[:, column])
        rest -= basis @ (basis.T @ rest)
        left = np.linalg.norm(rest)
        if left > least[column]:
            basis = np.column_stack([basis, rest / left])
            chosen.append(column)
    return chosen
