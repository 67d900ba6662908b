"""Blocked effects by group: against deletion from kept rows, Neyman's formula, and by simulation."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from foldaway.inference.blocked_groups import LONE, blocked_by_group, lone_strata, spread_within
from foldaway.inference.jackknife import Cells, adjusted_mean, jackknife, mean
from foldaway.inference.levels import difference_of
from foldaway.inference.unequal_arms import contrast_rate
from foldaway.inference.welch import Spread

STRATA, GROUPS, ARMS = 3, 8, 3


def rows_of(seed: int, n: int = 900) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    stratum, x = rng.choice(STRATA, n, p=[0.5, 0.3, 0.2]), rng.normal(size=n)
    arm = np.array(
        [rng.choice(ARMS, p=p) for p in np.array([[0.6, 0.2, 0.2], [0.2, 0.2, 0.6], [0.3, 0.4, 0.3]])[stratum]]
    )
    y = 5.0 * stratum + arm + x + rng.normal(size=n)
    return pd.DataFrame({"s": stratum, "a": arm, "g": rng.integers(0, GROUPS, n), "y": y, "tilde": y - 0.6 * x})


def cells_of(rows: pd.DataFrame, level: float = 0.0) -> Cells:
    def add(values: Any) -> Any:
        place = (rows.s * GROUPS + rows.g) * ARMS + rows.a
        return np.bincount(place, values, STRATA * GROUPS * ARMS).reshape(STRATA, GROUPS, ARMS)

    return Cells(add(np.ones(len(rows))), add(rows.y - level), add(rows.tilde - level), level, level)


def blocked(rows: pd.DataFrame, rate: float = 0.0) -> Any:
    """Σ_s (n_s/n) (mean of y − λ(p − p̄_s)) by arm."""
    predicted = rows.y - rows.tilde
    left = rows.assign(v=rows.y - rate * (predicted - predicted.groupby(rows.s).transform("mean")))
    means = left.groupby(["s", "a"]).v.mean().unstack()
    return (rows.groupby("s").size() / len(rows)).to_numpy() @ means.to_numpy()


@pytest.mark.parametrize("rate", [0.0, 0.8])
@pytest.mark.parametrize("level", [0.0, 1e7])
def test_it_is_deletion_of_each_group_from_kept_rows(rate: float, level: float) -> None:
    rows = rows_of(1)
    without = np.array([blocked(rows[rows.g != g], rate) for g in range(GROUPS)])
    shifted = rows.assign(y=rows.y + level, tilde=rows.tilde + level)
    statistic = partial(adjusted_mean, rate=rate) if rate else mean
    found = blocked_by_group(cells_of(shifted, level), statistic)
    assert found.value - level == pytest.approx(blocked(rows, rate), abs=1e-8 * max(1, level))
    # All groups are filled nearly alike, so that hardly anything is scaled.
    wanted = (GROUPS - 1) * np.cov(without.T, ddof=0)
    assert found.covariance == pytest.approx(wanted, rel=0.1, abs=2e-4)
    assert found.n.sum() == len(rows)
    assert found.why == ("", "", "")


def test_one_stratum_is_the_jackknife_and_empty_ones_are_nothing() -> None:
    rng = np.random.default_rng(2)
    n, y = np.full((16, 2), 3.0), rng.normal(size=(16, 2))
    plain = jackknife(mean, Cells(n, y))
    pad = np.zeros((1, 16, 2))
    found = blocked_by_group(Cells(np.concatenate([n[None], pad]), np.concatenate([y[None], pad])))
    for ours, theirs in zip(found[:5], plain[:5], strict=True):
        assert np.allclose(np.asarray(ours), np.asarray(theirs))


def test_of_units_in_groups_of_their_own_it_is_neymans() -> None:
    rng = np.random.default_rng(3)
    sizes = [(20, 10), (15, 30)]
    weight, value = np.zeros((2, 75, 2)), np.zeros((2, 75, 2))
    y = [[rng.normal(10 * s, 1 + s, n) for n in pair] for s, pair in enumerate(sizes)]
    place = 0
    for s, pair in enumerate(y):
        for a, each in enumerate(pair):
            weight[s, place : place + len(each), a] = 1
            value[s, place : place + len(each), a] = each
            place += len(each)
    found = blocked_by_group(Cells(weight, value))
    share = np.array([30 / 75, 45 / 75])
    for a in range(2):
        assert found.value[a] == pytest.approx(sum(share[s] * y[s][a].mean() for s in range(2)))
    inside = sum(share[s] ** 2 * y[s][a].var(ddof=1) / len(y[s][a]) for s in range(2) for a in range(2))
    # The strata's sizes move with the units, which Neyman holds fixed; that cancels in a difference of equal effects.
    assert difference_of(found, 1).variance == pytest.approx(inside, rel=0.1)


def test_leading_axes_weights_and_the_strata_s_order_change_nothing() -> None:
    cells = [cells_of(rows_of(seed)) for seed in (4, 5)]
    both = Cells(np.stack([each.weight for each in cells]), np.stack([each.value for each in cells]))
    together = blocked_by_group(both)
    for trial, each in enumerate(cells):
        turned = each._replace(weight=7 * each.weight[::-1], value=7 * each.value[::-1])
        for alone in (blocked_by_group(each), blocked_by_group(turned)):
            assert together.value[trial] == pytest.approx(alone.value)
            assert together.covariance[trial] == pytest.approx(alone.covariance)


def test_an_arm_in_a_single_group_of_a_stratum_is_withheld() -> None:
    cells = cells_of(rows_of(6))
    for part in (cells.weight, cells.value):
        part[2, 1:, 1] = 0
    assert np.argwhere(lone_strata(cells)).tolist() == [[2, 1]]
    assert blocked_by_group(cells).why == ("", LONE, "")


def test_the_rate_within_strata_is_the_one_that_makes_the_variance_smallest() -> None:
    rows = rows_of(7, n=4_000)
    parts = [
        [rows[(rows.s == s) & (rows.a == a)][["y", "tilde"]].to_numpy().T for a in range(2)] for s in range(STRATA)
    ]
    n = np.array([[float(part.shape[1]) for part in pair] for pair in parts])
    products = np.array([[np.cov(part) * (part.shape[1] - 1) for part in pair] for pair in parts])
    rate = contrast_rate(spread_within(Spread(n, n, np.zeros((STRATA, 2, 2)), products))).beta

    def variance(lam: float) -> float:
        share = n.sum(axis=1) / n.sum()
        return float(
            sum(
                share[s] ** 2 * np.var((1 - lam) * parts[s][a][0] + lam * parts[s][a][1]) / n[s, a]
                for s in range(STRATA)
                for a in range(2)
            )
        )

    assert variance(float(rate)) < min(variance(float(rate) + step) for step in (-0.01, 0.01))


def sites(rng: Any, trials: int, strata: int, units: int, pi: Any, groups: int = 128) -> Cells:
    """Sums of units with a few records each, in sites of different levels."""
    arm = (rng.random((trials, strata, units)) < np.asarray(pi)[:, None]).astype(int)
    n = 1.0 + rng.poisson(2, arm.shape)
    level = rng.normal(0, 2, (trials, strata, 1)) + 3 * np.asarray(pi)[:, None]
    total = n * (level + rng.normal(size=arm.shape)) + np.sqrt(n) * rng.normal(size=arm.shape)
    first = np.arange(trials * strata).reshape(trials, strata, 1) * groups
    place = ((first + rng.integers(0, groups, arm.shape)) * 2 + arm).ravel()
    shape = trials, strata, groups, 2
    counted, summed = (np.bincount(place, each.ravel(), trials * strata * groups * 2) for each in (n, total))
    return Cells(counted.reshape(shape).astype(float), summed.reshape(shape).astype(float))


@pytest.mark.parametrize(("strata", "units"), [(3, 100), (20, 16)])
def test_sites_with_different_shares_of_arms_are_covered(strata: int, units: int) -> None:
    rng = np.random.default_rng(8)
    cells = sites(rng, 600, strata, units, np.linspace(0.35, 0.65, strata))
    found, told = blocked_by_group(cells), ~lone_strata(cells).any(axis=(-2, -1))
    difference = difference_of(found, 1)
    covered = np.abs(difference.estimate) <= stats.t.ppf(0.975, difference.df) * np.sqrt(difference.variance)
    assert 0.925 < covered[told].mean() < 0.975
    # The variance is that of the estimates, where a jackknife that is not scaled has up to a sixth more.
    assert np.mean(difference.variance[told]) == pytest.approx(np.var(difference.estimate[told]), rel=0.15)
    pooled = difference_of(jackknife(mean, Cells(cells.weight.sum(1), cells.value.sum(1))), 1)
    assert np.mean(pooled.variance) > 1.3 * np.mean(difference.variance)
