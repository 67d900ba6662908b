"""Do intervals by unit cover with 4 to 40 clusters, one to half of them treated, or are they withheld?

Clusters' sums are simulated, many trials at once; the formulas are those that trials are read with, and some trials of
every cell are folded to see that they are.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr, stdtrit

import foldaway as fa
from foldaway.inference.few_units import ENOUGH_UNITS, LEAST_EFFECTIVE, PER_COEFFICIENT
from foldaway.inference.jackknife import jackknife, mean
from foldaway.inference.levels import LEAST_GROUPS
from foldaway.numerics.block import Floats
from studies.findings import Findings, Table, counted, markdown_table, options_of, publish
from studies.groups_coverage import Units, by_group, cr1, half_width, sizes

NAME = "few_clusters"
CONFIDENCE = 0.95
CELLS = tuple((J, t) for J in (4, 6, 10, 20, 40) for t in (1, 2, 3, 5, 10, 20) if t <= J // 2)
SIZES = ("equal", "unequal", "heavy-tailed")
GROUPS = (16, 32, 128)
REPLICATES = 200
ELSEWHERE = "CR1 elsewhere"
KINDS = ("CR0", "CR1", *(f"jackknife, G = {G}" for G in GROUPS), "bootstrap, t", "bootstrap, percentile")
COLUMNS = (1, 3)
SHOWN = "20"  # clusters, of the cells that the page shows
FOLDED = 2  # trials of every cell that go through foldaway itself


class Told(NamedTuple):
    """Of many trials: which tell an interval, and which of all would cover."""

    told: Any
    covers: Any

    def __str__(self) -> str:
        if not self.told.any():
            return "withheld"
        share = "" if self.told.all() else f" ({100 * self.told.mean():.0f} %)"
        return f"{100 * self.coverage:.1f} %{share}"

    @property
    def coverage(self) -> float:
        """Of those told."""
        return float(self.covers[self.told].mean()) if self.told.any() else math.nan


def draw(rng: np.random.Generator, kind: str, trials: int, clusters: int, treated: int) -> Units:
    """Clusters with a normal effect of their own, and normal records; the treatment does nothing."""
    size = np.full((trials, clusters), 10.0) if kind == "equal" else sizes(rng, kind, (trials, clusters))
    noise = rng.standard_normal((2, trials, clusters))
    arm = np.broadcast_to(np.arange(clusters) < treated, size.shape)
    return Units(size, size * noise[0] + np.sqrt(size) * noise[1], arm)


def degrees(parts: Floats, units: Floats) -> Floats:
    """Welch's over the arms on the last axis."""
    with np.errstate(divide="ignore", invalid="ignore"):
        df: Floats = parts.sum(axis=-1) ** 2 / np.sum(parts**2 / np.maximum(units - 1, 1e-9), axis=-1)
    return df


def differences(drawn: Units) -> dict[str, Told]:
    """CR0 and CR1 of the difference."""
    estimate, units, counts = np.zeros(len(drawn.size)), [], []
    parts: dict[str, list[Floats]] = {kind: [] for kind in ("CR0", "CR1")}
    for sign, arm in ((-1, ~drawn.treated), (1, drawn.treated)):
        n, total, of = np.where(arm, drawn.size, 0), np.where(arm, drawn.total, 0), int(arm[0].sum())
        whole = n.sum(axis=1, keepdims=True)
        own = total.sum(axis=1, keepdims=True) / whole
        estimate += sign * own[:, 0]
        plain = np.sum(((total - n * own) / whole) ** 2, axis=1)
        parts["CR0"].append(plain)
        parts["CR1"].append(plain * of / max(of - 1, 1))
        units.append(whole[:, 0] ** 2 / np.sum(n**2, axis=1))
        counts.append(of)
    e = np.stack(units, axis=-1)
    found = {}
    for kind, those in parts.items():
        V = np.stack(those, axis=-1)
        df = np.minimum(degrees(V, e), degrees(1 / e, e))
        told = (min(counts) >= 2) & (e.min(axis=1) >= (ENOUGH_UNITS if kind == "CR0" else LEAST_EFFECTIVE))
        found[kind] = Told(told, np.abs(estimate) <= np.sqrt(V.sum(axis=-1)) * stdtrit(df, 0.5 + CONFIDENCE / 2))
    return found


def by_groups(rng: np.random.Generator, drawn: Units, groups: int) -> Told:
    """The delete-a-group jackknife."""
    levels = jackknife(mean, by_group(rng, drawn, groups))
    estimate, half = half_width(levels)
    assert levels.groups is not None
    return Told(levels.groups.min(axis=-1) >= LEAST_GROUPS, np.abs(estimate) <= half)


def resampled(rng: np.random.Generator, drawn: Units) -> Iterator[Told]:
    """The bootstrap by cluster, Poisson weights: with t, and by percentiles."""
    weights = rng.poisson(1.0, (*drawn.size.shape, REPLICATES)).astype(np.float64)
    units, means, estimate = [], [], np.zeros(len(drawn.size))
    for sign, arm in ((-1, ~drawn.treated), (1, drawn.treated)):
        n, total = np.where(arm, drawn.size, 0), np.where(arm, drawn.total, 0)
        whole = n.sum(axis=1)
        estimate += sign * total.sum(axis=1) / whole
        weight = np.einsum("tj,tjb->tb", n, weights)
        with np.errstate(divide="ignore", invalid="ignore"):
            means.append(np.einsum("tj,tjb->tb", total, weights) / weight)
            units.append(whole**2 / np.mean((weight - whole[:, None]) ** 2, axis=1))
    e = np.stack(units, axis=-1)
    replicates = means[1] - means[0]
    told = (e.min(axis=-1) >= ENOUGH_UNITS) & np.isfinite(replicates).all(axis=1)
    df = degrees(1 / e, e)
    with np.errstate(invalid="ignore"):
        reach = stdtrit(df, 0.5 + CONFIDENCE / 2)
        stretch = 1 / np.sqrt(np.maximum(1 - np.sum(1 / e**2, axis=-1) / np.sum(1 / e, axis=-1), 1e-9))
        yield Told(told, np.abs(estimate) <= reach * np.std(replicates, axis=1, ddof=1))
    tail = ndtr(-stretch * reach)
    # The interval ends at the replicates numbered tail · (B + 1) from either end.
    ordered = np.sort(replicates, axis=1)
    ends = [np.clip(np.rint(share * (REPLICATES + 1)) - 1, 0, REPLICATES - 1) for share in (tail, 1 - tail)]
    rows = np.arange(len(ordered))
    lower, upper = (ordered[rows, np.nan_to_num(end).astype(int)] for end in ends)
    yield Told(told, (lower <= 0) & (upper >= 0))


def regressions(rng: np.random.Generator, drawn: Units, columns: int, *, by_arm: bool) -> Told:
    """CR1 of the regression, pooled or arm by arm, on covariates that differ between clusters and predict nothing."""
    trials, J = drawn.size.shape
    x = rng.standard_normal((trials, J, columns))
    n = drawn.size
    x = x - np.sum(n[..., None] * x, axis=1, keepdims=True) / n.sum(axis=1)[:, None, None]
    d = drawn.treated.astype(np.float64)[..., None]
    parts = [1 - d, d, *([(1 - d) * x, d * x] if by_arm else [x])]
    X = np.concatenate(parts, axis=-1)
    bread = np.linalg.inv(np.einsum("tj,tja,tjb->tab", n, X, X))
    beta = np.einsum("tab,tjb,tj->ta", bread, X, drawn.total)
    influence = np.einsum("ta,tja->tj", bread[:, 1] - bread[:, 0], X)  # of a record
    scores = influence * (drawn.total - n * np.einsum("tja,ta->tj", X, beta))
    leverage = np.einsum("tja,tab,tjb->tj", X, bread, X)
    V, alike, units, carries = [], [], [], []
    for arm in (~drawn.treated, drawn.treated):
        mine = np.where(arm, n, 0)
        whole, squares = mine.sum(axis=1), np.sum(mine**2, axis=1)
        V.append(np.sum(np.where(arm, scores, 0) ** 2, axis=1))
        alike.append(np.sum((mine * influence) ** 2, axis=1))
        units.append(whole**2 / squares)
        carries.append(np.sum(mine**2 * leverage, axis=1) * whole / squares - 1)
    e, most = np.stack(units, axis=-1), np.stack(carries, axis=-1)
    df = np.minimum(degrees(np.stack(V, axis=-1), e), degrees(np.stack(alike, axis=-1), e))
    records = n.sum(axis=1)
    factor = J / (J - 1) * (records - 1) / (records - X.shape[-1])
    half = np.sqrt(sum(V) * factor) * stdtrit(df, 0.5 + CONFIDENCE / 2)
    enough = min(int(drawn.treated[0].sum()), int((~drawn.treated[0]).sum())) >= LEAST_GROUPS
    told = enough & (e.min(axis=-1) >= LEAST_EFFECTIVE) & np.all(e >= PER_COEFFICIENT * most, axis=-1)
    return Told(told, np.abs(beta[:, 1] - beta[:, 0]) <= half)


def check(drawn: Units, found: dict[str, Told]) -> None:
    """Fold some of the trials: whether foldaway tells the interval, and whether it covers, is what was computed."""
    plan = fa.Plan(
        name=NAME, arm="arm", arms={"a": 0.5, "b": 0.5}, outcomes=["y"], unit="u",
        moments=fa.Moments(estimators=["difference"], errors=["CR0", "CR1"]),
    records_per_unit="together",
        
    )  # fmt: skip
    for trial in range(FOLDED):
        size = drawn.size[trial].astype(int)
        unit = np.repeat(np.arange(len(size)), size)
        arm = np.where(drawn.treated[trial], "b", "a")[unit]
        folded = fa.Trial(plan)
        folded.fold({"arm": arm, "u": unit, "y": (drawn.total[trial] / size)[unit]})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", fa.SampleRatioWarning)
            effects = folded.effects()
        for row in (row for row in effects if row.se_kind in found):
            told, covers = (bool(each[trial]) for each in found[row.se_kind])
            assert row.reliable == told, (row, told)
            if row.ci_lower is not None and row.ci_upper is not None:
                assert (row.ci_lower <= 0 <= row.ci_upper) == covers


def cell(kind: str, clusters: int, treated: int, trials: int, seed: int) -> dict[str, Told]:
    """Every kind of error of the difference."""
    rng = np.random.default_rng([seed, SIZES.index(kind), clusters, treated])
    drawn = draw(rng, kind, trials, clusters, treated)
    found = differences(drawn)
    check(drawn, found)
    inside, _ = cr1(drawn, 0.0)
    found[ELSEWHERE] = Told(np.ones(trials, dtype=bool), inside)
    found |= {f"jackknife, G = {groups}": by_groups(rng, drawn, groups) for groups in GROUPS}
    found |= dict(zip(KINDS[-2:], resampled(rng, drawn), strict=True))
    return found


def study(trials: int, seed: int) -> tuple[dict[Any, dict[str, Told]], dict[Any, Told]]:
    """Every cell of differences, and of regressions."""
    asked = [(kind, *each) for kind in SIZES for each in CELLS]
    found = {each: cell(*each, trials, seed) for each in counted(asked, len(asked), "differences")}
    adjusted = [
        (kind, J, t, columns, by_arm)
        for kind in SIZES[:2]
        for J, t in CELLS
        if t >= LEAST_GROUPS
        for columns in COLUMNS
        for by_arm in (False, True)
    ]
    regressed = {}
    for each in counted(adjusted, len(adjusted), "regressions"):
        kind, J, t, columns, by_arm = each
        rng = np.random.default_rng([seed, 7, SIZES.index(kind), J, t, columns, by_arm])
        if not by_arm or t > columns + 1:
            regressed[each] = regressions(rng, draw(rng, kind, trials, J, t), columns, by_arm=by_arm)
    return found, regressed


def findings(found: dict[Any, dict[str, Told]], regressed: dict[Any, Told], trials: int) -> Findings:
    """The tables and what they say."""
    of_all = ["sizes", "clusters", "treated", ELSEWHERE, *KINDS]
    rows = [
        [kind, f"{J}", f"{t}", *(str(those[name]) for name in (ELSEWHERE, *KINDS))]
        for (kind, J, t), those in found.items()
    ]
    adjusted: dict[tuple[str, int, int], dict[tuple[int, bool], Told]] = {}
    for (kind, J, t, columns, by_arm), one in regressed.items():
        adjusted.setdefault((kind, J, t), {})[columns, by_arm] = one
    asked = [(columns, by_arm) for columns in COLUMNS for by_arm in (False, True)]
    header = [f"{'interacted' if by_arm else 'regression'}, {columns} covariates" for columns, by_arm in asked]
    lines = [
        [kind, f"{J}", f"{t}", *(str(those[each]) if each in those else "–" for each in asked)]
        for (kind, J, t), those in adjusted.items()
    ]
    # Cells in which hardly a trial tells anything say little.
    shares = {
        name: [those[name].coverage for those in found.values() if those[name].told.mean() >= 0.05] for name in KINDS
    }
    worst = "; ".join(f"{name} {100 * min(each):.1f} %" for name, each in shares.items())
    two, alone = (found["equal", 20, treated][ELSEWHERE].coverage for treated in (2, 1))
    least = min(each.coverage for each in regressed.values() if each.told.mean() >= 0.05)
    error = math.sqrt(0.95 * 0.05 / trials)
    return Findings(
        "Few clusters",
        f"""If a trial is randomised by cluster, its evidence depends on the number of clusters in the smaller arm. We
        simulated {trials:,} trials for each cell. Each cluster has a standard normal effect of its own, each record has
        standard normal noise, and the treatment has no effect. Intervals are at 95 %, and one Monte Carlo standard
        error of a coverage is {100 * error:.2f} points. Clusters have ten records each, or one to about 50, or a
        heavy-tailed number (Pareto with index 1.5, at most 3,000). The table has the cells with {SHOWN} clusters.

        “CR1 elsewhere” is the CR1 of other packages: one correction for both arms together, and Student's t with
        clusters − 1 degrees of freedom. foldaway's CR1 is corrected by J/(J − 1) in each arm. foldaway's errors by
        cluster use t with Welch's degrees of freedom from effective clusters, but no more than clusters of equal spread
        would have. The jackknife leaves out each of G groups in turn. The bootstrap has {REPLICATES} Poisson
        replicates; its percentile interval is expanded for few clusters (Hesterberg 2015).

        Some trials show no interval. Coverage counts only those that show one, and their share is in brackets.
        “Withheld” means that no trial shows one.""",
        of_all,
        rows,
        f"""Where at least one trial in twenty shows an interval, the lowest coverage of each kind is: {worst}. CR1 as
        computed elsewhere covers in {100 * two:.1f} % of trials with 2 of 20 equal clusters treated, and in
        {100 * alone:.1f} % with 1 of 20. With one treated cluster, foldaway shows no interval.

        foldaway withholds CR0, which has no correction, and the bootstrap if an arm has fewer than {ENOUGH_UNITS}
        effective clusters. It withholds CR1 of a difference below 2 clusters or {LEAST_EFFECTIVE} effective
        ones, and the jackknife below {LEAST_GROUPS} groups with records in an arm. With 2 or 3 clusters in an arm, the
        interval covers, but it is wide.

        For regressions, foldaway computes CR1 as other packages do, which ignores the clusters' leverage, but with the
        degrees of freedom above. It withholds CR1 below {LEAST_GROUPS} clusters in an arm, and where an arm has fewer
        than {PER_COEFFICIENT} effective clusters for each coefficient that depends on differences between clusters.
        Where it is shown, it covers in at least {100 * least:.1f} % of trials. In the table below, covariates differ
        only between clusters, which is the hardest case.""",
        left=3,
        summary=Table(of_all, [row for row in rows if row[1] == SHOWN], 3),
        details="\n\n".join(["## Regressions", markdown_table(["sizes", "clusters", "treated", *header], lines, 3)]),
    )


def main(arguments: Sequence[str]) -> None:
    """Run it."""
    options = options_of(NAME, arguments, trials=2000, seed=1)
    publish(findings(*study(options.trials, options.seed), options.trials), NAME, options)
