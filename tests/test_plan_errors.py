"""The plan's `errors`: what is reported is what was asked for, and what nobody asked for is not kept."""

from __future__ import annotations

from typing import Any

import pytest

import foldaway as fa
from foldaway.tallies.moments.kinds import RECORDS, UNITS, kinds_of
from plans import replaced
from trials import folded, make_trial

pytestmark = pytest.mark.filterwarnings("ignore::foldaway.SampleRatioWarning")


def asking(errors: list[str], covariates: int = 2, **settings: Any) -> tuple[fa.Plan, Any]:
    plan, rows = make_trial(
        3, n=300, arms=2, outcomes=1, covariates=covariates, levels=0, weighted=False, units=True, shift=0.0
    )
    return replaced(plan, errors=errors, **settings), rows


@pytest.mark.parametrize("errors", [["classical"], ["HC1"], ["CR1", "classical"], ["HC0", "HC1", "HC2", "CR0"]])
def test_the_kinds_asked_for_are_those_of_a_plan_that_asks_for_all(errors: list[str]) -> None:
    plan, rows = asking(errors)
    some = folded(plan, rows).effects()
    everything = folded(replaced(plan, errors=[]), rows).effects()
    asked = {*errors, "jackknife"}  # units may have several records: sums by group are kept, and lead
    assert {row.se_kind for row in some} == asked
    expected = [row for row in everything if row.se_kind in asked]
    assert [(r.estimator, r.se_kind) for r in some] == [(r.estimator, r.se_kind) for r in expected]
    for ours, theirs in zip(some, expected, strict=True):
        assert ours.estimate == pytest.approx(theirs.estimate, rel=1e-12)
        assert ours.std_error == pytest.approx(theirs.std_error, rel=1e-12)


@pytest.mark.parametrize(
    ("errors", "kept"),
    [([], {RECORDS, UNITS}), (["classical"], set()), (["HC1"], {RECORDS}), (["CR0", "classical"], {UNITS})],
)
def test_only_what_the_errors_need_is_kept(errors: list[str], kept: set[str]) -> None:
    plan, _ = asking(errors)
    assert set(kinds_of(plan)) == kept


def test_classical_errors_keep_no_fourth_moments() -> None:
    plan, rows = asking(["classical"], covariates=6)
    wide = replaced(plan, errors=[])
    state = folded(plan, rows)
    state.fix()
    assert len(state.dumps()) < len(folded(wide, rows).dumps()) / 2
    assert fa.Trial.loads(state.dumps()).effects().to_dicts() == state.effects().to_dicts()


def test_the_sample_ratio_is_of_records_where_units_are_not_counted() -> None:
    plan, rows = asking(["classical"])
    assert folded(plan, rows).effects().sample_ratio.counted == "records"
    assert folded(replaced(plan, errors=["CR1"]), rows).effects().sample_ratio.counted == "units"


def test_errors_for_the_population_need_no_tally_of_their_own() -> None:
    plan, rows = asking(["classical"], estimators=["interacted"])
    robust = replaced(plan, errors=["classical", "HC1"])
    classical = [folded(each, rows).effects().filter(se_kind="classical") for each in (plan, robust)]
    assert "interacted" in {row.estimator for row in classical[0]}
    for row, expected in zip(*classical, strict=True):
        assert row.std_error == pytest.approx(expected.std_error, rel=1e-9)
