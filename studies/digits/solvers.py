"""The solvers: foldaway in several ways, libraries that see all rows at once, and the paper's literal recursion."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyfixest
import scipy.linalg
import statsmodels.api as sm

from foldaway.errors import EstimateError
from foldaway.numerics.block import Floats
from foldaway.paper import recursive_least_squares

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from ways import Way, at_once, by_row, from_shards_by_row, in_batches


class Solution(NamedTuple):
    """Coefficients and, from those that have them, classical standard errors."""

    coef: Floats
    std_error: Floats | None = None


Solver = Callable[[Floats, Floats], Solution]


def _folded(way: Way) -> Solver:
    def solve(X: Floats, y: Floats) -> Solution:
        fit = way(X, y)
        return Solution(fit.coef, fit.std_error())

    return solve


def _statsmodels(method: str) -> Solver:
    def solve(X: Floats, y: Floats) -> Solution:
        fit = sm.OLS(y, X).fit(method=method)
        return Solution(fit.params, fit.bse)

    return solve


def _pyfixest(X: Floats, y: Floats) -> Solution:
    names = [f"x{c}" for c in range(X.shape[1])]
    table = pd.DataFrame(X, columns=names)
    # A column that it leaves out has no coefficient below.
    fit: Any = pyfixest.feols(f"y ~ 0 + {' + '.join(names)}", data=table.assign(y=y), vcov="iid")
    return Solution(*(np.asarray(found.reindex(names), dtype=np.float64) for found in (fit.coef(), fit.se())))


def _lstsq(X: Floats, y: Floats) -> Solution:
    return Solution(np.asarray(np.linalg.lstsq(X, y, rcond=None)[0], dtype=np.float64))


def _scipy_qr(X: Floats, y: Floats) -> Solution:
    return Solution(scipy.linalg.lstsq(X, y, lapack_driver="gelsy")[0])


def _normal_equations(X: Floats, y: Floats) -> Solution:
    square = X.T @ X
    coef = np.asarray(np.linalg.solve(square, X.T @ y), dtype=np.float64)
    n, k = X.shape
    spread = np.diag(np.linalg.inv(square)) * (np.sum((y - X @ coef) ** 2) / (n - k))
    return Solution(coef, np.sqrt(np.maximum(spread, 0)))


def _recursion(X: Floats, y: Floats) -> Solution:
    """The paper's Algorithm 1, from as few records as identify the coefficients; its variance by n − k."""
    n, k = X.shape
    for start in range(k, n + 1):
        try:
            fit = recursive_least_squares(X, y, start)
        except EstimateError:
            continue
        return Solution(fit.coef, np.sqrt(np.maximum(np.diag(fit.bread) * fit.S / (n - k), 0)))
    raise EstimateError("no number of records identifies the coefficients.")


def solved(name: str, X: Floats, y: Floats) -> Solution:
    """The solver's answer; not a number where it refuses."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that digits are lost is what the study is about
        try:
            return SOLVERS[name](X, y)
        except (np.linalg.LinAlgError, EstimateError):
            return Solution(np.full(X.shape[1], np.nan), np.full(X.shape[1], np.nan))


FOLDAWAY = ("foldaway, at once", "foldaway, by row", "foldaway, in batches", "foldaway, shards by row")
RECURSION = "recursion of the paper"

SOLVERS: dict[str, Solver] = {
    "foldaway, at once": _folded(at_once),
    "foldaway, by row": _folded(by_row),
    "foldaway, in batches": _folded(in_batches),
    "foldaway, shards by row": _folded(from_shards_by_row),
    "statsmodels, QR": _statsmodels("qr"),
    "statsmodels, pinv": _statsmodels("pinv"),
    "numpy lstsq": _lstsq,
    "scipy lstsq, gelsy": _scipy_qr,
    "pyfixest": _pyfixest,
    "normal equations": _normal_equations,
    RECURSION: _recursion,
}
