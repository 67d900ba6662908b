"""Which effect leads: a matter of the plan and the counts, never of what was found."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

import foldaway as fa
from foldaway.effects import Effect
from foldaway.effects.headline import comparisons, why
from foldaway.plan.vocabulary import ERRORS, MOMENTS
from plans import replaced
from trials import folded, from_moments, make_trial


def lead(plan: fa.Plan, rows: object) -> Effect:
    found: Effect = comparisons(folded(plan, rows).effects())[0].lead
    return found


def test_what_is_read_from_sums_leads_whether_or_not_there_are_moments() -> None:
    for settings in ({"covariates": 2}, {"covariates": 0}, {"units": True}):
        plan, rows = make_trial(1, n=600, **settings)
        leads = []
        for each in (plan, msgspec.structs.replace(plan, moments=None, records_per_unit="many")):
            trial = fa.Trial(each, key=bytes(16) if each.keyed else None)
            trial.fold(rows)
            leads.append(comparisons(trial.effects())[0].lead)
        assert ERRORS[leads[0].se_kind].source != MOMENTS
        for found in ("estimate", "std_error", "df", "anytime_ci_lower"):
            one, other = (getattr(each, found) for each in leads)
            assert one == pytest.approx(other, rel=1e-12), found
        assert (leads[0].estimator, leads[0].se_kind) == (leads[1].estimator, leads[1].se_kind)


def test_large_arms_are_adjusted_each_on_its_own_and_small_ones_together() -> None:
    plan, rows = make_trial(1, n=600, covariates=2)
    assert lead(plan, rows).estimator == lead(plan, rows[:60]).estimator == "adjusted"
    for n, estimator in ((600, "interacted"), (60, "regression")):
        assert comparisons(from_moments(folded(plan, rows[:n]).effects()))[0].lead.estimator == estimator
    bare, rows = make_trial(1, n=600, covariates=0)
    assert lead(bare, rows).estimator == "difference"


def test_what_the_plan_names_first_leads() -> None:
    plan, rows = make_trial(1, n=600)
    for estimator in ("ipw", "difference", "regression"):
        named = replaced(plan, estimators=[estimator, "interacted"])
        effects = folded(named, rows).effects()
        [found] = comparisons(effects)
        assert found.lead.estimator == estimator
        assert why(effects, found.lead) == "the plan names it first."


def test_the_choice_does_not_look_at_the_outcome() -> None:
    plan, rows = make_trial(2, n=500, arms=3)
    rng = np.random.default_rng(0)
    chosen = set()
    for _ in range(10):
        changed = rows.assign(y0=rng.permutation(rows["y0"]) * 10.0 ** rng.integers(-5, 5))
        chosen.add(tuple((c.lead.estimator, c.lead.se_kind) for c in comparisons(folded(plan, changed).effects())))
    assert len(chosen) == 1


def test_errors_by_unit_lead_where_there_are_any() -> None:
    plan, rows = make_trial(3, n=600, units=True)
    assert lead(plan, rows).se_kind == "jackknife"
    assert lead(replaced(plan, estimators=["regression"]), rows).se_kind == "CR1"
    assert comparisons(from_moments(folded(plan, rows).effects()))[0].lead.se_kind == "CR1"
    resampled = replaced(plan, records_per_unit="many", bootstrap=50, estimators=["regression"])
    assert lead(resampled, rows).se_kind == "bootstrap"


@pytest.mark.parametrize("named", ["difference", "regression"])
def test_no_error_that_takes_records_as_independent_leads_where_units_have_several(named: str) -> None:
    plan, rows = make_trial(3, n=600, units=True)
    plan = replaced(plan, records_per_unit="many", estimators=[named], errors=["HC1"])
    effects = folded(plan, rows).effects()
    [found] = comparisons(effects)
    assert (found.lead.estimator, found.lead.se_kind) == ("difference", "jackknife")
    assert {row.se_kind for row in found.rows} == {"jackknife", "HC1"}
    if named == "regression":
        assert why(effects, found.lead) == "its error allows for units with several records."
    [asked] = comparisons(effects.filter(se_kind="HC1"))  # who asks for nothing else sees it
    assert asked.lead.se_kind == "HC1"


def test_an_estimator_that_cannot_be_computed_does_not_lead() -> None:
    plan, rows = make_trial(4, n=600)
    constant = rows.assign(x0=np.where(rows["group"] == "arm0", 1.0, 2.0))  # the covariate is the arm itself
    effects = from_moments(folded(plan, constant).effects())
    [found] = comparisons(effects)
    assert found.lead.estimator == "difference"
    assert "could not be computed" in why(effects, found.lead)


def test_an_error_that_takes_records_as_independent_does_not_lead_for_want_of_units() -> None:
    plan, rows = make_trial(3, n=40, units=True, covariates=0)
    plan = replaced(plan, estimators=["difference"])
    few = rows.assign(unit=rows["group"] + ["0"] * len(rows))
    [found] = comparisons(folded(plan, few).effects())
    assert (found.lead.se_kind, found.lead.reliable) == ("jackknife", False)
    assert [row.se_kind for row in found.rows if not row.reliable] == ["jackknife", "CR0", "CR1"]
    [alone] = comparisons(folded(replaced(plan, errors=["CR1"]), few).effects())
    assert not alone.lead.reliable
