"""What a stopped trial has found: laws that a p-value, an estimate and an interval must keep."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import pytest

from foldaway.inference.looks.boundaries import efficacy
from foldaway.inference.looks.planned import OBRIEN_FLEMING, POCOCK, spent
from foldaway.inference.looks.stagewise import Ended, ended
from sizes import simulated

AT = [0.3, 0.6, 1.0]


@lru_cache
def bounds(spending: str = POCOCK, *, two_sided: bool = True) -> list[float]:
    return efficacy(AT, [spent(spending, 0.025, t) for t in AT], two_sided=two_sided)


def found(look: int, z: float, spending: str = POCOCK, *, two_sided: bool = True, confidence: float = 0.95) -> Ended:
    before = bounds(spending, two_sided=two_sided)[:look]
    return ended(AT[: look + 1], before, z, confidence, two_sided=two_sided)


@pytest.mark.parametrize("two_sided", [True, False])
@pytest.mark.parametrize("spending", [OBRIEN_FLEMING, POCOCK])
def test_at_a_boundary_the_p_value_is_what_has_been_spent(spending: str, two_sided: bool) -> None:
    for look, bound in enumerate(bounds(spending, two_sided=two_sided)):
        p = found(look, bound, spending, two_sided=two_sided).p_above
        assert p == pytest.approx(spent(spending, 0.025, AT[look]), rel=1e-6)


def test_at_the_last_boundary_the_interval_begins_at_zero() -> None:
    assert found(2, bounds()[2]).lower == pytest.approx(0, abs=1e-6)


def test_of_one_look_it_is_the_plain_test() -> None:
    one = ended([0.25], [], 1.7, 0.9, two_sided=True)
    drift = np.array([one.lower, one.estimate, one.upper]) * 0.5
    assert drift == pytest.approx([1.7 - 1.6448536, 1.7, 1.7 + 1.6448536], abs=1e-6)


def test_the_two_sides_mirror_each_other() -> None:
    one, other = found(2, 1.5), found(2, -1.5)
    assert other.p_above == pytest.approx(1 - one.p_above, abs=1e-9)
    assert (other.lower, other.estimate, other.upper) == pytest.approx(
        (-one.upper, -one.estimate, -one.lower), abs=1e-6
    )
    assert other.p_value == pytest.approx(one.p_value, abs=1e-9)


def test_an_earlier_end_is_further_out() -> None:
    first, second, third = found(0, bounds()[0]), found(1, 6.0), found(2, 6.0)
    assert first.p_above < second.p_above < third.p_above < found(2, 2.0).p_above


def test_the_estimate_lies_nearer_to_zero_than_the_plain_one_after_going_on() -> None:
    assert 0 < found(2, 2.5).estimate < 2.5


@simulated(100, 400)
@pytest.mark.parametrize("drift", [0.0, 2.5])
def test_simulated_trials_are_covered_and_their_median_is_true(drift: float, trials: int) -> None:
    rng = np.random.default_rng(29)
    steps = np.diff(np.array(AT), prepend=0.0)
    covered = above = rejected = 0
    for _ in range(trials):
        z = np.cumsum(rng.normal(drift * steps, np.sqrt(steps))) / np.sqrt(AT)
        stop = next((k for k, bound in enumerate(bounds()) if abs(z[k]) >= bound), 2)
        end = found(stop, float(z[stop]))
        covered += end.lower <= drift <= end.upper
        above += end.estimate > drift
        rejected += end.p_value < 0.05
        assert (end.p_value < 0.05) == (abs(z[stop]) > bounds()[stop])
    spread = 3.5 * math.sqrt(trials)
    assert abs(covered - 0.95 * trials) < spread * math.sqrt(0.95 * 0.05)
    assert abs(above - 0.5 * trials) < spread / 2
    if not drift:
        assert abs(rejected - 0.05 * trials) < spread * math.sqrt(0.95 * 0.05)
