"""Does a trial of the size that `fa.power` asks for show the effect as often as it says?

Each row asks for the number of records, simulates trials with so many, and analyses each by the functions that foldaway
itself uses: Welch's error for independent records, the jackknife over 128 groups for units of several, and the any-time
interval at every growth by 5 %.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import stdtrit

import foldaway as fa
from foldaway.inference.anytime import ENOUGH, anytime_reach, anytime_variance, evidence
from foldaway.inference.jackknife import Cells, jackknife, mean, ratio
from foldaway.inference.levels import Levels, difference_of
from foldaway.inference.power import Aim
from foldaway.inference.welch import Spread, welch
from foldaway.keeping.cohort import GROWTH
from foldaway.numerics.block import Floats
from foldaway.planning import Baseline, Power
from studies.findings import Findings, counted, options_of, publish

NAME = "power"
GROUPS = 128
TIGHTEST_AT = 10_000

# Trials that are drawn together, so that their records fit in memory.
_AT_ONCE = 50

Draw = Callable[[np.random.Generator, Any, float], Any]
"""From units' treatments (trials by units) and the effect to their outcomes."""


def normal(rng: np.random.Generator, treated: Any, effect: float) -> Any:
    """Mean 10, standard deviation 3."""
    return 10 + 3 * rng.standard_normal(treated.shape) + effect * treated


def lognormal(rng: np.random.Generator, treated: Any, effect: float) -> Any:
    """Skewed: the logarithm has the standard deviation 0.6."""
    return np.exp(0.6 * rng.standard_normal(treated.shape)) + effect * treated


def explained(rng: np.random.Generator, treated: Any, effect: float) -> Any:
    """Half of the variance of 9 is a covariate's, and is taken out."""
    return 10 + 3 * math.sqrt(0.5) * rng.standard_normal(treated.shape) + effect * treated


def share(level: float) -> Draw:
    """Ones with this probability."""

    def draw(rng: np.random.Generator, treated: Any, effect: float) -> Any:
        return (rng.random(treated.shape) < level + effect * treated).astype(np.float64)

    return draw


@dataclass(frozen=True)
class Case:
    """One row.

    Attributes:
        what: The outcome, in words.
        baseline: What is known of it.
        draw: How it comes about, of independent records.
        effect: The true effect.
        asked: What else is asked of `fa.power`.
        units: For units of several records, the intra-unit correlation, their mean size and its variation.
        kind: Of clustered outcomes: "mean", "share" or "ratio".
    """

    what: str
    baseline: Baseline
    effect: float
    draw: Draw | None = None
    asked: dict[str, Any] = field(default_factory=dict)
    units: tuple[float, float, float] | None = None
    kind: str = "mean"

    @property
    def sequential(self) -> bool:
        """Whether looks go on and on."""
        return bool(self.asked.get("sequential"))


MEAN = Baseline(level=10.0, sd=3.0)
SKEWED = Baseline(level=math.exp(0.18), sd=math.sqrt(math.exp(0.72) - math.exp(0.36)))
HALF = Baseline(level=10.0, sd=3.0, explained=0.5)
TENTH, FIFTH = Baseline(level=0.1), Baseline(level=0.2)
ALIKE = Baseline(level=10.0, sd=3.0, correlation=0.2)
ALIKE_SHARE = Baseline(level=0.2, correlation=0.1)
UNITS, EVEN, ALONE = (0.2, 8.0, 0.9), (0.2, 8.0, 0.0), (0.0, 1.0, 0.0)
UNEQUAL: dict[str, Any] = {"arms": {"control": 0.8, "treatment": 0.2}}


def ratio_baseline() -> Baseline:
    """Of `clicks`: views are 1 + Poisson(4 g), clicks binomial of these with a unit's own probability."""
    rng = np.random.default_rng(1)
    clicks, views = clicked(rng, np.zeros((1, 1_000_000), dtype=bool), 0.0)
    above, below = clicks[0], views[0]
    correlation = float(np.corrcoef(above, below)[0, 1])
    return Baseline.ratio((above.mean(), above.std()), (below.mean(), below.std()), correlation)


def clicked(rng: np.random.Generator, treated: Any, effect: float) -> tuple[Any, Any]:
    """Clicks and views of each unit: 20 % of views, more or less."""
    views = 1 + rng.poisson(4 * rng.gamma(2, 0.5, treated.shape))
    chance = rng.beta(4, 16, treated.shape) + effect * treated
    return rng.binomial(views, np.clip(chance, 0, 1)).astype(np.float64), views.astype(np.float64)


RATIO = ratio_baseline()


def cases() -> list[Case]:
    """The grid."""
    found = []
    for asked in ({}, UNEQUAL):
        found += [
            Case("normal mean", MEAN, 0.6, normal, asked),
            Case("normal mean, few records", MEAN, 3.0, normal, asked),
            Case("skewed mean", SKEWED, 0.1, lognormal, asked),
            Case("covariates explain half", HALF, 0.4, explained, asked),
            Case("share of 20 %", FIFTH, 0.05, share(0.2), asked),
            Case("share of 10 %, half more", TENTH, 0.05, share(0.1), asked),
            Case("mean by units", ALIKE, 0.5, asked={**asked, **_sizes(UNITS)}, units=UNITS),
            Case("share by units", ALIKE_SHARE, 0.04, asked={**asked, **_sizes(EVEN)}, units=EVEN, kind="share"),
            Case("ratio", RATIO, 0.012, asked={**asked, **_sizes(ALONE)}, units=ALONE, kind="ratio"),
        ]
    found += [
        Case("mean, few units", ALIKE, 1.5, asked=_sizes(EVEN), units=EVEN),
        Case("normal mean", MEAN, 0.6, normal, {"alternative": "greater"}),
        Case("share of 20 %", FIFTH, -0.05, share(0.2), {"alternative": "less"}),
        Case("mean by units", ALIKE, 0.5, asked={"alternative": "greater", **_sizes(UNITS)}, units=UNITS),
        Case("normal mean", MEAN, 0.0, normal, {"margin": 0.5}),
        Case("normal mean", MEAN, 0.9, normal, {"margin": 0.3, "goal": "better"}),
        Case("normal mean", MEAN, 0.1, normal, {"margin": 0.6, "goal": "alike"}),
        Case("share of 20 %", FIFTH, 0.0, share(0.2), {"margin": 0.04, "better": "lower"}),
        Case("mean by units", ALIKE, 0.0, asked={"margin": 0.5, "goal": "alike", **_sizes(UNITS)}, units=UNITS),
        Case("normal mean", MEAN, 0.3, normal, {"sequential": True}),
        Case("normal mean", MEAN, 0.3, normal, {"sequential": True, **UNEQUAL}),
        Case("skewed mean", SKEWED, 0.08, lognormal, {"sequential": True}),
        Case("share of 10 %, half more", TENTH, 0.05, share(0.1), {"sequential": True}),
        Case("normal mean", MEAN, 0.0, normal, {"sequential": True, "margin": 0.4}),
        Case("normal mean", MEAN, 0.0, normal, {"sequential": True, "margin": 0.5, "goal": "alike"}),
        Case("mean by units", ALIKE, 0.4, asked={"sequential": True, **_sizes(EVEN)}, units=EVEN),
    ]
    return found


# Where the normal approximation ends: the error of a share moves with its estimate.
BEYOND = Case("share of 10 %, doubled", TENTH, 0.1, share(0.1), UNEQUAL)


def _sizes(units: tuple[float, float, float]) -> dict[str, Any]:
    return {"records_per_unit": units[1], "size_cv": units[2]}


def arms_of(case: Case, rng: np.random.Generator, trials: int, units: int) -> Any:
    """Who is treated: trials by units, each drawn by itself."""
    arms = case.asked.get("arms", {"control": 0.5, "treatment": 0.5})
    return rng.random((trials, units)) < arms["treatment"]


def by_arm(treated: Any, values: Any, ends: Any) -> Floats:
    """Sums up to each of some numbers of records: trials by looks by arms."""
    everyone = np.cumsum(values, axis=1)[:, ends - 1]
    of_treated = np.cumsum(values * treated, axis=1)[:, ends - 1]
    return np.stack([everyone - of_treated, of_treated], axis=-1)


def independent(case: Case, rng: np.random.Generator, trials: int, records: int, ends: Any) -> tuple[Levels, Any]:
    """Levels at each look, and whether there is evidence enough for an any-time interval."""
    assert case.draw is not None
    treated = arms_of(case, rng, trials, records)
    y = case.draw(rng, treated, case.effect)
    n, sums, absolute, squares = (by_arm(treated, values, ends) for values in (np.ones(y.shape), y, np.abs(y), y**2))
    means = sums / np.maximum(n, 1)
    spread = Spread(n, n, means[..., None], np.maximum(squares - n * means**2, 0)[..., None, None])
    return welch(spread), evidence(n, sums, absolute, squares) >= ENOUGH


def clustered(case: Case, rng: np.random.Generator, trials: int, units: int, ends: Any) -> tuple[Levels, Any]:
    """The same by the jackknife; looks come after so many units."""
    assert case.units is not None
    correlation, size, cv = case.units
    treated = arms_of(case, rng, trials, units)
    if case.kind == "ratio":
        above, below = clicked(rng, treated, case.effect)
    else:
        below = _drawn_sizes(rng, treated.shape, size, cv)
        if case.kind == "share":
            level = case.baseline.level + case.effect * treated
            strength = 1 / case.baseline.correlation - 1  # of a beta distribution with this intra-unit correlation
            above = rng.binomial(below.astype(int), rng.beta(level * strength, (1 - level) * strength)).astype(float)
        else:
            own = 10 + 3 * math.sqrt(correlation) * rng.standard_normal(treated.shape) + case.effect * treated
            noise = 3 * math.sqrt(1 - correlation) * np.sqrt(below) * rng.standard_normal(treated.shape)
            above = below * own + noise
    cells = GROUPS * 2 * np.arange(trials)[:, None] + GROUPS * treated + rng.integers(0, GROUPS, treated.shape)
    step = np.searchsorted(ends, np.arange(1, units + 1))
    places = (step * (trials * 2 * GROUPS) + cells).ravel()
    shape = (len(ends), trials, 2, GROUPS)

    def grouped(values: Any) -> Any:
        sums = np.bincount(places, values.ravel(), math.prod(shape)).reshape(shape)
        return np.cumsum(sums, axis=0).transpose(1, 0, 3, 2)

    numerator, weight = grouped(above), grouped(below)
    if case.kind == "ratio":
        levels = jackknife(ratio, Cells(grouped(np.ones(above.shape)), numerator), Cells(weight, weight))
    else:
        levels = jackknife(mean, Cells(weight, numerator))
    assert levels.groups is not None
    return levels, levels.groups.min(axis=-1) >= 16


def _drawn_sizes(rng: np.random.Generator, shape: tuple[int, ...], size: float, cv: float) -> Any:
    """Records of each unit: one and more, with this mean and variation; the variance of a Poisson is in it."""
    if not cv:
        return np.full(shape, size)
    excess = max((cv * size) ** 2 - (size - 1), 1e-9)
    shape_of = (size - 1) ** 2 / excess
    return 1.0 + rng.poisson(rng.gamma(shape_of, (size - 1) / shape_of, shape))


def shown(case: Case, aim: Aim, levels: Levels, enough: Any) -> Any:
    """Whether each trial has shown what is asked by its last look."""
    found = difference_of(levels, 1)
    if case.sequential:
        df = math.inf if levels.groups is None else found.df
        reach = anytime_reach(levels.n.sum(axis=-1), 1 - 2 * aim.tail, TIGHTEST_AT, df)
        reach = reach * np.sqrt(anytime_variance(levels, 1))
    else:
        reach, enough = -stdtrit(found.df, aim.tail) * np.sqrt(found.variance), True
    sides = [
        (enough & (found.estimate - reach > bound) if up else enough & (found.estimate + reach < bound)).any(axis=1)
        for bound, up in ((aim.above, True), (aim.below, False))
        if bound is not None
    ]
    return np.logical_and.reduce(sides) if aim.both else np.logical_or.reduce(sides)


def study(case: Case, trials: int, seed: int) -> tuple[Power, float, float]:
    """The size, the chance at that size, and how often it was shown."""
    asked = {**case.asked, "effect": case.effect or None}
    shares = case.asked.get("arms", {"control": 0.5, "treatment": 0.5})
    asked["plan"] = fa.Plan(
        name="study", arm="arm", arms=shares, outcomes=["y"], unit=None if case.units is None else "unit"
    )
    needed = fa.power(case.baseline, **asked)
    assert needed.records is not None
    assert needed.units is not None
    promised = fa.power(case.baseline, records=needed.records, **asked)[0].power
    assert promised is not None
    aim = needed.comparisons[0].asked.aim(needed[0].margin)
    size = needed.units if case.units is not None else needed.records
    looks = int(math.log(size / 30) / math.log1p(GROWTH)) if case.sequential else 0
    ends = np.unique((size / (1 + GROWTH) ** np.arange(looks, -1, -1)).round().astype(int))
    rng = np.random.default_rng([seed, *NAME.encode()])
    hits = 0
    for start in range(0, trials, _AT_ONCE):
        simulate = independent if case.units is None else clustered
        levels, enough = simulate(case, rng, min(_AT_ONCE, trials - start), size, ends)
        hits += int(np.sum(shown(case, aim, levels, enough)))
    return needed, promised, hits / trials


def findings(
    results: Sequence[tuple[Case, Power, float, float]], beyond: tuple[Power, float, float], trials: int
) -> Findings:
    """The table and what it says."""
    rows = [
        [
            case.what,
            _question(case),
            "80/20" if "arms" in case.asked else "50/50",
            f"{needed.records:,}",
            "–" if case.units is None or needed.units is None else f"{needed.units:,}",
            f"{100 * promised:.1f} %",
            f"{100 * simulated:.1f} %",
            f"{100 * (simulated - promised):+.1f}",
        ]
        for case, needed, promised, simulated in results
    ]
    off = [100 * (simulated - promised) for _, _, promised, simulated in results]
    above = sum(abs(each) > 2 for each in off)
    needed, promised, simulated = beyond
    those = "none is" if not above else "1 is" if above == 1 else f"{above} are"
    return Findings(
        "Power: promised and simulated",
        f"""We asked `fa.power` how many records it takes to show an effect with a chance of 80 % at 95 % confidence.
        Then we simulated {trials:,} trials of that size for each row, and analysed them with the functions of
        `inference/` that foldaway itself uses: Welch's error for independent records, the jackknife over {GROUPS}
        groups for units, and, where people look repeatedly, the any-time interval after every growth by
        {100 * GROWTH:g} %. Units are assigned at random one by one, so the arms' sizes vary as well.

        Means have a standard deviation of 3; the skewed outcome is lognormal. Units have 8 records on average, with a
        coefficient of variation of 0.9 (means) or none, and an intra-unit correlation of 0.2 (means) or 0.1 (shares).
        The ratio is that of clicks to views, both counted by unit. The standard error of a simulated chance is
        {100 * math.sqrt(0.16 / trials):.1f} points.""",
        ["outcome", "asked", "arms", "records", "units", "promised", "simulated", "points off"],
        rows,
        f"""Of {len(off)} rows, {those} more than 2 points off. The largest difference is {max(off, key=abs):+.1f}
        points, and the average is {np.mean(off):+.2f}.

        Outside these rows the promise becomes less exact. If the effect doubles a share of 10 % and one in five units
        is treated, {needed.records:,} records promise {100 * promised:.1f} %, and {100 * simulated:.1f} % of trials
        show it, because the error of a share depends on its estimate. If an outcome is much more skewed and arms are
        small and unequal, the promise is off by as much.""",
        left=3,
    )


def _question(case: Case) -> str:
    asked = case.asked
    words = asked.get("goal") or ("not worse" if "margin" in asked else asked.get("alternative", "two-sided"))
    return f"{words}, any time" if case.sequential else words


def main(arguments: Sequence[str] = ()) -> None:
    """Run the study."""
    options = options_of(NAME, arguments, trials=4000, seed=1)
    grid = cases()
    results = [(case, *study(case, options.trials, options.seed)) for case in counted(grid, len(grid), "rows of power")]
    beyond = study(BEYOND, options.trials, options.seed)
    publish(findings(results, beyond, options.trials), NAME, options)
