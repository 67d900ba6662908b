"""The predictor: what makes ỹ of a record, and sums of moments.

With coefficients β₀ and means x̄₀ fixed, a record is one number more, ỹ = y − (x − x̄₀)'β₀, and its covariates are used
and gone in the same step.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import numpy as np

from foldaway.numerics.block import Floats
from foldaway.plan import Plan
from foldaway.tallies.group_moments import GroupMoments
from foldaway.tallies.sums import Sums, SumsShape


class Predictor(NamedTuple):
    """What makes ỹ of a record.

    Attributes:
        center: x̄₀, by covariate column.
        slopes: β₀, by outcome and covariate column.
        reach: The least and the largest prediction (x − x̄₀)'β₀ of each outcome, which others are clipped to; None
            without a release. A function of covariates alone, a clipped prediction is as good a one as any.

    Example:
        >>> predictor = Predictor(np.array([10.0]), np.array([[2.0]]))
        >>> predictor.adjusted(np.array([[11.0, 9.0]]), np.array([[5.0, 5.0]]))
        array([[3., 7.]])
    """

    center: Floats
    slopes: Floats
    reach: Floats | None = None

    @property
    def digest(self) -> str:
        """SHA-256 of the coefficients, the same for the same ones; people compare its first twelve digits."""
        parts = (np.asarray(part, dtype="<f8") + 0.0 for part in (self.center, self.slopes))  # -0.0 is 0.0
        return hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()

    def adjusted(self, x: Floats, y: Floats, *, compiled: bool = False) -> Floats:
        """ỹ of records: covariates x (columns by n, without the intercept) and outcomes y (outcomes by n)."""
        if compiled and self.reach is None:
            from foldaway.numerics.kernels.sums import adjusted

            return adjusted(x, y, self.center, self.slopes)
        predicted: Floats = self.slopes @ (x - self.center[:, None])
        if self.reach is not None:
            predicted = np.clip(predicted, self.reach[:, :1], self.reach[:, 1:])
        return y - predicted


def predictor_of(plan: Plan) -> Predictor | None:
    """The predictor that the plan's coefficients make."""
    if plan.coefficients is None:
        return None
    names, tables = plan.predictors[1:], plan.coefficients
    slopes = [[tables.slopes[value.name][name] for name in names] for value in plan.values]
    predictor = Predictor(np.array([tables.center[name] for name in names]), np.array(slopes))
    return predictor if plan.release is None else predictor._replace(reach=_reach(plan, predictor))


def _reach(plan: Plan, predictor: Predictor) -> Floats:
    """Between what each outcome's predictions lie, covariates being within their bounds; at most the outcome's range.

    Of a categorical covariate's columns at most one is 1.
    """
    names = plan.predictors[1:]
    ends = np.zeros((len(plan.values), 2))
    for covariate in plan.covariates:
        if covariate in plan.levels:
            own = [names.index(f"{covariate}[{level}]") for level in plan.levels[covariate][1:]]
            with_level = np.pad(predictor.slopes[:, own], ((0, 0), (1, 0)))
            least = -(predictor.slopes[:, own] @ predictor.center[own])[:, None] + with_level
        else:
            place = names.index(covariate)
            least = predictor.slopes[:, place, None] * (np.array(plan.bounds[covariate]) - predictor.center[place])
        ends += np.stack([least.min(axis=1), least.max(axis=1)], axis=1)
    ranges = np.array([np.ptp(bounds) for bounds in plan.value_bounds])[:, None]
    return np.clip(ends, -ranges, ranges)


def lean(
    moments: GroupMoments,
    predictor: Predictor | None,
    without: Floats | None = None,
    pairs: tuple[tuple[int, int], ...] = (),
) -> Sums:
    """The moments as sums of y and ỹ by arm and group; the covariates are gone.

    Args:
        moments: Of some records.
        predictor: What makes their ỹ; None gives sums of y alone.
        without: If it was fitted to these very records, the slopes without each group (groups by
            outcomes by columns), from which its ỹ comes instead.
        pairs: Outcomes whose products are wanted too.
    """
    arms, groups, row, weighted = moments.shape
    k, O = row.regressors, row.outcomes  # noqa: E741
    F = moments.frame.F
    shape = SumsShape(arms, O, groups, predictor is not None, weighted, pairs=pairs)
    # Each column as a combination of the framed row, group by group: v = z'c.
    columns = np.repeat(F[:, k:].T[None], groups, axis=0)  # groups, columns, K
    if predictor is not None:
        slopes = np.repeat(predictor.slopes[None], groups, axis=0) if without is None else without
        x = F[:, 1:k].T.copy()
        x[:, 0] -= predictor.center  # the framed row begins with 1
        columns = np.concatenate([columns, columns - slopes @ x], axis=1)
    weight = moments.moments[..., 0, 0]
    sums = np.einsum("agi,gvi->agv", moments.moments[..., 0, :], columns)
    level = sums.sum(axis=(0, 1)) / max(weight.sum(), 1e-300)
    columns[..., 0] -= level
    second = moments.moments if moments.squared is None else moments.squared
    mass = second[..., 0, 0].sum(axis=1)
    first = np.einsum("agi,gvi->av", second[..., 0, :], columns)
    safe = np.where(mass > 0, mass, 1)[:, None]

    def products(left: Floats, right: Floats) -> Floats:
        summed: Floats = np.einsum("gvi,agij,gvj->av", left, second, right, optimize=True)
        return summed

    cross = None
    if shape.adjusted:
        cross = products(columns[:, :O], columns[:, O:]) - first[:, :O] * first[:, O:] / safe
    joint = None
    if pairs:
        one, two = (np.array([shape.block(pair[side]) for pair in pairs]) for side in (0, 1))
        joint = np.einsum("gpvi,agij,gpwj->apvw", columns[:, one], second, columns[:, two], optimize=True)
        joint -= first[:, one][..., :, None] * first[:, two][..., None, :] / safe[..., None, None]
    return Sums(
        shape,
        level=level,
        records=moments.records,
        present=None,
        weight=weight[..., None] if weighted else None,
        total=np.einsum("agi,gvi->agv", moments.moments[..., 0, :], columns),
        mass=np.repeat(mass[:, None], O, axis=1),
        first=first,
        square=np.maximum(products(columns, columns) - first**2 / safe, 0),
        cross=cross,
        absolute=moments.absolute,
        joint=joint,
    ).settled()
