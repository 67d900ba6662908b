"""The predictor: what makes ỹ of a record, and sums of moments.

With coefficients β₀ and means x̄₀ fixed, a record is one number more, ỹ = y − (x − x̄₀)'β₀, and its covariates are used
and gone in the same step.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from foldaway.numerics.block import Floats
from foldaway.tallies.group_moments import GroupMoments
from foldaway.tallies.sums import Sums, SumsShape


class Predictor(NamedTuple):
    """What makes ỹ of a record.

    Attributes:
        center: x̄₀, by covariate column.
        slopes: β₀, by outcome and covariate column.

    Example:
        >>> predictor = Predictor(np.array([10.0]), np.array([[2.0]]))
        >>> predictor.adjusted(np.array([[11.0, 9.0]]), np.array([[5.0, 5.0]]))
        array([[3., 7.]])
    """

    center: Floats
    slopes: Floats

    def adjusted(self, x: Floats, y: Floats) -> Floats:
        """ỹ of records: covariates x (columns by n, without the intercept) and outcomes y (outcomes by n)."""
        predicted: Floats = self.slopes @ (x - self.center[:, None])
        return y - predicted


def lean(moments: GroupMoments, predictor: Predictor | None, without: Floats | None = None) -> Sums:
    """The moments as sums of y and ỹ by arm and group; the covariates are gone.

    Args:
        moments: Of some records.
        predictor: What makes their ỹ; None gives sums of y alone.
        without: If it was fitted to these very records, the slopes without each group (groups by
            outcomes by columns), from which its ỹ comes instead.
    """
    arms, groups, row, weighted = moments.shape
    k, O = row.regressors, row.outcomes  # noqa: E741
    F = moments.frame.F
    shape = SumsShape(arms, O, groups, predictor is not None, weighted)
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
    ).settled()
