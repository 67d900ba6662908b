"""The designs: how the records of a simulated trial come about, and what their effect truly is.

Every design says which effect is the truth, and it is the same number for every estimator: the effect does not vary
between records, or (in one design) varies with a covariate whose mean in the population is zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

import foldaway as fa
from foldaway.numerics.block import Floats

EFFECT = 0.5
CONTROL = "control"
REPLICATES = 159  # an arm needs more records than replicates; and the interval ends at the 4th from either end

Columns: TypeAlias = dict[str, NDArray[np.generic]]
Noise: TypeAlias = Callable[[np.random.Generator, int], Floats]


@dataclass(frozen=True)
class Design:
    """A way in which trials come about.

    Attributes:
        name: What it is called on the page.
        says: How records are made, as a phrase.
        arms: The arms with their probabilities, the control first.
        records: How many records, for designs without clusters.
        sizes: The clusters' sizes: how many there are if a number, or else the sizes themselves.
        noise: What is random in an outcome beside the covariate.
        spread: The noise's standard deviation in each arm.
        slope: How much more a treated record's outcome rises with the covariate.
        bootstrap: Whether there are enough records for one.
        looks: Where the intervals are looked at, in records (or clusters): only at the end if empty.
    """

    name: str
    says: str
    noise: Noise
    records: int = 500
    arms: Mapping[str, float] | None = None
    sizes: int | tuple[int, ...] | None = None
    spread: tuple[float, ...] = (1.0, 1.0, 1.0)
    slope: float = 0.0
    bootstrap: bool = True
    looks: tuple[int, ...] = ()

    @property
    def shares(self) -> dict[str, float]:
        """The arms with their probabilities."""
        return dict(self.arms or {CONTROL: 0.5, "treatment": 0.5})

    @property
    def clustered(self) -> bool:
        """Whether records of a unit are alike."""
        return self.sizes is not None

    @property
    def few_clusters(self) -> bool:
        """Whether the clusters are so few that they are dealt out evenly over the arms."""
        return isinstance(self.sizes, tuple)

    @property
    def plan(self) -> fa.Plan:
        """The analysis, with every kind of error there is.

        A record without a cluster is a unit of its own. So its bootstrap weights follow from the key alone, and the
        study can be repeated.
        """
        return fa.Plan(
            name="coverage",
            arm="arm",
            arms=self.shares,
            outcomes=["y"],
            covariates=["x"],
            unit="unit",
            moments=fa.Moments(
                estimators=["difference", "regression", "interacted", "horvitz_thompson"],
                bootstrap=REPLICATES if self.bootstrap else None,
            ),
            records_per_unit="together",
            expected_units=(self.looks or (10_000,))[len(self.looks) // 2],
        )

    def simulate(self, rng: np.random.Generator) -> Columns:
        """The records of one trial."""
        return self._clusters(rng) if self.clustered else self._records(rng)

    def blocks(self, rows: Columns) -> Iterator[tuple[int, Columns]]:
        """The records up to each look, with its number; all of them at once where there is one look only."""
        begin = 0
        for look in self.looks or (len(rows["y"]),):
            end = int(np.searchsorted(rows["unit"].astype(np.int64), look))
            yield look, {name: column[begin:end] for name, column in rows.items()}
            begin = end

    def _records(self, rng: np.random.Generator) -> Columns:
        n = self.looks[-1] if self.looks else self.records
        arm = rng.choice(len(self.shares), n, p=list(self.shares.values()))
        x = rng.normal(size=n)
        e = self.noise(rng, n) * np.asarray(self.spread)[arm]
        y = 1 + (EFFECT + self.slope * x) * (arm > 0) + x + e
        return {"arm": np.array(list(self.shares))[arm], "x": x, "y": y, "unit": np.arange(n)}

    def _clusters(self, rng: np.random.Generator) -> Columns:
        if isinstance(self.sizes, tuple):
            size = rng.permutation(self.sizes)
            arm = rng.permutation(np.arange(len(size)) % 2)
        else:
            clusters = self.looks[-1] if self.looks else self.sizes or 0
            size = 1 + rng.poisson(9 * rng.gamma(2, 0.5, clusters))
            arm = rng.integers(0, 2, clusters)
        disposition = rng.normal(size=len(size))
        of = np.repeat(np.arange(len(size)), size)
        x = 0.5 * disposition[of] + rng.normal(size=len(of))
        y = 1 + EFFECT * arm[of] + disposition[of] + 0.5 * x + self.noise(rng, len(of))
        return {"arm": np.array(list(self.shares))[arm[of]], "x": x, "y": y, "unit": of}


def normal(rng: np.random.Generator, n: int) -> Floats:
    """Standard normal."""
    return rng.normal(size=n)


def exponential(rng: np.random.Generator, n: int) -> Floats:
    """Exponential with mean zero: skewness 2."""
    return rng.exponential(size=n) - 1


def lognormal(rng: np.random.Generator, n: int) -> Floats:
    """Lognormal with mean zero: skewness 6."""
    return rng.lognormal(size=n) - math.exp(0.5)


def student(rng: np.random.Generator, n: int) -> Floats:
    """Student's t with 3 degrees of freedom: a variance, but no third moment."""
    return rng.standard_t(3, size=n)


TWENTY = tuple(range(10, 110, 5))
TEN = tuple(range(20, 120, 10))

DESIGNS = (
    Design("normal", "500 records, normal noise", normal),
    Design("small", "40 records, normal noise", normal, records=40, bootstrap=False),
    Design("skewed", "500 records, exponential noise", exponential),
    Design(
        "skewed and unequal",
        "1,200 records, one in five treated, lognormal noise",
        lognormal,
        records=1200,
        arms={CONTROL: 0.8, "treatment": 0.2},
    ),
    Design("heavy-tailed", "500 records, noise from Student's t with 3 degrees of freedom", student),
    Design(
        "unequal spread",
        "500 records, normal noise with standard deviation 1 in the control and 3 under treatment",
        normal,
        spread=(1, 3),
    ),
    Design(
        "unequal spread and shares",
        "2,400 records, one in ten treated, normal noise with standard deviation 1 and, under treatment, 3",
        normal,
        records=2400,
        arms={CONTROL: 0.9, "treatment": 0.1},
        spread=(1, 3),
    ),
    Design(
        "three arms",
        "960 records, half in the control and a quarter in each other arm, normal noise",
        normal,
        records=960,
        arms={CONTROL: 0.5, "second": 0.25, "third": 0.25},
    ),
    Design(
        "effect varies",
        f"500 records, normal noise, an effect of {EFFECT} + 2x, so that its mean in the population is {EFFECT}",
        normal,
        slope=2.0,
    ),
    Design("100 clusters", "100 clusters, on average of 10 records with a standard deviation of 7", normal, sizes=100),
    Design("20 clusters", "20 clusters of 10, 15, 20, … 105 records, ten in each arm", normal, sizes=TWENTY),
    Design("10 clusters", "10 clusters of 20, 30, 40, … 110 records, five in each arm", normal, sizes=TEN),
    Design(
        "peeking",
        "2,000 records in blocks of 100, normal noise, looked at after every block from the fourth on",
        normal,
        bootstrap=False,
        looks=tuple(range(400, 2001, 100)),
    ),
    Design(
        "peeking, bootstrap",
        "2,000 records in blocks of 400, normal noise, looked at after every block",
        normal,
        looks=tuple(range(400, 2001, 400)),
    ),
    Design(
        "peeking, clusters",
        "400 clusters like the 100, in blocks of 50, looked at after every block from the second on",
        normal,
        sizes=400,
        bootstrap=False,
        looks=tuple(range(100, 401, 50)),
    ),
)
