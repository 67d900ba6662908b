"""A device's reply: its scores for the published regressions, plain and corrected for leverage.

Only the holder of a cluster's records can correct for leverage. The residuals of a cluster that has pulled the fit
towards itself are too small. With H_jj = X_j V X_j' the cluster's part of the hat matrix, CR2 (Bell and McCaffrey 2002)
uses (I − H_jj)^(−1/2) e_j, which makes the variance unbiased where errors are independent and alike; CR3 uses
(I − H_jj)⁻¹ e_j, the residuals of a fit without the cluster, and so is the jackknife over clusters (MacKinnon, Nielsen
and Webb 2023; ``inference.variance`` has the factor).
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from foldaway.errors import MessageError
from foldaway.federated.messages import Coefficients, unpacked
from foldaway.federated.replies.models import frame_of, leverage_of, readings, segments
from foldaway.numerics.block import Floats
from foldaway.numerics.linalg import frame_rows
from foldaway.plan import Plan

# A direction with no more than this share left is one that the cluster alone determines: no residual says anything
# about it, and it is left out, as by the Moore–Penrose inverse.
_ALONE = 1e-8

_POWER = {"CR2": -0.5, "CR3": -1.0}


def reply(plan: Plan, published: Coefficients, arm: str, rows: Floats, weights: Floats | None = None) -> Floats:
    """A device's scores for every published model, to be sent as they are.

    Args:
        plan: The plan.
        published: What the coordinator has published.
        arm: The device's arm.
        rows: Its records z = [1, x, y], n by K.
        weights: Their observation weights, if the plan has them.
    """
    k, columns, leverage = len(plan.regressors), len(plan.columns), leverage_of(plan)
    a = list(plan.arms).index(arm)
    if any(len(model.deltas) != len(plan.arms) for model in published.models):
        raise MessageError("what was published does not fit the plan: it has another number of arms.")
    F = frame_of(published, columns)
    framed = frame_rows(F, np.asfortranarray(rows, dtype=np.float64))
    if weights is not None:
        framed *= np.sqrt(weights)[:, None]
    parts = []
    for segment in segments(published.models, k):
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
