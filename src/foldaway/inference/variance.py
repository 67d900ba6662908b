"""Covariance of a fit's coefficients, by kind of standard error.

classical: σ²(X'X)⁻¹ with σ² = rss/(n − k).
HC0, HC1: White (1980); HC1 is HC0 · n/(n − k), MacKinnon and White (1985).
HC2: for a comparison of means, arm a's part times n_a/(n_a − 1): the Neyman or Welch variance.
HC3: for a comparison of means, that part times n_a/(n_a − 1) once more.
CR0, CR1: Liang and Zeger (1986); CR1 is CR0 · J/(J − 1) · (n − 1)/(n − k), as Stata has it. For a comparison of means
    each arm is a regression of its own, on a constant, and has its part times J_a/(J_a − 1).
"""

from __future__ import annotations

from collections.abc import Callable

from foldaway.errors import EstimateError
from foldaway.inference.fit import Fit
from foldaway.numerics.block import Floats
from foldaway.plan.vocabulary import ERRORS
from foldaway.tallies.moments.kinds import RECORDS, UNITS


def covariance(fit: Fit, kind: str) -> Floats:
    """The covariance matrix of the coefficients."""
    if kind not in KINDS:
        raise EstimateError(f"there is no standard error {kind!r}; the kinds are {', '.join(KINDS)}.")
    if fit.df < 1:
        raise EstimateError("there are not more records than coefficients, so no standard error exists yet.")
    if is_clustered(kind) and not fit.covers(ERRORS[kind].tally):
        raise EstimateError("clustered errors need every record to have come with its unit, in one batch.")
    return KINDS[kind](fit)


def is_clustered(kind: str) -> bool:
    """Whether the error allows for records of one unit being alike."""
    return ERRORS[kind].by_unit


def _by_arm(fit: Fit, power: int) -> Floats:
    # An arm with a single record has no residual to scale; who compares with it is refused elsewhere.
    counts = [model.arm.n for model in fit.models]
    return fit.robust(RECORDS, [(n / (n - 1)) ** power if n > 1 else 1.0 for n in counts])


def _cr1(fit: Fit) -> Floats:
    clusters = sum(fit.clusters(UNITS))
    if clusters < 2:
        raise EstimateError("clustered errors need at least two units.")
    return fit.robust(UNITS) * (clusters / (clusters - 1)) * ((fit.n - 1) / fit.df)


def cr1_by_arm(fit: Fit) -> Floats:
    """CR1 of the arms' means."""
    # An arm with a single unit has no residual to scale; who compares with it is refused elsewhere.
    return fit.robust(UNITS, [J / (J - 1) if J > 1 else 1.0 for J in fit.clusters(UNITS)])


KINDS: dict[str, Callable[[Fit], Floats]] = {
    "classical": lambda fit: fit.bread * (fit.rss / fit.df),
    "HC0": lambda fit: fit.robust(RECORDS),
    "HC1": lambda fit: fit.robust(RECORDS) * (fit.n / fit.df),
    "HC2": lambda fit: _by_arm(fit, 1),
    "HC3": lambda fit: _by_arm(fit, 2),
    "CR0": lambda fit: fit.robust(UNITS),
    "CR1": _cr1,
}
