"""The sample-ratio check of trials: it finds what is broken, does not cry wolf, and vetoes only what it can tell."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from scipy import stats

import foldaway as fa
from foldaway.inference.sample_ratio import SampleRatio
from foldaway.report.page.page import effects_page
from trials import crowded, folded, make_trial

pytestmark = pytest.mark.filterwarnings("ignore::foldaway.SampleRatioWarning")


def ratio_of(seed: int, **settings: Any) -> SampleRatio:
    return crowded(seed, **settings).effects().sample_ratio


def test_sound_trials_of_units_with_many_records_do_not_fail() -> None:
    """By record, three of four of these would."""
    found = [ratio_of(seed, each=50, moments={"estimators": ["difference"]}) for seed in range(30)]
    assert {ratio.state for ratio in found} == {"passes"}
    by_record = [stats.chisquare(list(ratio.observed.values())).pvalue for ratio in found]
    assert sum(p < 0.001 for p in by_record) > 12


def test_records_of_units_that_do_not_fit_are_a_warning_and_no_veto() -> None:
    trial = crowded(3, lost=0.6, each=20)
    with pytest.warns(fa.SampleRatioWarning, match="or an arm changes how many records a unit has"):
        effects = trial.effects()
    ratio = effects.sample_ratio
    assert (ratio.state, ratio.test, ratio.ok) == ("look", "groups", True)
    assert "no verdict" not in {said.verdict for said in effects.verdicts()}
    assert str(effects).count("! The arms' records do not fit") == 1
    again = fa.Effects.from_json(effects.to_json())
    assert again.sample_ratio == ratio
    assert again.verdicts() == effects.verdicts()
    page = effects_page(effects).html
    assert 'class="badge look"' in page.split("</header>")[0]
    assert "Find out which it is." in page


def test_units_that_do_not_fit_veto() -> None:
    counted = crowded(3, lost=0.6, each=20, records_per_unit="together", moments={"errors": ["CR1"]}).effects()
    assert (counted.sample_ratio.counted, counted.sample_ratio.state) == ("units", "fails")
    assert {said.verdict for said in counted.verdicts()} == {"no verdict"}


def test_an_arm_that_changes_how_active_units_are_keeps_its_verdicts() -> None:
    rng = np.random.default_rng(1)
    arm = rng.random(2_000) < 0.5
    unit = np.repeat(np.arange(2_000), rng.poisson(np.where(arm, 6.0, 4.0)))
    plan = fa.Plan(name="p", arm="g", arms={"a": 0.5, "b": 0.5}, outcomes=[fa.Total("y")], unit="u")
    trial = fa.Trial(plan, key=bytes(16))
    trial.fold({"g": np.where(arm, "b", "a")[unit], "u": unit, "y": rng.normal(2, 1, len(unit))})
    [said] = trial.effects().verdicts()
    assert (said.verdict, said.words) == ("higher", "higher, one look") or said.words == "higher"


def test_with_records_of_few_groups_the_check_is_open() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", fa.SampleRatioWarning)
        effects = crowded(3, lost=0.6, each=20, expected_units=320).effects()
    ratio = effects.sample_ratio
    assert (ratio.state, ratio.test, ratio.p_value) == ("open", "none", None)
    assert ratio.ok
    report = effects_page(effects).html
    assert "Cannot be told" in report
    assert "fewer than 20 groups" in report
    assert 'class="alarm"' not in report


def test_weights_are_not_taken_for_records() -> None:
    """Their sums need not have the plan's shares: those of inverse probabilities never have."""
    plan, rows = make_trial(3, n=400, units=True, weighted=True)
    rows["w"] = 1 / rows["group"].map(plan.arms)
    settings = {name: getattr(plan, name) for name in plan.__struct_fields__} | {"records_per_unit": "many"}
    ratio = folded(fa.Plan(**{**settings, "moments": {"bootstrap": 50}}), rows).effects().sample_ratio
    assert (ratio.state, ratio.counted) == ("passes", "records")
