"""Few units: errors by unit cover, or are withheld."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import foldaway as fa
from foldaway.inference.few_units import ENOUGH_UNITS, FewUnits, effective_units
from foldaway.tallies import arms_of
from plans import replaced
from sizes import mostly_slow
from trials import from_moments, known

PLAN = fa.Plan(
    name="few", arm="g", arms={"a": 0.5, "b": 0.5}, outcomes=["y"], unit="u",
    moments=fa.Moments(estimators=["difference"], errors=["CR1"]),
    records_per_unit="together",
    
)  # fmt: skip

pytestmark = pytest.mark.filterwarnings("ignore::foldaway.SampleRatioWarning")


def effects_of(plan: fa.Plan, sizes: list[list[int]], seed: int = 1, **more: Any) -> fa.Effects:
    """Of arms whose units have so many records, with an effect of zero."""
    rng = np.random.default_rng(seed)
    each = np.concatenate([np.asarray(arm) for arm in sizes])
    unit = np.repeat(np.arange(len(each)), each)
    arm = np.repeat([0, 1], [len(of) for of in sizes])[unit]
    y = rng.normal(size=len(each))[unit] + rng.normal(size=len(unit))
    columns = {name: make(rng, unit) for name, make in more.items()}
    trial = fa.Trial(plan, key=bytes(range(16)))
    trial.fold({"g": np.array(["a", "b"])[arm], "u": unit, "y": y, **columns})
    return from_moments(trial.effects())


@pytest.mark.parametrize(
    ("arms", "least"), mostly_slow([((18, 2), 0.95), ((35, 5), 0.93), ((6, 6), 0.93)], ((18, 2), 0.95))
)
def test_few_treated_units_are_covered(arms: tuple[int, int], least: float) -> None:
    """With CR1 as it was, 2 units of 20 covered 75 %, and 5 of 40 about 89 %."""
    sizes = [[2] * arms[0], [2] * arms[1]]
    rows = [effects_of(PLAN, sizes, seed)[0] for seed in range(200)]
    assert all(row.reliable for row in rows)
    assert np.mean([known(row.ci_lower) <= 0 <= known(row.ci_upper) for row in rows]) >= least


def test_degrees_of_freedom_are_welchs_by_effective_units_and_no_more_than_of_equal_spread() -> None:
    sizes = [[1, 5, 9, 2, 2, 6], [3, 3, 8, 1]]
    row = effects_of(PLAN, sizes)[0]
    rng = np.random.default_rng(1)
    each = np.concatenate([np.asarray(arm) for arm in sizes])
    unit = np.repeat(np.arange(10), each)
    y = rng.normal(size=10)[unit] + rng.normal(size=len(unit))
    total, parts, units = np.bincount(unit, y), [], []
    for mine in (slice(0, 6), slice(6, 10)):
        n = each[mine].astype(float)
        scores = total[mine] - n * total[mine].sum() / n.sum()
        parts.append(float(scores @ scores) / n.sum() ** 2 * len(n) / (len(n) - 1))
        units.append(n.sum() ** 2 / float(n @ n))
    e, V = np.array(units), np.array(parts)
    V0 = V * (np.array([6, 4]) - 1) / np.array([6, 4])  # degrees of freedom are those of the scores as they are
    welch, alike = (v.sum() ** 2 / np.sum(v**2 / (e - 1)) for v in (V0, 1 / e))
    assert row.std_error == pytest.approx(np.sqrt(V.sum()), rel=1e-10)
    assert row.df == pytest.approx(min(welch, alike), rel=1e-10)


REASONS = {
    "one treated unit of 21": ([[4] * 20, [4]], {}, "Errors by unit need 2 units in each arm; an arm has 1."),
    "nearly one unit": ([[4] * 20, [100, 4]], {}, "Nearly all records of an arm are those of one unit"),
    "CR0": ([[4] * 20, [4] * 8], {"errors": ["CR0"]}, "CR0 has no correction for few units: it needs 10"),
    "regression": (
        [[4] * 15, [4] * 15],
        {"estimators": ["interacted"], "covariates": ["x"]},
        "CR errors of a regression need about 20 units of an arm for each covariate that differs between units.",
    ),
}


@pytest.mark.parametrize("case", REASONS)
def test_too_few_are_withheld_with_the_reason(case: str) -> None:
    sizes, settings, reason = REASONS[case]
    by_unit: dict[str, Any] = (
        {"x": lambda rng, unit: rng.normal(size=unit.max() + 1)[unit]} if "covariates" in settings else {}
    )
    plan = replaced(PLAN, **settings)
    row = effects_of(plan, sizes, **by_unit).filter(estimator=plan.estimators[0])[0]
    assert not row.reliable
    assert row.std_error is None
    assert str(row.why).startswith(reason)


def test_a_covariate_that_differs_within_units_rests_on_records() -> None:
    plan = replaced(PLAN, estimators=["interacted"], covariates=["x"])
    effects = effects_of(plan, [[20] * 15, [20] * 15], x=lambda rng, unit: rng.normal(size=len(unit)))
    row = effects.filter(estimator="interacted")[0]
    assert row.reliable


# The bootstrap, which counts no units.

RESAMPLED = replaced(PLAN, records_per_unit="many", errors=["HC1"], bootstrap=200)


@pytest.mark.parametrize(
    ("units", "told", "noted"), [(4, False, False), (6, False, False), (13, True, True), (40, True, False)]
)
def test_the_bootstrap_needs_ten_units_and_has_a_note_below_twenty(units: int, told: bool, noted: bool) -> None:
    row = effects_of(RESAMPLED, [[60] * units, [60] * units]).filter(se_kind="bootstrap")[0]
    assert row.reliable is told
    assert (row.percentile_ci_lower is not None) is told
    assert (row.note is not None) is noted
    if not told:
        assert str(row.why).startswith(f"Bootstrap errors need about {ENOUGH_UNITS} units")


def test_the_replicates_tell_how_many_units_there_are() -> None:
    sizes = [1, 4, 30, 2] * 15
    unit = np.repeat(np.arange(len(sizes)), sizes)
    plan = replaced(RESAMPLED, bootstrap=4000)
    trial = fa.Trial(plan, key=bytes(16))
    trial.fold({"g": np.resize(["a"], len(unit)), "u": unit, "y": np.zeros(len(unit))})
    truth = sum(sizes) ** 2 / sum(n * n for n in sizes)
    assert effective_units(arms_of(trial.tallies)[0]) == pytest.approx(truth, rel=0.1)


def test_an_interval_of_the_bootstrap_is_expanded_as_hesterberg_has_it() -> None:
    few = FewUnits(fewest=16.0, df=30.0, stretch=1.1)
    # z' = 1.1 · t_30(.975) = 1.1 · 2.0423, and Φ(2.2465) = .98767
    assert few.expanded(0.95) == pytest.approx(2 * 0.98767 - 1, abs=2e-5)
    assert few.p_value(1 - few.expanded(0.95)) == pytest.approx(0.05, rel=1e-9)
