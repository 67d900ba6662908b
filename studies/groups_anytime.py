"""Do any-time intervals from sums hold when they are looked at after every ten records?

Unequal arms, rare conversions and skewed revenue are where they failed before: an arm that had shown no variance
counted as having none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from foldaway.inference.anytime import (
    ENOUGH,
    LEAST_GROUPS_ANYTIME,
    anytime_reach,
    anytime_variance,
    evidence,
)
from foldaway.inference.jackknife import Cells, jackknife, mean
from foldaway.inference.levels import Levels, difference_of
from foldaway.inference.welch import Spread, welch
from foldaway.numerics.block import Floats
from studies.findings import Findings, counted, options_of, publish

NAME = "groups_anytime"
SHARES = (0.5, 0.1, 0.01)
OUTCOMES = ("conversion 20 %", "conversion 2 %", "conversion 0.2 %", "lognormal revenue")
LIFTS = (0.0, 0.2)
GROUPS = (16, 128)
EVERY = 10
TIGHTEST_AT = 10_000
CONFIDENCE = 0.95

# Looks at which the estimate is nearer to the truth than so many of Welch's errors: the jackknife's error, by number of
# groups, would have to be half as large, or two thirds, to exclude it there. They are passed over, for time's sake.
_CANDIDATE = {16: 1.7, 128: 2.2}


class Result(NamedTuple):
    """The trials of one cell: how many ever excluded the truth, by error, and what an interval took."""

    plain: int
    welch: int
    jackknife: dict[int, int]
    shown: int
    first: float
    width: float


class Draws(NamedTuple):
    """Records of several trials, trials by records, and the true effect."""

    treated: Any
    y: Any
    effect: float


def draw(rng: np.random.Generator, trials: int, records: int, share: float, outcome: str, lift: float) -> Draws:
    """Independent records; the treatment multiplies the outcome, or its probability, by 1 + lift."""
    treated = rng.random((trials, records), dtype=np.float32) < share
    if outcome.startswith("conversion"):
        rate = float(outcome.split()[1]) / 100
        chance = np.where(treated, np.float32(rate * (1 + lift)), np.float32(rate))
        return Draws(
            treated, (rng.random((trials, records), dtype=np.float32) < chance).astype(np.float64), rate * lift
        )
    y = np.exp(rng.standard_normal((trials, records), dtype=np.float32)).astype(np.float64)
    return Draws(treated, np.where(treated, (1 + lift) * y, y), math.exp(0.5) * lift)


def at_looks(draws: Draws, values: Any) -> Floats:
    """Sums up to each look: trials by looks by arms."""
    shape = (len(draws.treated), -1, EVERY)
    everyone = values.reshape(shape) @ np.ones(EVERY)
    treated = (values * draws.treated).reshape(shape) @ np.ones(EVERY)
    return np.cumsum(np.stack([everyone - treated, treated], axis=-1), axis=1)


def excluded(levels: Levels, effect: float, through_t: bool) -> Any:
    """Whether the interval leaves the true effect out, at each look."""
    n = levels.n.sum(axis=-1)
    found = difference_of(levels, 1)
    reach = anytime_reach(n, CONFIDENCE, TIGHTEST_AT, found.df if through_t else math.inf)
    return np.abs(found.estimate - effect) > reach * np.sqrt(anytime_variance(levels, 1))


def by_groups(draws: Draws, trial: int, looks: Any, group: Any, groups: int) -> Levels:
    """One trial's levels by the jackknife, at some looks."""
    cell = groups * draws.treated[trial] + (group & (groups - 1)).astype(np.int64)
    last = (looks[-1] + 1) * EVERY  # no record after it counts
    step = np.repeat(np.searchsorted(looks, np.arange(looks[-1] + 1)), EVERY)
    places = step * (2 * groups) + cell[:last]
    size = (len(looks), 2, groups)  # groups side by side in memory, which is twice as fast
    weight = np.bincount(places, minlength=math.prod(size)).reshape(size)
    value = np.bincount(places, draws.y[trial, :last], math.prod(size)).reshape(size)
    n, total = (np.cumsum(each, axis=0, dtype=np.float64).swapaxes(1, 2) for each in (weight, value))
    return jackknife(mean, Cells(n, total))


def study(share: float, outcome: str, lift: float, trials: int, records: int, seed: int) -> Result:
    """All trials of one cell."""
    place = SHARES.index(share), OUTCOMES.index(outcome), LIFTS.index(lift)
    rng = np.random.default_rng([seed, *place])
    plain = by_welch = shown = 0
    jackknifed = dict.fromkeys(GROUPS, 0)
    first, width = [], []
    at = 20
    for start in range(0, trials, at):
        draws = draw(rng, min(at, trials - start), records, share, outcome, lift)
        n, sums = at_looks(draws, np.ones_like(draws.y)), at_looks(draws, draws.y)
        squares = at_looks(draws, draws.y**2)
        means = sums / np.maximum(n, 1)
        spread = Spread(n, n, means[..., None], np.maximum(squares - n * means**2, 0)[..., None, None])
        levels = welch(spread)
        enough = (evidence(n, sums, sums, squares) >= ENOUGH) & (n.min(axis=-1) > 1)
        wrong = enough & excluded(levels, draws.effect, through_t=False)
        by_welch += int(np.sum(wrong.any(axis=1)))
        own = np.sqrt(levels.covariance[..., 0, 0] + levels.covariance[..., 1, 1])
        away = np.abs(levels.value[..., 1] - levels.value[..., 0] - draws.effect)
        reach = anytime_reach(n.sum(axis=-1), CONFIDENCE, TIGHTEST_AT)
        plain += int(np.sum(((n.min(axis=-1) > 1) & (away > reach * own)).any(axis=1)))
        shown += int(np.sum(enough[:, -1]))
        first += [int(look.argmax() + 1) * EVERY for look in enough if look.any()]
        with np.errstate(invalid="ignore"):
            width += np.sqrt(anytime_variance(levels, 1)[:, -1] / own[:, -1] ** 2).tolist()
        for trial in range(len(draws.treated)):
            group = rng.integers(0, 128, records, dtype=np.uint8)
            for groups in GROUPS:
                looks = np.flatnonzero(enough[trial] & (away[trial] > _CANDIDATE[groups] * own[trial]))
                if not len(looks):
                    continue
                found = by_groups(draws, trial, looks, group, groups)
                assert found.groups is not None
                told = found.groups.min(axis=-1) >= LEAST_GROUPS_ANYTIME
                jackknifed[groups] += bool(np.any(told & excluded(found, draws.effect, through_t=True)))
    return Result(
        plain, by_welch, jackknifed, shown, float(np.median(first)) if first else math.nan, float(np.nanmedian(width))
    )


def findings(results: dict[tuple[float, str, float], Result], trials: int, records: int) -> Findings:
    """The table and what it says."""
    rows = [
        [
            outcome,
            f"{share:g}",
            f"{100 * lift:.0f} %",
            *(f"{100 * errors / trials:.1f} %" for errors in (found.plain, found.welch, *found.jackknife.values())),
            f"{100 * found.shown / trials:.0f} %",
            "–" if math.isnan(found.first) else f"{found.first:,.0f}",
            f"{found.width:.3f}",
        ]
        for (share, outcome, lift), found in results.items()
    ]
    ours = [errors / trials for found in results.values() for errors in (found.welch, *found.jackknife.values())]
    error = math.sqrt(0.05 * 0.95 / trials)
    balanced = max(found.width for (share, _, _), found in results.items() if share == 0.5)
    worst = max(found.plain for found in results.values()) / trials
    above = sum(share > 0.05 for share in ours)
    beyond = sum(share > 0.05 + 1.96 * error for share in ours)
    return Findings(
        "Any-time intervals from sums, under continuous looks",
        f"""You may look at an any-time interval as often as you like. We simulated {trials:,} trials for each row and
        looked after every {EVERY} records, up to {records:,}. Records are independent. The treatment has no effect, or
        it multiplies the outcome (the probability of a conversion) by 1.2. The standard deviation of the logarithm of
        revenue is 1. Intervals are at 95 % and are tightest at {TIGHTEST_AT:,} records.

        The plain interval is the normal mixture with each arm's own error, from the second record of each arm on. Welch
        and jackknife (with {" and ".join(map(str, GROUPS))} groups) are what foldaway computes in
        `inference/anytime.py`: the error is the larger of the arms' own and the pooled one, there is no interval until
        the smaller arm has about {ENOUGH} records with the outcome, and the jackknife's interval uses Student's t. The
        table gives the shares of trials whose interval ever left out the true effect. “Shown” is the share of trials
        that have an interval at the last look, and the median number of records after which they had the first. “Width”
        is the median width of Welch's any-time interval at the last look, divided by that of the plain one.""",
        [
            "outcome",
            "treated",
            "effect",
            "plain",
            "Welch",
            *(f"jackknife, {groups}" for groups in GROUPS),
            "shown",
            "first after",
            "width",
        ],
        rows,
        f"""The plain interval is wrong in up to {100 * worst:.0f} % of trials. foldaway's intervals from sums are wrong
        in at most {100 * max(ours):.1f} %: of {len(ours)} shares, {above} are above 5 %, {beyond} of them by more than
        the Monte Carlo error (1.96 standard errors of {100 * error:.2f} points). In balanced designs the interval is at
        most {100 * (balanced - 1):.1f} % wider.""",
        left=1,
    )


def main(arguments: Sequence[str] = ()) -> None:
    """Run the study."""
    options = options_of(NAME, arguments, trials=2000, records=50_000, seed=1)
    cells = [(share, outcome, lift) for outcome in OUTCOMES for share in SHARES for lift in LIFTS]
    results = {
        cell: study(*cell, options.trials, options.records, options.seed)
        for cell in counted(cells, len(cells), "cells of any-time intervals")
    }
    publish(findings(results, options.trials, options.records), NAME, options)
