"""Boundaries of planned looks: other programs' and published ones, and laws."""

from __future__ import annotations

import math

import numpy as np
import pytest

from foldaway.inference.looks.boundaries import crossing, efficacy, futility, planned_drift
from foldaway.inference.looks.planned import OBRIEN_FLEMING, POCOCK, Spending, spent


def upper(at: list[float], spending: Spending, alpha: float, *, two_sided: bool = False) -> list[float]:
    return efficacy(at, [spent(spending, alpha, t, at) for t in at], two_sided=two_sided)


def equally(looks: int) -> list[float]:
    return [k / looks for k in range(1, looks + 1)]


# gsDesign 3 with test.type = 1, alpha = 0.025 and sfLDOF, as gsDesign2's pages print them for three looks; for other
# numbers of looks the table in Reboussin, DeMets, Kim and Lan, "Computations for group sequential boundaries using the
# Lan–DeMets spending function method", Controlled Clinical Trials 21, 2000.
OBRIEN_FLEMINGS = {
    2: [2.9626, 1.9686],
    3: [3.710303, 2.511427, 1.993048],
    4: [4.3326, 2.9631, 2.3590, 2.0141],
    5: [4.8769, 3.3570, 2.6803, 2.2898, 2.0310],
}
POCOCKS = {2: [2.1570, 2.2010], 5: [2.4380, 2.4268, 2.4102, 2.3966, 2.3860]}


@pytest.mark.parametrize("looks", OBRIEN_FLEMINGS)
def test_obrien_fleming_boundaries_are_the_published_ones(looks: int) -> None:
    found = upper(equally(looks), OBRIEN_FLEMING, 0.025, two_sided=True)
    assert found == pytest.approx(OBRIEN_FLEMINGS[looks], abs=6e-5 if looks != 3 else 2e-6)


@pytest.mark.parametrize("looks", POCOCKS)
def test_pocock_boundaries_are_the_published_ones(looks: int) -> None:
    assert upper(equally(looks), POCOCK, 0.025) == pytest.approx(POCOCKS[looks], abs=6e-5)


def test_a_list_of_alphas_gives_rpacts_boundaries() -> None:
    # rpact, test-f_design_group_sequential.R: typeOfDesign = "asUser", one-sided.
    found = upper(equally(4), [0.01, 0.02, 0.03, 0.05], 0.05)
    assert found == pytest.approx([2.3263479, 2.2192994, 2.1201347, 1.8189562], abs=2e-6)


def test_looks_that_end_early_give_rpacts_boundaries() -> None:
    # rpact, the same file: informationRates = c(0.4, 0.7), "asP", α = 0.025.
    assert upper([0.4, 0.7], POCOCK, 0.025) == pytest.approx([2.223875, 2.3050796], abs=2e-6)


def test_futility_that_does_not_bind_gives_rpacts_boundaries_and_power() -> None:
    # rpact, the same file: "asP" with α = 0.13, "bsUser" with c(0.01, 0.05, 0.3), bindingFutility = FALSE.
    at, beta = [0.35, 0.7, 1.0], [0.01, 0.05, 0.3]
    above = upper(at, POCOCK, 0.13)
    assert above == pytest.approx([1.5446617, 1.4828682, 1.4620058], abs=2e-6)
    drift = planned_drift(at, above, beta)
    below = futility(at[:-1], above[:-1], beta[:-1], drift)
    assert below == pytest.approx([-1.2557044, -0.16828659], abs=2e-5)
    power = np.cumsum(crossing(at, [*below, above[-1]], above, drift).above)
    assert power == pytest.approx([0.31774348, 0.5598179, 0.7], abs=2e-6)


def test_futility_beside_obrien_fleming_gives_rpacts_boundaries() -> None:
    # rpact, the same file: "asOF" with α = 0.13, "bsKD" with γ = 2.5 and β = 0.41, informationRates = c(0.4, 0.75, 1).
    at = [0.4, 0.75, 1.0]
    beta = [0.41 * t**2.5 for t in at]
    above = upper(at, OBRIEN_FLEMING, 0.13)
    assert above == pytest.approx([2.1280732, 1.4368565, 1.2468994], abs=2e-6)
    drift = planned_drift(at, above, beta)
    assert futility(at[:-1], above[:-1], beta[:-1], drift) == pytest.approx([-0.83725762, 0.35992547], abs=2e-5)


@pytest.mark.parametrize(
    ("looks", "pocock", "obrien_fleming"), [(2, 2.178, 1.977), (3, 2.289, 2.004), (4, 2.361, 2.024), (5, 2.413, 2.040)]
)
def test_the_constants_of_jennison_and_turnbull_have_their_error_rate(
    looks: int, pocock: float, obrien_fleming: float
) -> None:
    # "Group Sequential Methods with Applications to Clinical Trials", 2000, tables 2.1 and 2.3, two-sided α = 0.05.
    at = equally(looks)
    for bounds in ([pocock] * looks, [obrien_fleming / math.sqrt(t) for t in at]):
        found = crossing(at, [-each for each in bounds], bounds)
        assert sum(found.above) + sum(found.below) == pytest.approx(0.05, abs=2e-4)


@pytest.mark.parametrize("spending", [OBRIEN_FLEMING, POCOCK, [0.001, 0.004, 0.02, 0.05]])
@pytest.mark.parametrize("at", [[0.25, 0.5, 0.75, 1.0], [0.5, 0.51, 0.98, 1.0], [0.07, 0.3, 0.31, 0.6]])
def test_each_look_crosses_as_often_as_is_spent(spending: Spending, at: list[float]) -> None:
    cumulative = [spent(spending, 0.025, t, [0.25, 0.5, 0.75, 1.0]) for t in at]
    for two_sided in (False, True):
        bounds = efficacy(at, cumulative, two_sided=two_sided)
        lower = [-each if two_sided else -math.inf for each in bounds]
        assert np.cumsum(crossing(at, lower, bounds).above) == pytest.approx(cumulative, abs=1e-9)


def test_one_look_is_the_plain_test() -> None:
    assert upper([1.0], OBRIEN_FLEMING, 0.025) == pytest.approx([1.9599639845], abs=1e-9)
    assert upper([1.0], [0.05], 0.05) == pytest.approx([1.6448536270], abs=1e-9)


def test_two_looks_agree_with_the_bivariate_normal_law() -> None:
    from scipy.stats import multivariate_normal

    bounds = upper([0.3, 1.0], POCOCK, 0.025)
    root = math.sqrt(0.3)
    neither = multivariate_normal([0, 0], [[1, root], [root, 1]]).cdf(bounds)
    assert 1 - neither == pytest.approx(0.025, abs=1e-6)


def test_a_look_that_may_spend_nothing_cannot_be_crossed() -> None:
    assert efficacy([0.5, 1.0], [0.0, 0.025], two_sided=True) == pytest.approx([math.inf, 1.9599639845], abs=1e-8)
    assert efficacy([0.5, 1.0], [0.025, 0.025], two_sided=False)[1] == math.inf
    assert futility([0.5], [3.0], [0.0], 3.0) == [-math.inf]


def test_futility_never_lies_above_efficacy() -> None:
    assert futility([0.5, 0.9], [2.0, 1.8], [0.99, 0.995], 1.0)[0] == 2.0


def test_false_alarms_of_simulated_trials_are_alpha() -> None:
    rng, at, trials = np.random.default_rng(29), np.array([0.2, 0.5, 0.6, 1.0]), 200_000
    steps = np.diff(at, prepend=0.0)
    z = np.cumsum(rng.normal(size=(trials, len(at))) * np.sqrt(steps), axis=1) / np.sqrt(at)
    for spending in (OBRIEN_FLEMING, POCOCK):
        bounds = np.array(upper(list(at), spending, 0.025, two_sided=True))
        assert np.mean((np.abs(z) > bounds).any(axis=1)) == pytest.approx(0.05, abs=4 * math.sqrt(0.05 * 0.95 / trials))


@pytest.mark.parametrize("spending", [OBRIEN_FLEMING, POCOCK])
def test_spending_grows_from_nothing_to_alpha(spending: str) -> None:
    spents = [spent(spending, 0.025, t) for t in np.linspace(0, 1.2, 50)]
    assert spents == sorted(spents)
    assert (spents[0], spents[-1]) == (0.0, 0.025)
