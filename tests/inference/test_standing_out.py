"""What a bad device cannot do: shift the median of the groups' means far, or hide in its group."""

from __future__ import annotations

import numpy as np
import pytest

import foldaway as fa
from foldaway.effects.door import OWN, TOLD, Door
from foldaway.effects.effects import Effects
from foldaway.effects.reading import effects_of
from foldaway.inference.reading.median_of_means import median_of_means
from foldaway.plan.vocabulary import DIFFERENCE, MEDIAN_OF_MEANS
from foldaway.records.faults import Faults
from foldaway.tallies import grouped_of
from foldaway.trial import Trial

PLAN = fa.Plan(
    name="crowd", arm="arm", arms={"a": 0.5, "b": 0.5}, outcomes=["y"], federated="sums", expected_units=2_000
)
RNG = np.random.default_rng(3)
DEVICES = 2_000
ARM, GROUP, N = np.arange(DEVICES) % 2, RNG.integers(0, PLAN.groups, DEVICES), RNG.integers(1, 6, DEVICES)
SUMS = N * (1e6 + RNG.normal(10, 2, DEVICES))


def effects(sums: np.ndarray, door: Door = OWN, groups: np.ndarray = GROUP) -> Effects:
    trial = Trial(PLAN)
    trial.fold_totals(ARM, groups, N, sums[:, None])
    return effects_of(PLAN, Faults(), door, sums=grouped_of(trial.tallies))


def estimates(found: Effects) -> list[float]:
    rows = [found.filter(estimator=name)[0] for name in (DIFFERENCE, MEDIAN_OF_MEANS)]
    assert all(row.estimate is not None and row.std_error for row in rows)
    return [float(row.estimate or 0) for row in rows]


def test_one_bad_device_moves_the_plain_effect_alone_and_its_group_is_named_to_the_owner() -> None:
    honest = effects(SUMS)
    assert honest.alarm is None
    bad = SUMS.copy()
    bad[1] += 1e9
    plain, robust = np.subtract(estimates(effects(bad)), estimates(honest))
    error = honest.filter(estimator=DIFFERENCE)[0].std_error
    assert error is not None
    assert plain > 1_000 * error
    assert abs(robust) < error
    alarm = effects(bad).alarm
    assert alarm is not None
    assert f"Group {GROUP[1]} stands out in 'y' among those of arm 'b'" in alarm
    assert effects(bad, TOLD).alarm is None


def test_several_groups_are_counted_beyond_the_first() -> None:
    bad = SUMS.copy()
    bad[np.flatnonzero((ARM == 1) & (GROUP < 7))] -= 1e9
    alarm = effects(bad).alarm
    assert alarm is not None
    assert alarm.startswith("Groups 0, 1, 2, 3, 4 and 2 more stand out in 'y'")


@pytest.mark.parametrize("count", [16, 65])
def test_the_median_lies_between_the_honest_means_whatever_less_than_a_third_of_the_groups_say(count: int) -> None:
    means = np.random.default_rng(count).normal(size=count)
    for far in (-1e12, 1e12):
        some = means.copy()
        some[: count // 3 - 1] = far
        value, error = median_of_means(np.sort(some), 1)
        assert means.min() <= value <= means.max()
        assert error > 0


def test_where_the_median_says_nothing_there_is_a_reason() -> None:
    (row,) = effects(np.where(np.arange(DEVICES) < 40, 1.0, 0.0)).filter(estimator=MEDIAN_OF_MEANS)
    assert not row.reliable
    assert "groups have the same mean" in str(row.why)
    (row,) = effects(SUMS, groups=GROUP % 8).filter(estimator=MEDIAN_OF_MEANS)
    assert "16 groups of an arm have records" in str(row.why)
