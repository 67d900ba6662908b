"""Regression on a million rows: foldaway beside statsmodels and river, with NumPy's QR as the limit."""

from __future__ import annotations

import numpy as np
import statsmodels.api as sm
from measure import best_times, show
from river import linear_model
from statsmodels.regression.recursive_ls import RecursiveLS

import foldaway as fa

ROWS, COVARIATES = 1_000_000, 8
STREAM = 20_000
BLOCK = 4_096


def main() -> None:
    """Print the three tables."""
    rng = np.random.default_rng(0)
    X = np.column_stack([np.ones(ROWS), rng.normal(size=(ROWS, COVARIATES))])
    y = X @ np.arange(1.0, COVARIATES + 2) + rng.normal(size=ROWS) * (1 + X[:, 1] ** 2)
    names = [f"x{c}" for c in range(COVARIATES + 1)]
    whole(X, y, names, "classical")
    whole(X, y, names, "HC1")
    stream(X[:STREAM], y[:STREAM], names)


def whole(X: np.ndarray, y: np.ndarray, names: list[str], kind: str) -> None:
    """All rows at once."""
    answers: dict[str, np.ndarray] = {}

    def ours() -> None:
        fit = fa.LeastSquares(names, robust=kind != "classical")
        fit.fold(X, y)
        answers["foldaway"] = np.r_[fit.coef, fit.std_error(kind)]

    def statsmodels() -> None:
        fit = sm.OLS(y, X).fit(cov_type="nonrobust" if kind == "classical" else kind)
        answers["statsmodels"] = np.r_[fit.params, fit.bse]

    def block_qr() -> None:
        R = np.zeros((X.shape[1] + 1,) * 2)
        for start in range(0, len(y), BLOCK):
            part = slice(start, start + BLOCK)
            R = np.linalg.qr(np.vstack([R, np.column_stack([X[part], y[part]])]), mode="r")  # type: ignore[assignment]

    contestants = {"statsmodels OLS": statsmodels, "NumPy block QR (the limit)": block_qr, "foldaway": ours}
    times = best_times(contestants, rounds=12)
    peer = times["statsmodels OLS"]
    worst = np.max(np.abs(answers["foldaway"] / answers["statsmodels"] - 1))
    rows = [[name, f"{1000 * t:,.0f} ms", f"{peer / t:.1f}"] for name, t in times.items()]
    show(
        f"{ROWS:,} rows, {COVARIATES} covariates, {kind} errors (largest relative difference {worst:.0e})",
        rows,
        ["", "time", "times faster than statsmodels"],
    )


def stream(X: np.ndarray, y: np.ndarray, names: list[str]) -> None:
    """One row at a time."""
    rows, responses = list(X), y.tolist()
    records = [dict(zip(names, row, strict=True)) for row in X.tolist()]
    answers: dict[str, np.ndarray] = {}

    def fold(robust: bool) -> None:
        fit = fa.LeastSquares(names, robust=robust)
        for row, response in zip(rows, responses, strict=True):
            fit.fold(row, response)
        answers["foldaway"] = fit.coef

    def recursive() -> None:
        answers["statsmodels"] = RecursiveLS(y, X).fit().params

    def river() -> None:
        model = linear_model.BayesianLinearRegression()
        for record, response in zip(records, responses, strict=True):
            model.learn_one(record, response)  # type: ignore[no-untyped-call]
        # A record with a one in a single place gives that place's coefficient.
        answers["river"] = np.array([model.predict_one({name: 1.0}) for name in names])  # type: ignore[no-untyped-call]

    fold(robust=True)  # compiles on the first use of a machine
    contestants = {
        "statsmodels RecursiveLS": recursive,
        "river BayesianLinearRegression": river,
        "foldaway, classical errors": lambda: fold(robust=False),
        "foldaway, with the robust tally": lambda: fold(robust=True),
    }
    times = best_times(contestants, rounds=3)
    batch = np.linalg.lstsq(X, y, rcond=None)[0]
    errors = {
        "statsmodels RecursiveLS": answers["statsmodels"],
        "river BayesianLinearRegression": answers["river"],
        "foldaway, classical errors": answers["foldaway"],
        "foldaway, with the robust tally": answers["foldaway"],
    }
    peer, other = times["statsmodels RecursiveLS"], times["river BayesianLinearRegression"]
    table = [
        [
            name,
            f"{1e6 * t / len(y):.1f} µs",
            f"{peer / t:.1f}",
            f"{other / t:.1f}",
            f"{np.max(np.abs(errors[name] / batch - 1)):.0e}",
        ]
        for name, t in times.items()
    ]
    header = ["", "per row", "× RecursiveLS", "× river", "error of coefficients"]
    show(f"{len(y):,} rows, {COVARIATES} covariates, one at a time", table, header)


if __name__ == "__main__":
    main()
