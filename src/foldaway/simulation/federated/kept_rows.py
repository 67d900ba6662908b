"""The other analysis of a simulated trial: every row kept, one regression, errors clustered by client."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from foldaway.least_squares import LeastSquares
from foldaway.numerics.block import Floats
from foldaway.simulation.federated.population import World, clients


class KeptRows(NamedTuple):
    """What an analysis of kept rows says.

    Attributes:
        estimate: The effect of treatment.
        std_error: Its standard error, clustered by client (CR1).
        by: Who did the analysis.
    """

    estimate: float
    std_error: float
    by: str


def analysed(world: World, *, reported_only: bool) -> KeptRows:
    """The regression on all rows, or on those of clients who report; without covariates, a mean in each arm."""
    X, y, client = _rows(world, reported_only)
    if X.shape[1] > 2:
        coef, error, by = _regression(X, y, client)
        return KeptRows(coef[1], error[1], by)
    control, treated = (_regression(X[mine, :1], y[mine], client[mine]) for mine in (X[:, 1] == 0, X[:, 1] == 1))
    return KeptRows(treated[0][0] - control[0][0], math.hypot(treated[1][0], control[1][0]), control[2])


def _regression(X: Floats, y: Floats, client: Floats) -> tuple[list[float], list[float], str]:
    """Coefficients, their errors, and who did it."""
    try:
        import statsmodels.api as sm
    except ModuleNotFoundError:
        fit = LeastSquares(["1", "treated", "before"][: X.shape[1]])
        fit.fold(X, y, cluster=client)
        return fit.coef.tolist(), fit.std_error("CR1").tolist(), "foldaway's LeastSquares on kept rows"
    fitted = sm.OLS(y, X).fit(cov_type="cluster", cov_kwds={"groups": client})
    return fitted.params.tolist(), fitted.bse.tolist(), "statsmodels on kept rows"


def _rows(world: World, reported_only: bool) -> tuple[Floats, Floats, Floats]:
    plan = world.plan
    rows: list[list[float]] = []
    for start in world.chunks:
        for client in clients(world, plan, start):
            if reported_only and client.role != "reports":
                continue
            treated = float(plan.assign(client.identity) == "treatment")
            for record in client.records:
                before = [record["revenue_before"]] if plan.covariates else []
                rows.append([client.number, record["revenue"], 1.0, treated, *before])
    table = np.array(rows)
    return table[:, 2:], table[:, 1], table[:, 0]
