"""What theory says of an interval's coverage, written down before any was simulated.

A cell is a design, an estimator and a kind of interval. The first rule that fits it decides.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from scipy.special import ndtri, stdtr, stdtrit

from studies.coverage.designs import Design

Verdict: TypeAlias = Literal["covers", "at least", "may fall short", "falls short"]

NOMINAL = 0.95
NORMAL, PERCENTILE = "bootstrap, normal", "bootstrap, percentile"
ANYTIME = "any time"
POPULATION = "interacted, population"
ERRORS = 3  # how many Monte Carlo standard errors count as chance


class Cell(NamedTuple):
    """What an interval belongs to."""

    design: str
    arm: str
    estimator: str
    kind: str
    form: str = ""

    @property
    def bootstrap(self) -> bool:
        """Whether the interval is from replicates."""
        return self.kind in (NORMAL, PERCENTILE)

    @property
    def by_unit(self) -> bool:
        """Whether the interval allows for records of one unit being alike."""
        return self.bootstrap or self.kind.startswith("CR")


class Expectation(NamedTuple):
    """What coverage should be, and why.

    Attributes:
        verdict: Covers: 95 %. At least: the floor or more. May fall short: from the floor to 95 %. Falls short: less
            than 95 %.
        reason: Why, as a sentence.
        floor: The least that is in keeping with a verdict of "may fall short".
    """

    verdict: Verdict
    reason: str
    floor: float = NOMINAL

    def holds(self, coverage: float, trials: int) -> bool:
        """Whether a share of so many trials is in keeping with it, allowing for three Monte Carlo errors."""
        low = self.floor - chance(self.floor, trials)
        high = NOMINAL + chance(NOMINAL, trials)
        if self.verdict == "falls short":
            return coverage < NOMINAL - chance(NOMINAL, trials)
        return coverage >= low and (coverage <= high or self.verdict == "at least")


def chance(share: float, trials: int) -> float:
    """How far the share of so many trials may be from its expectation by chance."""
    return ERRORS * math.sqrt(share * (1 - share) / trials)


def expectation(design: Design, cell: Cell) -> Expectation:
    """What theory says of a cell."""
    if design.clustered and not cell.by_unit:
        return Expectation("falls short", "Errors by record take records of a unit as independent, and are too small.")
    if design.looks and cell.form != ANYTIME:
        return Expectation("falls short", "An interval for one look has a chance to miss at every look.")
    if design.looks:
        return Expectation("at least", "An anytime-valid interval covers at all looks at once, and here looks end.")
    if design.name == "unequal spread and shares" and cell.kind == "classical" and cell.estimator != "horvitz_thompson":
        return Expectation(
            "falls short", "The classical error pools the spread of both arms, and the smaller arm spreads more."
        )
    if design.slope and cell.estimator == "interacted" and not cell.bootstrap:
        return Expectation(
            "falls short",
            "Without `population=True` the interacted effect is that at the sample's mean of the covariate. "
            "How far that mean is from the population's is left out.",
        )
    if design.clustered:
        return _of_clusters(design, cell)
    if design.name == "skewed and unequal":
        return Expectation("may fall short", _SKEWED, floor=0.90)
    if design.name == "small":
        return _of_few_records(design, cell)
    return Expectation("covers", "Nothing that this interval assumes is missing.")


_SKEWED = (
    "The smaller arm's skewness does not cancel. By Edgeworth's expansion (Hall 1992, section 2.3) about 2 points are "
    "lost with 240 treated records of skewness 6, and none of these intervals corrects for it. The floor is 90 %."
)


def _of_few_records(design: Design, cell: Cell) -> Expectation:
    """With few records: each squared residual is short by its leverage, on average k/n, at worst some 2k/n."""
    if cell.kind == "classical" and cell.estimator != "horvitz_thompson":
        return Expectation("covers", "With normal noise of equal spread, Student's t is exact.")
    if cell.kind == "HC2":
        return Expectation("covers", "HC2 with Welch's degrees of freedom is made for small arms.")
    columns = {"horvitz_thompson": 1, "difference": 2, "regression": 3, "interacted": 4}[cell.estimator]
    return Expectation(
        "may fall short",
        "With 40 records, squared residuals are short by their leverage, k/40 on average. HC1 and CR1 make up for "
        "that on average only. The floor is Student's t with a variance short by twice that.",
        floor=_floor(design.records - columns, 2 * columns / design.records, design.records - columns),
    )


def _of_clusters(design: Design, cell: Cell) -> Expectation:
    """With few clusters, of unequal size: a cluster's part of its arm's mean is a share of its own error.

    On average the variance is short by the sum of squared shares, (1 + c²)/J for J clusters in an arm with coefficient
    of variation c of their sizes. And it varies like one from fewer clusters (Carter, Schnepel and Steigerwald 2017).
    """
    clusters, variation = cluster_sizes(design)
    short = 2 * (1 + variation**2) / (clusters / 2)
    effective = clusters / (1 + variation**2) / 2
    floor = _floor(effective, short, math.inf if cell.bootstrap else clusters - 1)
    if design.few_clusters and cell.estimator == "horvitz_thompson":
        return Expectation(
            "at least",
            "Clusters were dealt out evenly, which makes the weighted mean more precise than its error knows. "
            "With few clusters the error is uncertain all the same; the floor is that of the others.",
            floor,
        )
    return Expectation(
        "may fall short",
        "Errors by unit are too small with few clusters, the more so the less equal these are. The floor is Student's "
        "t with half the effective number of clusters as degrees of freedom, and a variance short by twice the sum of "
        "squared shares of the clusters in their arm.",
        floor,
    )


def cluster_sizes(design: Design) -> tuple[int, float]:
    """How many clusters, and the coefficient of variation of their sizes."""
    if isinstance(design.sizes, tuple):
        return len(design.sizes), float(np.std(design.sizes) / np.mean(design.sizes))
    return design.sizes or 0, 0.7


def _floor(df: float, short: float, nominal_df: float) -> float:
    """Coverage of an interval for ``nominal_df``, if the variance is short by a share and varies as with ``df``."""
    upper = 0.5 + NOMINAL / 2
    reach = ndtri(upper) if math.isinf(nominal_df) else stdtrit(nominal_df, upper)
    return float(1 - 2 * stdtr(df, -reach * math.sqrt(1 - short)))
