"""Whether effects differ between levels: against SciPy, and by simulation against the interaction on kept rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from foldaway.inference.alexander_govern import (
    LEAST_EFFECTIVE,
    differing,
    effects_differ,
    means_by_level,
    normal_score,
)
from foldaway.inference.anytime import evidence
from foldaway.inference.levels import Levels


def test_of_one_records_groups_it_is_scipys() -> None:
    rng = np.random.default_rng(1)
    samples = [rng.normal(m, s, n) for m, s, n in ((5, 1, 12), (5.4, 3, 30), (6, 0.5, 8), (5, 2, 40))]
    found: list[Any] = [means_by_level(np.ones((len(y), 1)), y[:, None]) for y in samples]
    value, variance, doubt = (np.array([np.ravel(each[k])[0] for each in found]) for k in range(3))
    test, wanted = differing(value, variance, 1 / doubt), stats.alexandergovern(*samples)
    assert float(test.statistic) == pytest.approx(wanted.statistic, rel=1e-10)
    assert float(test.p_value) == pytest.approx(wanted.pvalue, rel=1e-10)
    assert test.df == 3


def test_hills_score_has_students_tail() -> None:
    for df in (3.0, 8.0, 60.0):
        t = np.array([-4.0, -1.0, 0.0, 0.5, 3.0])
        assert stats.norm.cdf(normal_score(t, np.full(5, df))) == pytest.approx(stats.t.cdf(t, df), rel=0.02)


def cells(rng: Any, trials: int, levels: int, units: int, groups: int = 64, *, apart: float = 0.0) -> tuple[Any, Any]:
    """Sums by level, group and arm of units with three records, and the units' means for a test on kept rows."""
    unit = rng.normal(size=(trials, levels, units)) + rng.normal(size=(trials, levels, units)) / np.sqrt(3)
    arm = np.broadcast_to(np.arange(units) % 2, unit.shape)
    unit = unit + apart * arm * np.linspace(-1, 1, levels)[:, None]
    place = np.arange(trials * levels).reshape(trials, levels, 1) * groups + rng.integers(0, groups, unit.shape)
    place = (place * 2 + arm).ravel()
    shape = trials, levels, groups, 2
    n, total = (
        np.bincount(place, each, trials * levels * groups * 2).reshape(shape)
        for each in (np.full(unit.size, 3.0), 3 * unit.ravel())
    )
    return (n, total), unit


def interaction(unit: Any) -> Any:
    """The p-value of the interaction's F test on the units' means: (trials,)."""
    levels, units = unit.shape[1:]
    half = units // 2
    effect = unit[..., 1::2].mean(-1) - unit[..., ::2].mean(-1)
    inside = sum(unit[..., a::2].var(-1, ddof=1) for a in (0, 1)).mean(-1) / 2
    statistic = effect.var(-1, ddof=1) / (inside * 2 / half)
    return stats.f.sf(statistic, levels - 1, levels * (units - 2))


@pytest.mark.parametrize(("levels", "units"), [(3, 60), (20, 60), (20, 30)])
def test_it_is_wrong_no_more_often_than_it_says_and_finds_what_kept_rows_find(levels: int, units: int) -> None:
    rng = np.random.default_rng(2)
    sums, _ = cells(rng, 1_000, levels, units)
    assert np.mean(effects_differ(means_by_level(*sums), 1).p_value < 0.05) < 0.075
    sums, unit = cells(rng, 500, levels, units, apart=2.5 / np.sqrt(units))
    power = np.mean(effects_differ(means_by_level(*sums), 1).p_value < 0.05)
    assert power > np.mean(interaction(unit) < 0.05) - 0.05
    assert power > 0.2


def test_shares_with_small_arms_are_no_more_often_wrong() -> None:
    rng = np.random.default_rng(5)
    units = np.array([48, 12])
    events: Any = rng.binomial(units, 0.2, (600, 20, 2))
    n, p = np.broadcast_to(1.0 * units, events.shape), events / units
    own = np.eye(2)
    levels = Levels(p, (p * (1 - p) / (n - 1))[..., None] * own, (1 / (n - 1))[..., None] * own, n)
    carriers = evidence(n, 1.0 * events, 1.0 * events, 1.0 * events)
    plain, blended = (
        np.mean(test.p_value < 0.05)
        for test in (effects_differ(levels, 1), effects_differ(levels, 1, carriers=carriers, size=p))
    )
    assert blended < 0.06
    assert plain > 0.1


def test_levels_in_too_few_groups_are_left_out() -> None:
    rng = np.random.default_rng(3)
    n, total = np.ones((5, 16, 2)), rng.normal(size=(5, 16, 2))
    n[4, int(LEAST_EFFECTIVE) - 1 :, 1] = 0
    total[n == 0] = 0
    found = effects_differ(means_by_level(n, total), 1)
    assert found == effects_differ(means_by_level(n[:4], total[:4]), 1)
    assert found.df == 3
    none = effects_differ(means_by_level(n[3:], total[3:]), 1)
    assert np.isnan(none.p_value)
    empty = effects_differ(means_by_level(np.zeros((2, 16, 2)), np.zeros((2, 16, 2))), 1)
    assert np.isnan(empty.p_value)


def test_neither_the_levels_order_nor_the_outcomes_scale_matters() -> None:
    rng = np.random.default_rng(4)
    (n, total), _ = cells(rng, 3, 6, 40)
    p = effects_differ(means_by_level(n, total), 1).p_value
    assert effects_differ(means_by_level(n[:, ::-1], 7 * total[:, ::-1]), 1).p_value == pytest.approx(p)
    assert effects_differ(means_by_level(n, total), 0, control=1).p_value == pytest.approx(p)
    assert effects_differ(means_by_level(n[0], total[0]), 1).p_value == pytest.approx(p[0])
    # A number that all records of a level share is none of an effect.
    assert effects_differ(means_by_level(n, total + 5 * n), 1).p_value == pytest.approx(p)
