"""A release: no unit moves what is released by more than the noise is for, and who is in it cannot be told."""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np
import pytest
from scipy.special import ndtr

import foldaway as fa
from foldaway.numerics.block import Floats
from foldaway.tallies import Lean
from foldaway.tallies.release import cell_of, noise_scale, noisy_groups, release, spent
from foldaway.tallies.sums import Sums
from plans import SMALL

ARMS = {"a": 0.5, "b": 0.3, "c": 0.2}
COVARIATES: dict[str, Any] = {
    "covariates": [{"column": "x", "bounds": [0, 10]}, {"column": "kind", "levels": ["p", "q", "r"]}],
    "coefficients": {
        "center": {"x": 3.0, "kind[q]": 0.3, "kind[r]": 0.2},
        "slopes": {
            "y": {"x": 0.5, "kind[q]": -1.0, "kind[r]": 2.0},
            "z": {"x": -40.0, "kind[q]": 0.0, "kind[r]": 1.0},
        },
    },
}
BOUNDED = [fa.Mean("y", bounds=(-2, 10)), fa.Mean("z", bounds=(0, 1))]
UNITS = {"unit": "u", "records_per_unit": "together", "release": {"epsilon": 1.0, "unit_records": 3, "noisy_groups": 8}}

SHARES = [fa.Mean("y", bounds=(0, 1)), fa.Mean("z", bounds=(0, 1))]

PLANS: dict[str, dict[str, Any]] = {
    "units": UNITS,
    "adjusted": UNITS | COVARIATES,
    "a total": UNITS | COVARIATES | {"outcomes": [BOUNDED[0], fa.Total("z", bounds=(0, 1))]},
    "records": {"release": 0.5},
    "records of units": {"unit": "u", "release": 2.0},
    "shares": {"unit": "u", "records_per_unit": "one", "release": 1.0, "outcomes": SHARES},
}


class Silence:
    """A generator without any noise: what it would be added to."""

    def standard_normal(self, shape: Any) -> Floats:
        return np.zeros(shape)


SILENT = cast(np.random.Generator, Silence())


def plan_of(case: str) -> fa.Plan:
    return fa.Plan(**{"name": "r", "arm": "g", "arms": ARMS, "outcomes": BOUNDED, **PLANS[case]})


def sums_of(plan: fa.Plan, rows: dict[str, Any]) -> Sums:
    trial = fa.Trial(plan, key=bytes(16) if plan.keyed else None)
    trial.fold(rows)
    assert isinstance(trial.tallies, Lean)
    return trial.tallies.sums


def vector(plan: fa.Plan, sums: Sums) -> Floats:
    """What noise is added to, in units of the noise."""
    cell, told, outcomes = cell_of(plan), release(plan, sums, SILENT), len(plan.outcomes)
    y, p = told.total[..., :outcomes], [told.total[..., o] - told.total[..., o + outcomes] for o in cell.predicted]
    return np.concatenate([told.records[..., None], y, *(each[..., None] for each in p)], axis=-1) / cell.scale


def records(rng: np.random.Generator, n: int, unit: int) -> dict[str, Any]:
    """A unit's records, all alike and of one arm, with values that go far beyond every bound."""
    choices = {"y": [-99.0, -2.0, 4.0, 10.0, 99.0], "z": [-9.0, 0.0, 0.5, 1.0, 9.0], "x": [-99.0, 0.0, 3.0, 10.0, 99.0]}
    drawn: dict[str, Any] = {name: [float(rng.choice(values))] * n for name, values in choices.items()}
    return {"g": [list(ARMS)[unit % 3]] * n, "u": [unit] * n, "kind": [str(rng.choice(["p", "q", "r"]))] * n, **drawn}


@pytest.mark.parametrize("case", PLANS)
def test_no_unit_moves_a_release_by_more_than_its_noise_is_for(case: str) -> None:
    plan = plan_of(case)
    assert plan.release is not None
    allowed = 1 / noise_scale(plan.release.epsilon, plan.release.delta)
    rng, furthest = np.random.default_rng(1), 0.0
    nobody = np.zeros((len(ARMS), noisy_groups(plan), len(cell_of(plan).scale)))
    for unit in range(60):
        moved = vector(plan, sums_of(plan, records(rng, plan.unit_records, unit))) - nobody
        assert np.count_nonzero(np.any(moved != 0, axis=-1)) == 1  # one arm, one group
        furthest = max(furthest, float(np.linalg.norm(moved)))
    # All of it is used: with a unit at its bounds, the limit is reached to a thousandth, which is for rounding.
    assert 0.99 * allowed < furthest <= allowed if "total" not in case else 0 < furthest <= allowed


def test_records_move_the_release_one_by_one_where_they_are_not_complete() -> None:
    assert plan_of("records of units").protects == "record"
    assert plan_of("records of units").unit_records == 1
    assert plan_of("units").protects == "unit"
    assert plan_of("shares").protects == "unit"
    devices = fa.Plan(**{**SMALL, "outcomes": SHARES}, federated="sums", release=1.0)
    assert (devices.protects, devices.unit_records) == ("device", 1000)


def exact_epsilon(scale: float, delta: float) -> float:
    """ε of the Gaussian mechanism by its own curve (Balle and Wang 2018), which no conversion is between."""

    def delta_at(epsilon: float) -> float:
        a, b = 1 / (2 * scale), epsilon * scale
        return float(ndtr(a - b) - math.exp(epsilon) * ndtr(-a - b))

    low, high = 0.0, 100.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if delta_at(middle) > delta else (low, middle)
    return high


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 20.0])
def test_the_accounts_are_those_of_the_gaussian_curve_or_more_careful(epsilon: float) -> None:
    for delta in (1e-9, 1e-4):
        true = exact_epsilon(noise_scale(epsilon, delta), delta)
        assert 0.8 * epsilon < true <= epsilon


def test_noise_for_each_sum_alone_would_spend_a_multiple() -> None:
    alone = noise_scale(1.0, 1e-6)  # for the count, and again for each of three outcomes
    assert spent(alone / 2, 1e-6) > 2
    assert exact_epsilon(alone / 2, 1e-6) > 1.8


def test_a_release_has_the_noise_that_it_says() -> None:
    plan = plan_of("adjusted")
    rng = np.random.default_rng(2)
    sums = sums_of(plan, records(rng, 3, 0))
    base = vector(plan, sums)
    drawn = np.array([release(plan, sums).records / cell_of(plan).scale[0] for _ in range(40)]) - base[..., 0]
    assert abs(drawn.std() - 1) < 5 / math.sqrt(2 * drawn.size)
    assert abs(drawn.mean()) < 5 / math.sqrt(drawn.size)
    told = release(plan, sums)
    for nothing in (told.mass, told.first, told.square, told.cross, told.absolute):
        assert nothing is not None
        assert not nothing.any()  # squares never leave


@pytest.mark.parametrize("silent", [False, True])
def test_who_is_in_cannot_be_told_from_a_release(silent: bool) -> None:
    # Whoever knows all others asks whether one unit took part: the most powerful test is the likelihood ratio.
    plan, runs = plan_of("shares"), 1000
    assert plan.release is not None
    rng = np.random.default_rng(3)
    others = [records(rng, 1, unit) for unit in range(2, 40)]
    without = {name: [value for each in others for value in each[name]] for name in others[0]}
    one: dict[str, list[Any]] = {"g": ["a"], "u": [0], "y": [1.0], "z": [1.0], "x": [0.0], "kind": ["p"]}
    worlds = [sums_of(plan, without), sums_of(plan, {name: [*without[name], *one[name]] for name in without})]
    apart = vector(plan, worlds[1]) - vector(plan, worlds[0])
    scores = []
    for world in worlds:
        told = [release(plan, world, SILENT if silent else None) for _ in range(10 if silent else runs)]
        seen = np.array([np.concatenate([t.records[..., None], t.total], axis=-1) for t in told]) / cell_of(plan).scale
        scores.append(((seen - vector(plan, worlds[0])) * apart).sum(axis=(1, 2, 3)))
    cut = np.linspace(-1, 1, 401)
    rates = [(each[:, None] > cut).mean(axis=0) for each in scores]  # of false alarms, and of true ones
    advantage = float(np.max(rates[1] - rates[0]))
    allowed = math.tanh(plan.release.epsilon / 2)
    chance = 4 / math.sqrt(runs)
    if silent:
        assert advantage > allowed + chance  # without noise, everyone can be found
        return
    assert advantage < allowed
    assert advantage < 2 * ndtr(float(np.linalg.norm(apart)) / 2) - 1 + chance  # what Gaussian noise allows
    assert np.all(rates[1] <= math.exp(plan.release.epsilon) * rates[0] + plan.release.delta + chance)
