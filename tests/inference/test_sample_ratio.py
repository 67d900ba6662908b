"""The sample-ratio check where units have several records: it finds what is broken and does not cry wolf."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from scipy import stats

import foldaway as fa
from foldaway.inference.sample_ratio import SampleRatio
from foldaway.report.page.page import effects_page
from sizes import mostly_slow
from trials import crowded, folded, make_trial

pytestmark = pytest.mark.filterwarnings("ignore::foldaway.SampleRatioWarning")


def ratio_of(seed: int, **settings: Any) -> SampleRatio:
    return crowded(seed, **settings).effects().sample_ratio


SETTINGS: list[dict[str, Any]] = [{"bootstrap": 100}, {"bootstrap": fa.Bootstrap(30, "double-or-nothing")}, {}]


@pytest.mark.parametrize("settings", mostly_slow(SETTINGS, SETTINGS[0]))
def test_sound_trials_of_units_with_many_records_do_not_fail(settings: dict[str, Any]) -> None:
    """By record, three of four of these would."""
    found = [ratio_of(seed, each=50, estimators=["difference"], **settings) for seed in range(50)]
    assert sum(ratio.state == "fails" for ratio in found) <= 1
    by_record = [stats.chisquare(list(ratio.observed.values())).pvalue for ratio in found]
    assert sum(p < 0.001 for p in by_record) > 20
    if not settings:
        assert [ratio.state == "open" for ratio in found] == [p < 0.001 for p in by_record]


def test_the_p_value_is_uniform_over_sound_trials() -> None:
    found = [ratio_of(seed, units=100, each=5, estimators=["difference"], bootstrap=50).p_value for seed in range(120)]
    assert stats.kstest(np.array(found, float), "uniform").pvalue > 0.001


def test_a_broken_ratio_is_found_through_the_bootstrap() -> None:
    found = [ratio_of(seed, lost=0.6, each=20, estimators=["difference"], bootstrap=100) for seed in range(20)]
    assert sum(ratio.state == "fails" for ratio in found) >= 19
    assert {ratio.test for ratio in found} == {"bootstrap"}


def test_the_bootstraps_statistic_is_pearsons_over_the_design_effect() -> None:
    """Of the units' true sizes, as many as a bootstrap of many replicates can tell."""
    sizes = np.repeat([1, 4, 30], 40)
    arm = np.resize(["a", "b", "b"], len(sizes))
    unit = np.repeat(np.arange(len(sizes)), sizes)
    plan = fa.Plan(
        name="p",
        arm="g",
        arms={"a": 0.3, "b": 0.7},
        outcomes=["y"],
        unit="u",
        keep="moments",
        bootstrap=4000,
        estimators=["ipw"],
    )
    trial = fa.Trial(plan, key=bytes(16))
    trial.fold({"g": arm[unit], "u": unit, "y": np.arange(len(unit), dtype=float)})
    ratio = trial.effects().sample_ratio
    counts = [int(sizes[arm == each].sum()) for each in ("a", "b")]
    pearson = stats.chisquare(counts, np.array([0.3, 0.7]) * sum(counts)).statistic
    assert ratio.observed == dict(zip(("a", "b"), counts, strict=True))
    assert ratio.statistic == pytest.approx(pearson * sizes.sum() / (sizes**2).sum(), rel=0.1)


def open_trial() -> fa.Trial:
    return crowded(3, lost=0.6, each=20)


def test_an_open_check_neither_warns_nor_passes() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", fa.SampleRatioWarning)
        effects = open_trial().effects()
    ratio = effects.sample_ratio
    assert (ratio.state, ratio.test, ratio.statistic, ratio.p_value) == ("open", "none", None, None)
    assert ratio.ok  # there is no alarm to raise
    assert "It is unknown whether the arms got their share" in effects.notes[0]
    printed = str(effects)
    assert "! " not in printed
    assert "· It is unknown whether the arms got their share" in printed
    again = fa.Effects.from_json(effects.to_json())
    assert again.sample_ratio == ratio
    assert str(again) == printed
    for report in (effects_page(effects), open_trial().report()):
        assert "Cannot be told" in report.html
        assert "this plan does not allow counting units" in report.html
        assert 'class="alarm"' not in report.html


def test_what_would_close_an_open_check_is_said() -> None:
    assert "leave out `keep`, which gives sums by group of units, or promise" in open_trial().effects().notes[0]
    known = crowded(3, lost=0.6, each=20, complete_units=True, errors=["classical"]).effects()
    assert known.sample_ratio.state == "open"
    assert "add CR1 to the plan's errors" in known.notes[0]
    assert crowded(3, lost=0.6, each=20, complete_units=True, errors=["CR1"]).effects().sample_ratio.state == "fails"


def test_weights_are_not_taken_for_records() -> None:
    """Their sums need not have the plan's shares: those of inverse probabilities never have."""
    plan, rows = make_trial(3, n=400, units=True, weighted=True)
    rows["w"] = 1 / rows["group"].map(plan.arms)
    settings = {name: getattr(plan, name) for name in plan.__struct_fields__} | {"complete_units": False}
    ratio = folded(fa.Plan(**{**settings, "keep": "moments", "bootstrap": 50}), rows).effects().sample_ratio
    assert ratio.state == "passes"
    assert ratio.test == "pearson"


def test_effects_saved_before_there_were_several_tests_are_read() -> None:
    effects = crowded(1, each=2, complete_units=True).effects()
    old = effects.to_json().replace(',"test":"pearson"', "")
    assert "pearson" not in old
    assert fa.Effects.from_json(old).sample_ratio == effects.sample_ratio
