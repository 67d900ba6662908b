"""Power: other packages' numbers, laws, and what is said where there is no answer."""

from __future__ import annotations

import json
import math
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import foldaway as fa
from foldaway.inference.power import Aim, crossing, design_effect, single_look
from foldaway.planning import Baseline
from foldaway.planning.comparing import Asked, CommonDesign, Comparing

PEERS: dict[str, list[dict[str, Any]]] = json.loads((Path(__file__).parents[1] / "data/power/peers.json").read_text())


def aim(alternative: str, alpha: float) -> Aim:
    return Aim(0.0, 0.0, False, alpha / 2) if alternative == "two-sided" else Aim(0.0, None, False, alpha)


def comparing(baseline: Baseline, alternative: Any, alpha: float = 0.05, ratio: float = 1.0) -> Comparing:
    arms = {"control": 1 / (1 + ratio), "arm": ratio / (1 + ratio)}
    tail = alpha / 2 if alternative == "two-sided" else alpha
    return Comparing(CommonDesign(arms), "arm", baseline, Asked("different", tail, 1, alternative))


@pytest.mark.parametrize("of", PEERS["t_tests"], ids=str)
def test_statsmodels_t(of: dict[str, Any]) -> None:
    n, ratio = of["n"], of["ratio"]
    pooled = single_look(
        aim(of["alternative"], of["alpha"]), of["size"], math.sqrt((1 + 1 / ratio) / n), n + n * ratio - 2
    )
    assert pooled == pytest.approx(of["power"], abs=1e-9)
    ours = comparing(Baseline(level=0.0, sd=1.0), of["alternative"], of["alpha"], ratio)
    power = ours.chance(n + n * ratio, of["size"], 0.0)
    if ratio == 1:
        assert power == pytest.approx(of["power"], abs=1e-9)
    else:  # Welch's degrees of freedom allow for unequal variances, which costs small arms a little
        assert of["power"] - 0.06 < power < of["power"]


@pytest.mark.parametrize("of", PEERS["t_sizes"], ids=str)
def test_statsmodels_size(of: dict[str, Any]) -> None:
    ours = comparing(Baseline(level=0.0, sd=1.0), of["alternative"], of["alpha"])
    assert ours.records(of["size"], 0.0, of["power"]) == pytest.approx(2 * of["n"], rel=1e-7)  # its search ends there


@pytest.mark.parametrize("of", PEERS["z_tests"], ids=str)
def test_statsmodels_z(of: dict[str, Any]) -> None:
    error = math.sqrt((1 + 1 / of["ratio"]) / of["n"])
    assert single_look(aim(of["alternative"], 0.05), of["size"], error) == pytest.approx(of["power"], abs=1e-9)


@pytest.mark.parametrize("of", PEERS["shares"], ids=str)
def test_statsmodels_shares(of: dict[str, Any]) -> None:
    ours = comparing(Baseline(level=of["control"]), of["alternative"])
    effect, records = of["arm"] - of["control"], 2 * of["n"]
    error, _ = ours.error(records, effect)
    assert single_look(aim(of["alternative"], 0.05), effect, error) == pytest.approx(of["power"], abs=1e-9)
    assert ours.chance(records, effect, 0.0) == pytest.approx(of["power"], abs=0.003)  # by t, of few records


@pytest.mark.parametrize("of", PEERS["equivalent"], ids=str)
def test_statsmodels_equivalence(of: dict[str, Any]) -> None:
    within = Aim(-of["reach"], of["reach"], True, 0.05)
    error = math.sqrt(of["true"] * (1 - of["true"]) / of["n"])
    assert single_look(within, of["true"] - of["level"], error) == pytest.approx(of["power"], abs=1e-9)


@pytest.mark.parametrize(("cv", "n", "power"), [(0.25, 28, 0.807439), (0.30, 40, 0.815845)])
def test_powertost(cv: float, n: int, power: float) -> None:
    """PowerTOST's documentation: sampleN.TOST, crossovers, by Owen's Q, to six digits."""
    error = math.sqrt(math.log(1 + cv**2) * 2 / n)
    within = Aim(math.log(0.8), math.log(1.25), True, 0.05)
    assert single_look(within, math.log(0.95), error, n - 2) == pytest.approx(power, abs=6e-7)


@pytest.mark.parametrize("of", PEERS["tea_tasting"], ids=str)
def test_tea_tasting(of: dict[str, Any]) -> None:
    known = {
        "mean": Baseline(level=0.53, sd=math.sqrt(1.12)),
        "covariate": Baseline(level=0.53, sd=math.sqrt(1.12), explained=0.62**2 / (1.12 * 1.0)),
        "ratio": Baseline.ratio((0.53, math.sqrt(1.12)), (2.0, math.sqrt(1.7)), 0.8 / math.sqrt(1.12 * 1.7)),
    }[of["kind"]]
    ours = comparing(known, of["alternative"], ratio=of["ratio"])
    effect = of["relative"] * known.level
    assert ours.chance(4000, effect, 0.0) == pytest.approx(of["power"], abs=1e-9)
    assert ours.effect(4000, 0.0, 0.8) == pytest.approx(of["smallest"], abs=1e-9)
    if of["n_obs"] is not None:
        assert math.ceil(ours.records(effect, 0.0, 0.8) or 0) == of["n_obs"]


def test_published_design_effects() -> None:
    """Donner and Klar (2000): m = 20, ρ = 0.05 gives 1.95; Eldridge et al. (2006): cv = 0.65 raises it to 2.37."""
    assert design_effect(0.05, 20) == pytest.approx(1.95)
    assert design_effect(0.05, 20, 0.65) == pytest.approx(1.95 + 0.65**2 * 20 * 0.05)


# Laws

CASES: list[dict[str, Any]] = [
    {"baseline": Baseline(level=10.0, sd=30.0), "effect": 1.0},
    {"baseline": Baseline(level=0.1), "relative": 0.1, "arms": {"c": 0.6, "a": 0.3, "b": 0.1}},
    {"baseline": Baseline(level=0.1), "relative": -0.1, "alternative": "less"},
    {
        "baseline": Baseline(level=10.0, sd=3.0, correlation=0.2),
        "effect": 0.1,
        "records_per_unit": 8,
        "size_cv": 0.9,
    },
    {"baseline": Baseline(level=10.0, sd=30.0), "effect": 3.0, "margin": 1.0, "goal": "better"},
    {"baseline": Baseline(level=0.1), "effect": 0.03, "sequential": True},
    {
        "baseline": Baseline(level=10.0, sd=3.0, correlation=0.2),
        "effect": 1.0,
        "records_per_unit": 8,
        "sequential": True,
    },
]
GUARDS: list[dict[str, Any]] = [
    {"baseline": Baseline(level=10.0, sd=30.0), "margin": 1.0},
    {"baseline": Baseline(level=0.1), "margin": 0.01, "better": "lower"},
    {"baseline": Baseline(level=0.1), "margin": 0.01, "effect": 0.002, "goal": "alike"},
    {"baseline": Baseline(level=0.1), "margin": 0.01, "goal": "alike", "sequential": True},
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_size_effect_and_chance_agree(case: dict[str, Any]) -> None:
    needed = fa.power(**case)
    close = 2e-3 if case.get("sequential") else 1e-3  # records are whole
    for row in needed:
        assert row.records is not None
        assert row.effect is not None
        asked = {key: value for key, value in case.items() if key not in ("effect", "relative")}
        at = next(i for i, each in enumerate(needed) if each.arm == row.arm)
        found = fa.power(**asked, records=row.records)[at]
        assert found.effect == pytest.approx(row.effect, rel=close)
        assert fa.power(**asked, records=row.records, effect=row.effect)[at].power == pytest.approx(0.8, abs=close)


@pytest.mark.parametrize("case", GUARDS, ids=str)
def test_size_margin_and_chance_agree(case: dict[str, Any]) -> None:
    (row,) = fa.power(**case)
    assert row.records is not None
    asked = {key: value for key, value in case.items() if key != "margin"}
    asked.setdefault("goal", "not worse")
    assert fa.power(**asked, records=row.records)[0].margin == pytest.approx(case["margin"], rel=2e-3)
    assert fa.power(**case, records=row.records)[0].power == pytest.approx(0.8, abs=2e-3)


def test_units_and_days_are_records_said_otherwise() -> None:
    known = Baseline(level=10.0, sd=3.0, correlation=0.1)
    needed = fa.power(known, effect=1.0, records_per_unit=5, units_per_day=10)
    assert needed.records == 5 * (needed.units or 0)
    assert needed.days == pytest.approx((needed.units or 0) / 10, abs=0.2)
    by_units = fa.power(known, units=400, records_per_unit=5)[0]
    assert by_units == fa.power(known, records=2_000, records_per_unit=5)[0]
    by_days = fa.power(known, days=40, units_per_day=10, records_per_unit=5)[0]
    assert by_days.effect == by_units.effect


def test_what_makes_a_trial_larger() -> None:
    def records(sd: float = 3.0, **settings: Any) -> int:
        kept = {key: settings.pop(key) for key in ("correlation", "explained") if key in settings}
        return fa.power(Baseline(level=10.0, sd=sd, **kept), effect=0.5, **settings).records or 0

    plain = records()
    clustered = records(correlation=0.2, records_per_unit=10)
    assert clustered / plain == pytest.approx(design_effect(0.2, 10), rel=0.04)  # and t in place of the normal
    assert records(correlation=0.2, records_per_unit=10, size_cv=1.0) > 1.5 * clustered
    assert records(explained=0.5) == pytest.approx(plain / 2, rel=0.01)
    assert records(arms={"a": 0.9, "b": 0.1}) == pytest.approx(plain / (4 * 0.9 * 0.1), rel=0.01)
    assert records(sequential=True) > 1.3 * plain
    assert records(alternative="greater") < plain < records(confidence=0.99) < records(confidence=0.99, power=0.95)
    assert records(correction="holm", arms={"a": 1.0, "b": 1.0, "c": 1.0}) > records(
        arms={"a": 1.0, "b": 1.0, "c": 1.0}
    )


def test_looks_between_the_last_add_to_the_chance() -> None:
    """Against Monte Carlo: Brownian motion with drift that is looked at on a grid."""
    rng = np.random.default_rng(1)
    times, chances = crossing(0.04, 10_000, growth=0.1)
    from foldaway.inference.anytime import anytime_reach

    curve = anytime_reach(times, 0.95, 10_000) * np.sqrt(times)
    steps = np.diff(times, prepend=0.0)
    paths = np.cumsum(rng.standard_normal((20_000, len(times))) * np.sqrt(steps) + 0.04 * steps, axis=1)
    simulated = np.logical_or.accumulate(paths >= curve, axis=1).mean(axis=0)
    assert np.abs(simulated - chances).max() < 0.011  # three standard errors
    assert crossing(0.04, 10_000)[1][-1] > chances[-1] > float(np.mean(paths[:, -1] >= curve[-1]))


def test_an_earlier_trial_says_what_its_records_would() -> None:
    rng = np.random.default_rng(2)
    plan = fa.Plan(
        name="earlier", arm="g", arms={"a": 0.5, "b": 0.5}, outcomes=["y", "bought"], covariates=["x"], unit="u"
    )
    units, each = 1_500, 6
    u = np.repeat(np.arange(units), each)
    arm, x = rng.integers(0, 2, units), rng.normal(size=units)
    y = 5 + 2.0 * x[u] + rng.normal(size=units)[u] + rng.normal(size=units * each)
    bought = (rng.random(units * each) < 0.2).astype(float)
    trial = fa.Trial(plan, key=bytes(16))
    trial.fold({"g": np.array(["a", "b"])[arm[u]], "u": u, "x": x[u], "y": y, "bought": bought})
    known = fa.planning.baselines_of(trial.effects())
    assert known["y"].sd == pytest.approx(math.sqrt(6), rel=0.03)
    assert known["y"].explained == pytest.approx(4 / 6, rel=0.05)
    assert known["y"].design_effect == pytest.approx(design_effect(1 / 2, each), rel=0.4)  # of 128 groups: 12 %
    assert known["bought"].sd is None
    assert known["bought"].design_effect == pytest.approx(1, rel=0.4)
    told = fa.power(trial.effects(), plan=plan, relative=0.05)
    assert [row.outcome for row in told] == ["y", "bought"]


def test_outcomes_of_a_plan_bring_their_own_margins_and_sides() -> None:
    guarded = fa.Share("complaint", above=0, name="complaints", better="lower", margin=0.002)
    plan = fa.Plan(name="p", arm="g", arms={"a": 0.5, "b": 0.5}, outcomes=["y", fa.Ratio("clicks", "views"), guarded])
    known = {"y": Baseline(level=10.0, sd=3.0), "complaints": Baseline(level=0.02)}
    sized = fa.power(known, plan=plan, relative=0.05)
    assert [(row.goal, row.margin) for row in sized] == [("different", 0.0), ("not worse", 0.002)]
    # The plan tests clicks as well, so Holm's first test has half of the 5 %.
    assert sized[0].records == fa.power(known["y"], relative=0.05, confidence=0.975).records
    assert sized[1].records == fa.power(known["complaints"], margin=0.002, better="lower").records
    given = fa.power(known, plan=plan, records=50_000)
    assert given[0].power == 0.8
    assert given[1].power == fa.power(known["complaints"], margin=0.002, better="lower", records=50_000)[0].power
    assert [row.wanted for row in given] == ["effect", "power"]
    told = " ".join(str(given).split())
    assert "The trial would have 50,000 records" in told
    assert "the smallest effect that it shows" in told
    assert "chance of reaching its goal if there is no effect." in told
    assert re.search(r"y b 10\.00 \+\S+ \+\S+ % different – – complaints b 0\.02000 – – not worse \S+ \d+\.\d %", told)
    for axes, label in zip(given.plot().axes, ("smallest effect", "chance of “not worse”"), strict=True):
        assert axes.get_ylabel() == label
        curve, point = (np.transpose(np.asarray(line.get_xydata())) for line in axes.lines[:2])
        assert np.interp(point[0], *curve) == pytest.approx(point[1], rel=0.05)
    known["clicks / views"] = Baseline(level=0.2, sd=0.3)
    partly = fa.power(known, plan=plan, relative={"y": 0.05})
    assert [row.outcome for row in partly] == ["y", "complaints"]
    assert partly.notes[0] == "Left out, since no effect is given: clicks / views."


# Where there is no answer


WITHOUT_ANSWER: list[tuple[dict[str, Any], str]] = [
    ({}, "give the effect to find"),
    ({"effect": 0.0}, "an effect of zero cannot be found"),
    ({"effect": 0.1, "relative": 0.1}, "not both"),
    ({"effect": 0.95}, "would not lie between 0 and 1"),
    ({"effect": -0.01, "alternative": "greater"}, "however large the trial"),
    ({"effect": 0.01, "margin": 0.02, "goal": "better"}, "beyond the margin"),
    ({"effect": 0.01, "margin": -0.02}, "`margin` must be 0 or more"),
    ({"effect": 0.01, "goal": "nicer"}, "there is no goal 'nicer'"),
    ({"goal": "alike"}, "needs a `margin`"),
    ({"effect": 0.01, "records": 10, "units": 10}, "give one of"),
    ({"days": 10}, "needs `records_per_day`"),
    ({"effect": 0.01, "power": 1.0}, "`power` must lie"),
    ({"effect": 0.01, "correction": "sidak"}, "there is no correction"),
    ({"effect": 0.01, "arms": {"a": 1.0}}, "two arms or more"),
]


def test_a_question_without_an_answer_is_told_why() -> None:
    for asked, words in WITHOUT_ANSWER:
        with pytest.raises(fa.EstimateError, match=words):
            fa.power({"level": 0.1}, **asked)


@pytest.mark.parametrize("said", [{"level": 5.0}, {"sd": 1.0}, {"level": 0.1, "spread": 1.0}, {"level": "0.1"}])
def test_a_baseline_that_is_none_is_told_why(said: Any) -> None:
    for known in (said, {"y": said}):
        with pytest.raises(fa.EstimateError, match="baseline"):
            fa.power(known, effect=0.01)


def test_a_trial_that_is_too_small_says_so() -> None:
    row = fa.power(Baseline(level=0.9), records=20)[0]
    assert row.effect is None
    assert row.why is not None
    assert "no effect" in str(fa.power(Baseline(level=0.9), records=20))


@pytest.mark.parametrize(
    "wanted", [{"effect": 0.01}, {"records": 3_000}, {"goal": "not worse", "records": 3_000}], ids=str
)
def test_it_prints_in_80_columns_and_draws(wanted: dict[str, Any]) -> None:
    known = {"a rather long name": Baseline(level=0.1), "b": Baseline(level=0.3)}
    found = fa.power(known, **wanted, arms={"control": 0.4, "one": 0.3, "$two$": 0.3}, records_per_day=1_000)
    assert max(map(len, str(found).splitlines())) <= 80
    assert found.to_dict()["rows"] == found.to_dicts()
    assert json.loads(found.to_json())["wanted"] in ("size", "effect", "margin")
    assert found._repr_html_().count("<tr>") == 5
    drawn = found.plot()
    assert len(drawn.axes) == 4
    drawn.draw_without_rendering()
    for axes in drawn.axes:
        assert not axes.get_xticklabels(minor=True)
        boxes = [tick.get_window_extent() for tick in axes.get_xticklabels()]
        assert all(one.x1 < other.x0 for one, other in pairwise(boxes))


def test_the_correction_is_that_of_the_analysis_whatever_is_known_beforehand() -> None:
    plan = fa.Plan(
        name="p", arm="arm", arms={"a": 0.5, "b": 0.5}, outcomes=["y", "z", fa.Mean("w", better="lower", margin=1)]
    )
    known = Baseline(level=0, sd=1.0)
    [one] = alone = fa.power({"y": known}, plan=plan, effect=0.1)
    both = fa.power({"y": known, "z": known}, plan=plan, effect=0.1)
    assert one.records == both[0].records == fa.power({"y": known}, effect=0.1, confidence=0.975)[0].records
    for told in (alone, both, fa.power({"y": known, "z": known}, plan=plan, effect={"z": 0.1})):
        assert "This allows for the trial's 2 comparisons (Holm)." in " ".join(told.notes)
    several = fa.power({"y": known, "w": known}, plan=plan, effect=1.0)
    assert "The effect is not assumed for guarded outcomes: w is taken to stay as it is." in several.notes
    assert "comparisons" not in str(fa.power({"w": known}, plan=plan))  # a guardrail is tested by itself
