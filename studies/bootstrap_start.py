"""Does a bootstrap that starts every replicate from the same first m records understate the variance?

The paper's Algorithm 3 begins all B recursions at the fit of the first m records, each with weight one. That part of
the data never varies, so the replicates vary by the other n − m records alone: about 1 − m/n of the variance.
foldaway keeps weighted moments, which need no start, and gives all n records their random weights.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from foldaway.numerics.block import Block, Floats, Shape
from foldaway.paper import bootstrap_least_squares
from foldaway.plan import Bootstrap
from foldaway.tallies.moments.replicates import Replicates
from studies.findings import Findings, counted, options_of, publish

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from written_weights import weights

NAME = "bootstrap_start"
RATIOS = (2, 4, 10, 50)
EFFECT = 0.5  # of treatment, the second coefficient
_95 = 1.959964


class Ratio(NamedTuple):
    """What one n/m gives."""

    ratio: int
    n: int
    truth: float
    paper: float
    ours: float
    paper_covers: float
    ours_covers: float


def simulate(rng: np.random.Generator, n: int) -> tuple[Floats, Floats]:
    """X = [1, treated, x] and an outcome that varies more under treatment."""
    treated = rng.integers(0, 2, n).astype(np.float64)
    x = rng.normal(size=n)
    y = 1 + EFFECT * treated + x + rng.normal(size=n) * (1 + 0.5 * treated)
    return np.column_stack([np.ones(n), treated, x]), y


def replicates(X: Floats, y: Floats, unit: NDArray[np.uint64], m: int, bootstrap: Bootstrap) -> tuple[Floats, Floats]:
    """The coefficients' replicates, B by k: from the paper's start, and foldaway's.

    Algorithm 3 is recursive least squares, which is least squares: its replicates are those of the moments of the
    first m records, once, plus the weighted moments of the others.
    """
    empty = Replicates.empty(bootstrap, Shape(X.shape[1], 1))
    z = np.vstack([X.T, y])
    first, rest = (empty.fold(Block(z[:, part], key=unit[part])) for part in (slice(m), slice(m, None)))
    square, cross = rest.moments(0)
    paper = _solved(square + X[:m].T @ X[:m], cross + X[:m].T @ y[:m])
    return paper, _coefficients(first + rest)


def _coefficients(tally: Replicates) -> Floats:
    return _solved(*tally.moments(0))


def _solved(square: Floats, cross: Floats) -> Floats:
    return np.asarray(np.linalg.solve(square, cross[:, :, None])[:, :, 0], dtype=np.float64)


def largest_difference(seed: int, n: int = 60, m: int = 20, count: int = 40) -> float:
    """Between Algorithm 3 run literally and the same from moments, over all replicates."""
    rng = np.random.default_rng(seed)
    X, y = simulate(rng, n)
    unit = rng.integers(0, 2**64, n, dtype=np.uint64)
    literal = bootstrap_least_squares(X, y, weights(unit[m:], count, "poisson"), start=m)
    return float(np.abs(replicates(X, y, unit, m, Bootstrap(count))[0] - literal).max())


def study(ratio: int, m: int, trials: int, truths: int, count: int, seed: int) -> Ratio:
    """Bootstrap errors of many trials next to the spread of the estimate over many more."""
    n = ratio * m
    rng = np.random.default_rng([seed, ratio])
    truth = float(np.std([_fit(*simulate(rng, n))[1] for _ in range(truths)], ddof=1))
    variances, covered = np.zeros(2), np.zeros(2)
    for _ in counted(range(trials), trials, f"n/m = {ratio}"):
        X, y = simulate(rng, n)
        unit = rng.integers(0, 2**64, n, dtype=np.uint64)
        errors = np.array([np.std(b[:, 1], ddof=1) for b in replicates(X, y, unit, m, Bootstrap(count))])
        variances += errors**2
        covered += np.abs(_fit(X, y)[1] - EFFECT) <= _95 * errors
    paper, ours = np.sqrt(variances / trials) / truth
    return Ratio(ratio, n, truth, float(paper), float(ours), *(covered / trials).tolist())


def _fit(X: Floats, y: Floats) -> Floats:
    return np.asarray(np.linalg.solve(X.T @ X, X.T @ y), dtype=np.float64)


def findings(found: Sequence[Ratio], m: int, trials: int, truths: int, count: int, gap: float) -> Findings:
    """The table and what it says."""
    rows = [
        [
            str(row.ratio),
            f"{row.n:,}",
            f"{row.truth:.4f}",
            f"{row.paper:.3f}",
            f"{np.sqrt(1 - 1 / row.ratio):.3f}",
            f"{100 * row.paper_covers:.1f} %",
            f"{row.ours:.3f}",
            f"{100 * row.ours_covers:.1f} %",
        ]
        for row in found
    ]
    return Findings(
        "The bootstrap's start",
        f"""The paper's online bootstrap for regression (Algorithm 3) starts all B recursions from the fit of the same
        first m records. Those records have the same weight in every replicate, so the bootstrap does not see what they
        add to the variance of the estimate. foldaway's replicates are weighted moments, which need no start: every
        record has its own random weights.

        We simulated {trials:,} trials for each n/m, with m = {m}. The outcome is y = 1 + {EFFECT} d + x + e, where d is
        a coin toss, x is standard normal, and e is normal with a standard deviation of 1 in the control and 1.5 under
        treatment. We estimated the coefficient of d and its standard error from B = {count} replicates with Poisson
        weights, from the paper's start and in foldaway's way. Both use the same weights for the records after the
        start.

        “Ratio” is the root mean square of the bootstrap's errors, divided by the true standard error, which is the
        standard deviation of the estimate over {truths:,} further trials. “Covers” is how often the interval of the
        estimate ± 1.96 errors contains the true effect.""",
        [
            "n/m",
            "n",
            "true error",
            "paper's start: ratio",
            "√(1 − m/n)",
            "covers",
            "foldaway: ratio",
            "covers",
        ],
        rows,
        f"""The true error is known to ± {100 / np.sqrt(2 * truths):.1f} % (one standard error), a coverage to ±
        {100 * np.sqrt(0.95 * 0.05 / trials):.1f} points. From the paper's start, the errors are too small by about the
        factor √(1 − m/n), as the argument above predicts: at n/m = {found[0].ratio} the “95 %” intervals cover
        {100 * found[0].paper_covers:.1f} %. foldaway's errors are within
        {100 * max(abs(row.ours - 1) for row in found):.1f} % of the truth at every n/m.

        The study computes Algorithm 3 from moments, as least squares. On a small case this differs from the literal
        recursion in `foldaway.paper` by at most {gap:.0e}.""",
    )


def main(arguments: Sequence[str] = ()) -> None:
    """Run the study."""
    options = options_of(NAME, arguments, trials=4000, truths=40_000, start=50, replicates=500, seed=1)
    gap = largest_difference(options.seed)
    assert gap < 1e-9, "Algorithm 3 from moments is not the literal one"
    sizes = (options.start, options.trials, options.truths, options.replicates)
    found = [study(ratio, *sizes, options.seed) for ratio in RATIOS]
    publish(findings(found, *sizes, gap), NAME, options)
