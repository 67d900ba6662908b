"""Do planned looks keep their error rate and their power, for records and for clusters?

Trials are simulated many at once, by the formulas that trials are read with; some trials of records are folded and
looked at by foldaway itself, to see that it finds the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri, stdtr

import foldaway as fa
from foldaway.effects.looks import design_of
from foldaway.inference.anytime import evidence
from foldaway.inference.blended import FEW_CARRIERS, blended_difference
from foldaway.inference.intervals import critical
from foldaway.inference.jackknife import jackknife, mean
from foldaway.inference.levels import Levels, difference_of
from foldaway.inference.looks.planned import bounds_at, single_needed
from foldaway.numerics.block import Floats
from foldaway.planning import Baseline
from studies.findings import Findings, counted, options_of, publish
from studies.groups_coverage import Units, by_group

NAME = "planned_looks"
POWER = 0.8
FOLDED = 3  # trials that go through foldaway itself
ERRORS = ("records", "clusters, G = 128", "clusters, G = 32")
OUTCOMES = ("normal", "skewed", "20 % ones")
Spending = Literal["obrien-fleming", "pocock"]
SPENDINGS: tuple[Spending, ...] = ("obrien-fleming", "pocock")
SIZES = (200, 1_000)
AT = {3: (0.5, 0.75, 1.0), 5: (0.2, 0.4, 0.6, 0.8, 1.0)}
PER_CLUSTER = 4
ALIKE = 0.2  # the correlation of two records of one cluster


class Cell(NamedTuple):
    """A trial as it is planned: by what it is judged, of what, how large, and when it is looked at."""

    error: str
    outcome: str
    spending: Spending
    looks: int
    units: int

    @property
    def groups(self) -> int | None:
        """Into how many groups clusters are dealt; None where records are independent."""
        return int(self.error.split("= ")[1]) if "G" in self.error else None


class Found(NamedTuple):
    """Shares of the trials of a cell that showed an effect.

    Attributes:
        wrong: By the looks, where there is none.
        power: By the looks, where there is the planned one.
        known: By the looks, at the trials that `power` is of, if the outcomes' spread were known.
        single: By one look at the end with all of α, at these trials.
        first: Beyond the bound of the first look, at these trials.
    """

    wrong: float
    power: float
    known: float
    single: float
    first: float


def plan_of(cell: Cell) -> fa.Plan:
    """The plan of a cell."""
    settings: dict[str, Any] = (
        {} if cell.groups is None else {"cluster": "cluster", "expected_units": 2 * 10 * cell.groups}
    )
    looks = fa.Looks(information={"units": cell.units}, at=AT[cell.looks], spending=cell.spending)
    return fa.Plan(
        name=NAME, arm="arm", arms={"a": 0.5, "b": 0.5}, outcomes=[fa.Mean("y", better="higher")], looks=looks,
        **settings,
    )  # fmt: skip


def draw(rng: np.random.Generator, cell: Cell, trials: int, effect: float) -> tuple[Floats, Any]:
    """Outcomes and arms, trials by records; a cluster's four records come one after another."""
    shape = (trials, cell.units)
    arm = rng.random(shape) < 0.5
    if cell.groups is not None:  # clusters are in one arm
        arm = np.repeat(arm[:, ::PER_CLUSTER], PER_CLUSTER, axis=1)[:, : cell.units]
    noise = rng.standard_normal(shape)
    if cell.groups is not None:
        common = np.repeat(rng.standard_normal((trials, cell.units // PER_CLUSTER)), PER_CLUSTER, axis=1)
        # The logarithms of log-normal records are more alike than these.
        alike = math.log1p(ALIKE * (math.e - 1)) if cell.outcome == OUTCOMES[1] else ALIKE
        noise = math.sqrt(alike) * common + math.sqrt(1 - alike) * noise
    if cell.outcome == "normal":
        return noise + effect * arm, arm
    if cell.outcome == "skewed":  # log-normal
        return (np.exp(noise) - math.exp(0.5)) / math.sqrt((math.e - 1) * math.e) + effect * arm, arm
    share = 0.2 + effect * arm
    if cell.groups is not None:  # of two records of a cluster, the beta-binomial law has this correlation
        own = (1 / ALIKE - 1) * share[:, ::PER_CLUSTER]
        share = np.repeat(rng.beta(own, 1 / ALIKE - 1 - own), PER_CLUSTER, axis=1)
    return (rng.random(shape) < share).astype(np.float64), arm


def statistics(rng: np.random.Generator, cell: Cell, y: Floats, arm: Any, records: Sequence[int]) -> Floats:
    """z at each look, trials by looks: Student's t by its tail."""
    dealt = int(rng.integers(0, 2**31))
    z = []
    for n in records:
        parts = Records(y[:, :n], arm[:, :n])
        levels = parts.levels() if cell.groups is None else jackknife(mean, _dealt(dealt, cell, parts.clusters()))
        carriers, size = parts.carried()
        found = [difference_of(levels, 1), blended_difference(levels, 1, carriers, size)]
        # Arms of equal size take the blended variance only where few records carry the outcome.
        variance, df = (np.where(carriers < FEW_CARRIERS, b, a) for a, b in list(zip(*found, strict=True))[1:])
        with np.errstate(invalid="ignore", divide="ignore"):  # an early look at few ones may have no spread
            t = found[0].estimate / np.sqrt(variance)
        z.append(-np.sign(t) * ndtri(stdtr(df, -np.abs(t))))
    return np.stack(z, axis=1)


def by_known_spread(cell: Cell, y: Floats, arm: Any, records: Sequence[int], effect: float) -> Floats:
    """z at each look, trials by looks, if the spread were known: with the normal law that looks are planned by."""
    share = 0.2 + effect * np.arange(2)
    variance = share * (1 - share) if cell.outcome == OUTCOMES[2] else np.ones(2)
    alike = 1 if cell.groups is None else 1 + (PER_CLUSTER - 1) * ALIKE
    z = []
    for n in records:
        parts = Records(y[:, :n], arm[:, :n])
        of = parts.by_arm(np.ones_like(parts.y))
        means = parts.by_arm(parts.y) / of
        z.append((means[:, 1] - means[:, 0]) / np.sqrt((alike * variance / of).sum(axis=1)))
    return np.stack(z, axis=1)


class Records(NamedTuple):
    """Outcomes and arms, trials by records."""

    y: Floats
    arm: Any

    def by_arm(self, values: Floats) -> Floats:
        """Sums of values over the records of each arm: trials by arms."""
        return np.stack([np.where(of, values, 0).sum(axis=1) for of in (~self.arm, self.arm)], axis=1)

    def levels(self) -> Levels:
        """The arms' means with Welch's error."""
        n = self.by_arm(np.ones_like(self.y))
        value = self.by_arm(self.y) / n
        own = np.where(self.arm, value[:, 1:], value[:, :1])
        variance, each = self.by_arm((self.y - own) ** 2) / (n - 1) / n, np.eye(2)
        return Levels(value, variance[:, None] * each, (1 / (n - 1))[:, None] * each, n)

    def carried(self) -> tuple[Floats, Floats]:
        """How many records carry the outcome, and the arms' means of its size: what the blended variance rests on."""
        n, absolute = self.by_arm(np.ones_like(self.y)), self.by_arm(np.abs(self.y))
        return evidence(n, self.by_arm(self.y), absolute, self.by_arm(self.y**2)), absolute / n

    def clusters(self) -> Units:
        """The same by cluster, whose records come one after another."""
        total = self.y.reshape(len(self.y), -1, PER_CLUSTER).sum(axis=2)
        return Units(np.full_like(total, PER_CLUSTER), total, self.arm[:, ::PER_CLUSTER])


def _dealt(seed: int, cell: Cell, units: Units) -> Any:
    """Clusters by group, each in the same one at every look."""
    assert cell.groups is not None
    rng = np.random.default_rng(seed)
    whole = cell.units // PER_CLUSTER
    group = rng.integers(0, cell.groups, (len(units.size), whole))[:, : units.size.shape[1]]
    return by_group(_Fixed(group), units, cell.groups)  # type: ignore[arg-type]


class _Fixed:
    """In the place of a generator: groups that were drawn before."""

    def __init__(self, group: Any) -> None:
        self._group = group

    def integers(self, low: int, high: int, size: tuple[int, int]) -> Any:
        """The groups."""
        return self._group


def effect_of(cell: Cell) -> float:
    """The effect that the trial is planned to find with a chance of 80 %."""
    share, clustered = cell.outcome == OUTCOMES[2], cell.groups is not None
    level, sd = (0.2, None) if share else (0.0, 1.0)
    baseline = Baseline(level=level, sd=sd, correlation=ALIKE if clustered else 0.0)
    per_unit = PER_CLUSTER if clustered else None
    rows = fa.power(baseline, plan=plan_of(cell), records=cell.units, power=POWER, records_per_unit=per_unit)
    found = rows[0].effect
    assert found is not None
    return float(found)


def shown(cell: Cell, z: Floats) -> tuple[Any, Any]:
    """Of each trial whether it ends above, or below, at any look."""
    beyond = np.abs(z) >= _upper(cell)
    first = beyond.argmax(axis=1)
    sign = z[np.arange(len(z)), first]
    ends = beyond.any(axis=1)
    return ends & (sign > 0), ends & (sign < 0)


def _upper(cell: Cell) -> Floats:
    """The bound of each look."""
    return np.array(bounds_at(design_of(plan_of(cell)), _fractions(cell), last=True).upper)


def _records(cell: Cell) -> list[int]:
    """Records at each look: whole clusters."""
    each = PER_CLUSTER if cell.groups is not None else 1
    return [math.ceil(cell.units * share / each - 1e-9) * each for share in AT[cell.looks]]


def _fractions(cell: Cell) -> list[float]:
    return [n / cell.units for n in _records(cell)]


def run(cell: Cell, trials: int, seed: int) -> Found:
    """One cell: without an effect, and with the planned one."""
    rng = np.random.default_rng([seed, ERRORS.index(cell.error), OUTCOMES.index(cell.outcome), cell.looks, cell.units])
    wrong, alone = 0, critical(1 - design_of(plan_of(cell)).alpha, math.inf)
    for part in _parts(trials, cell.units):
        y, arm = draw(rng, cell, part, 0.0)
        wrong += sum(int(side.sum()) for side in shown(cell, statistics(rng, cell, y, arm, _records(cell))))
    counts, effect = np.zeros(4), effect_of(cell)
    for part in _parts(trials, cell.units):
        y, arm = draw(rng, cell, part, effect)
        z = statistics(rng, cell, y, arm, _records(cell))
        above, _ = shown(cell, z)
        known, _ = shown(cell, by_known_spread(cell, y, arm, _records(cell), effect))
        counts += [each.sum() for each in (above, known, z[:, -1] >= alone, z[:, 0] >= _upper(cell)[0])]
    return Found(wrong / trials, *(float(each) for each in counts / trials))


def needed(cell: Cell) -> float:
    """The power that one look at the end must have, so that the looks have the planned one."""
    return single_needed(design_of(plan_of(cell)), POWER)


def first(cell: Cell) -> float:
    """How often the first look is to be beyond its bound, by the normal law."""
    drift = ndtri(needed(cell)) - ndtri(design_of(plan_of(cell)).one_side)
    return float(ndtr(drift * math.sqrt(_fractions(cell)[0]) - _upper(cell)[0]))


def _parts(trials: int, units: int) -> list[int]:
    """So many trials at a time that their arrays stay small."""
    at = max(1, 2_000_000 // units)
    return [min(at, trials - start) for start in range(0, trials, at)]


def check(cell: Cell, seed: int) -> float:
    """By how much z of a trial that foldaway looks at differs from what is computed here; records alone."""
    rng = np.random.default_rng([seed, 11])
    y, arm = draw(rng, cell, FOLDED, 0.1)
    records = _records(cell)
    z = statistics(rng, cell, y, arm, records)
    furthest = 0.0
    for trial in range(FOLDED):
        folded, before = fa.Trial(plan_of(cell)), 0
        for look, n in enumerate(records):
            folded.fold({"arm": np.where(arm[trial, before:n], "b", "a"), "y": y[trial, before:n]})
            before, taken = n, folded.look()
            (found,) = taken.arms
            assert found.z is not None
            furthest = max(furthest, abs(found.z - float(z[trial, look])))
            assert (found.found in ("stop for benefit", "stop for harm")) == (abs(found.z) >= (found.upper or math.inf))
            if taken.over:
                break
    return furthest


def cells() -> list[Cell]:
    """All that are simulated."""
    return [
        Cell(error, outcome, spending, looks, units)
        for error in ERRORS
        for outcome in OUTCOMES
        for spending in SPENDINGS
        for looks in AT
        for units in SIZES
        if error == ERRORS[0] or units == SIZES[1]  # 50 clusters in 128 groups are a matter of few_clusters
    ]


def study(trials: int, seed: int) -> tuple[dict[Cell, Found], float]:
    """Every cell, and how far foldaway's own z lies from those here."""
    asked = cells()
    found = {cell: run(cell, trials, seed) for cell in counted(asked, len(asked), "cells")}
    own = Cell("records", "normal", "obrien-fleming", 3, 1_000)
    return found, check(own, seed)


def findings(found: dict[Cell, Found], apart: float, trials: int) -> Findings:
    """The table and what it says."""
    rows = [
        [
            *(cell.error, cell.outcome, cell.spending, f"{cell.looks}", f"{cell.units:,}"),
            *(f"{100 * share:.1f} %" for share in (*those[:4], needed(cell))),
        ]
        for cell, those in found.items()
    ]
    wrong = [those.wrong for those in found.values()]
    gap = max((abs(those.power - POWER), cell) for cell, those in found.items())
    single = max((abs(those.single - needed(cell)), cell) for cell, those in found.items())
    alone = {cell: those for cell, those in found.items() if cell.groups is None}
    known = max(((abs(those.known - POWER), cell) for cell, those in alone.items()), default=None)
    at_first = found[gap[1]].first
    noise = math.sqrt(0.05 * 0.95 / trials)
    return Findings(
        "Planned looks",
        f"""Do planned looks keep their error rate of 5 % and their power of 80 %? We simulated {trials:,} trials for
        each cell with no effect, and as many with the effect that `fa.power` says they find with a chance of 80 %. One
        Monte Carlo standard error of an error rate is {100 * noise:.2f} points. Tests are two-sided. The looks are at
        50, 75 and 100 % of the records, or at every fifth of them. Skewed outcomes are log-normal. Clusters have
        {PER_CLUSTER} records of one arm, of which two have a correlation of {ALIKE:g}; their errors are those of the
        jackknife by groups, and those of independent records are Welch's, blended as verdicts have them.

        Three columns say where a difference in power comes from, with the same trials. “Known spread” is the power of
        the looks if the outcomes' true spread stood in place of the estimated one: the normal law, by which looks are
        planned, is then all that counts. It is more for clusters, because `fa.power` allows for an error from few
        groups. “One look” is the power of a single look at the end, with all of the error
        rate, and “planned” is what that must be, so that the looks have {100 * POWER:.0f} %.

        The statistics are computed for many trials at once, by foldaway's formulas. {FOLDED} trials of independent
        records were also folded, and looked at by foldaway: their statistics differ by at most {apart:.0e}.""",
        [
            *("errors by", "outcome", "spending", "looks", "records"),
            *("wrong", "power", "known spread", "one look", "planned"),
        ],
        rows,
        f"""Between {100 * min(wrong):.1f} and {100 * max(wrong):.1f} % of the trials without an effect show one;
        {100 * sum(wrong) / len(wrong):.2f} % over all cells. The power differs from the planned one by at most
        {100 * gap[0]:.1f} points ({_named(gap[1])}).

        {_for_known(known)}What is left is due to Student's t, which does not have the normal law if records are few and
        skewed. One look at the end differs from what was planned for it by up to {100 * single[0]:.1f} points
        ({_named(single[1])}). Earlier looks have fewer records: in the cell named first, the first look is beyond its
        bound in {100 * at_first:.1f} % of the trials, and by the normal law in {100 * first(gap[1]):.1f} %.""",
        left=3,
    )


def _for_known(gap: tuple[float, Cell] | None) -> str:
    if gap is None:
        return ""
    return (
        f"If the spread of independent records were known, that would be at most {100 * gap[0]:.1f} points "
        f"({_named(gap[1])}). "
    )


def _named(cell: Cell) -> str:
    return f"{cell.error}, {cell.outcome}, {cell.spending}, {cell.looks} looks, {cell.units:,} records"


def main(arguments: Sequence[str]) -> None:
    """Run it."""
    options = options_of(NAME, arguments, trials=5000, seed=1)
    publish(findings(*study(options.trials, options.seed), options.trials), NAME, options)
