"""Planned looks at a trial: what each spends, finds and leaves behind."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import foldaway as fa
from foldaway.effects.looks import design_of
from foldaway.errors import EstimateError, StateError, TooEarly
from foldaway.inference.looks.boundaries import crossing
from foldaway.inference.looks.planned import bounds_at, spent
from plans import LOOKED
from sizes import simulated

LOOKS: dict[str, Any] = {"information": {"units": 1_000}, "at": [0.5, 0.75, 1.0]}
FUTILE = "obrien-fleming"


def plan_of(arms: int = 2, **settings: Any) -> fa.Plan:
    names = "abcd"[:arms]
    base = {**LOOKED, "name": "looked", "arms": dict.fromkeys(names, 1 / arms), "looks": LOOKS}
    return fa.Plan(**{**base, **settings})


def records(plan: fa.Plan, n: int, seed: int, *effects: float) -> dict[str, Any]:
    """Records of arms in turn, whose mean differs from the control's by these effects."""
    rng, names = np.random.default_rng(seed), list(plan.arms)
    arm = np.arange(n) % len(names)
    return {"group": np.array(names)[arm], "y": rng.normal(size=n) + np.array([0.0, *effects])[arm]}


def trial_of(plan: fa.Plan, n: int, *effects: float, seed: int = 1) -> fa.Trial:
    trial = fa.Trial(plan)
    trial.fold(records(plan, n, seed, *effects))
    return trial


def test_the_boundary_is_that_of_the_information_that_is_there() -> None:
    trial = trial_of(plan_of(), 620, 0.0)
    look = trial.look()
    assert (look.fraction, look.arms[0].found, look.last) == (0.62, "go on", False)
    design = design_of(trial.plan)
    assert look.arms[0].upper == bounds_at(design, [0.62], last=False).upper[0]
    assert look.spent == pytest.approx(2 * spent("obrien-fleming", 0.025, 0.62))
    trial.fold(records(trial.plan, 180, 2, 0.0))
    second = trial.look()
    assert second.fraction == 0.8
    assert second.arms[0].upper == bounds_at(design, [0.62, 0.8], last=False).upper[1]
    assert second.spent > look.spent


def test_a_second_look_at_the_same_information_spends_nothing_more() -> None:
    trial = trial_of(plan_of(), 620, 0.0)
    look = trial.look()
    assert trial.look() is look
    trial.fold(records(trial.plan, 100, 3, 0.0))  # 72 %: the next look is due at 75 %
    assert trial.look() is look
    assert trial.looks == (look,)


def test_a_look_comes_too_early() -> None:
    with pytest.raises(TooEarly, match=r"first look is due at 50 % of the planned information; there is 40 %"):
        trial_of(plan_of(), 400, 1.0).look()
    with pytest.raises(TooEarly, match="no effect yet"):
        fa.Trial(plan_of()).look()
    with pytest.raises(EstimateError, match="has no `looks`"):
        fa.Trial(plan_of(looks=None)).look()


def test_what_was_spent_is_remembered_with_the_trial(tmp_path: Any) -> None:
    trial = trial_of(plan_of(), 620, 0.0)
    trial.look()
    assert fa.Trial.loads(trial.dumps()).looks == trial.looks
    trial.save(tmp_path / "state")
    loaded = fa.Trial.load(tmp_path / "state")
    assert loaded.looks == trial.looks
    assert loaded.look() == trial.looks[0]
    assert loaded.effects().looks == trial.looks


def test_a_shard_joins_the_trial_that_was_looked_at() -> None:
    plan = plan_of()
    whole, shard = trial_of(plan, 620, 0.0), trial_of(plan, 300, 0.0, seed=2)
    look = whole.look()
    assert (whole + shard).looks == (shard + whole).looks == (look,)
    other = trial_of(plan, 700, 0.0, seed=3)
    other.look()
    with pytest.raises(StateError, match="planned looks of their own"):
        whole.merge(other)


@pytest.mark.parametrize(
    ("effect", "better", "found", "choice"),
    [
        (0.5, "higher", "stop for benefit", "ship"),
        (-0.5, "higher", "stop for harm", "do not ship"),
        (-0.5, "lower", "stop for benefit", "ship"),
        (0.5, "lower", "stop for harm", "do not ship"),
    ],
)
def test_a_boundary_that_is_crossed_stops_the_trial(effect: float, better: str, found: str, choice: str) -> None:
    trial = trial_of(plan_of(outcomes=[fa.Mean("y", better=better)]), 520, effect)  # type: ignore[arg-type]
    look = trial.look()
    assert look.arms[0].found == found
    assert look.over
    effects = trial.effects()
    assert [each.verdict for each in effects.verdicts()] == [found]
    assert [each.choice for each in effects.decisions()] == [choice]
    (arm,), row = look.arms, effects[0]
    assert arm.estimate == pytest.approx(row.estimate)  # at a first look, stage-wise ordering is the plain one
    assert (arm.ci_lower, arm.ci_upper) == pytest.approx((row.ci_lower, row.ci_upper), rel=1e-6)
    assert arm.p_value == pytest.approx(row.p_value, rel=1e-6)
    assert trial.look() is look  # nothing is left to be shown


def test_futility_stops_and_does_not_bind() -> None:
    plan = plan_of(looks={**LOOKS, "futility": FUTILE})
    trial = trial_of(plan, 520, -0.1)
    assert trial.look().arms[0].found == "stop for futility"
    assert trial.effects().decisions()[0].choice == "do not ship"
    trial.fold(records(plan, 480, 5, 1.0))
    assert trial.look().arms[0].found == "stop for benefit"
    without = bounds_at(design_of(plan_of()), [0.52, 1.0], last=True).upper
    assert trial.looks[-1].arms[0].upper == without[1]


def test_the_last_look_spends_all_and_says_what_was_not_shown() -> None:
    trial = trial_of(plan_of(), 1_060, 0.0)
    look = trial.look()
    assert (look.last, look.arms[0].found) == (True, "not shown")
    assert look.spent == pytest.approx(0.05)
    assert look.arms[0].upper == pytest.approx(1.959964, abs=1e-5)
    assert look.arms[0].ci_lower is not None
    assert trial.effects().decisions()[0].choice == "undecided"
    assert "The next look" not in str(trial.effects())


def test_a_trial_that_ends_early_spends_what_is_left() -> None:
    trial = trial_of(plan_of(), 620, 0.0)
    trial.look()
    trial.fold(records(trial.plan, 40, 4, 0.0))
    look = trial.look(last=True)
    assert (look.fraction, look.last) == (0.66, True)
    assert look.spent == pytest.approx(0.05)
    assert look.arms[0].upper == bounds_at(design_of(trial.plan), [0.62, 0.66], last=True).upper[1]


def test_several_arms_share_the_error_rate_by_holms_steps() -> None:
    plan = plan_of(arms=3)
    trial = trial_of(plan, 600, 0.8, 0.0, seed=2)
    strong, weak = trial.look().arms
    design = design_of(plan)
    assert strong.found == "stop for benefit"
    assert strong.upper == bounds_at(design, [0.6], last=False, tests=2).upper[0]
    assert weak.found == "go on"
    assert weak.upper == bounds_at(design, [0.6], last=False, tests=1).upper[0]
    trial.fold(records(plan, 450, 9, 0.8, 0.0))
    again, weak = trial.look().arms
    assert again == strong
    assert weak.upper == bounds_at(design, [0.6, 1.05], last=True, tests=1).upper[1]
    alone = trial_of(plan_of(arms=3, correction="none"), 600, 0.0, 0.0).look()
    assert [each.upper for each in alone.arms] == [weak_first(design)] * 2


def weak_first(design: Any) -> float:
    return bounds_at(design, [0.6], last=False, tests=1).upper[0]


def test_one_sided_looks_show_a_benefit_alone() -> None:
    plan = plan_of(outcomes=[fa.Mean("y", better="higher", question="better")])
    assert trial_of(plan, 520, -0.6).look().arms[0].found == "go on"
    (harmed,) = trial_of(plan, 520, -6.0).look().arms  # its p-value is 1, as far as a number can say
    assert (harmed.found, harmed.lower) == ("go on", None)
    assert harmed.z is not None
    assert -9 < harmed.z < -8
    (arm,) = trial_of(plan, 520, 0.6).look().arms
    assert (arm.found, arm.ci_upper) == ("stop for benefit", None)
    assert arm.upper == pytest.approx(bounds_at(design_of(plan), [0.52], last=False).upper[0])


def test_information_by_the_error_of_units_with_several_records() -> None:
    rng = np.random.default_rng(8)
    units = np.repeat(np.arange(2_000), 3)
    arms = np.array(["a", "b"])[np.arange(2_000) % 2][units]
    plan = plan_of(unit="user", looks={"information": {"error": 0.05}, "at": [0.5, 1.0]})
    trial = fa.Trial(plan)
    noise = rng.normal(size=2_000)[units] + rng.normal(size=6_000)
    trial.fold({"group": arms, "y": noise, "user": [f"u{i}" for i in units]})
    look = trial.look()
    error = trial.effects().filter(se_kind="jackknife")[0].std_error
    assert error is not None
    assert look.fraction == pytest.approx((0.05 / error) ** 2)


def test_information_that_falls_takes_no_look_and_gives_nothing_back() -> None:
    plan = plan_of(looks={"information": {"error": 0.08}, "at": [0.5, 1.0]})
    trial = trial_of(plan, 400, 0.0)
    look = trial.look()
    assert 0.5 < look.fraction < 0.9
    trial.fold({"group": ["a", "b"] * 20, "y": np.random.default_rng(2).normal(scale=30, size=40)})
    assert trial.look() is trial.look(last=True) is look
    assert trial.looks == (look,)


def test_a_trial_that_ends_before_its_first_look_has_a_single_one() -> None:
    look = trial_of(plan_of(looks={**LOOKS, "futility": FUTILE}), 300, 0.0).look(last=True)
    assert (look.fraction, look.last, look.arms[0].found) == (0.3, True, "not shown")
    assert look.spent == pytest.approx(0.05)
    assert look.arms[0].upper == pytest.approx(1.959964, abs=1e-5)


def test_whoever_ends_a_trial_as_soon_as_that_would_show_an_effect_is_wrong_too_often() -> None:
    """In 9 % of trials, as docs/looks.md says."""
    design, at = design_of(plan_of()), LOOKS["at"]
    courses = [[0.5, 0.501], [0.5, 0.75, 0.751], at]
    upper = [bounds_at(design, course, last=True).upper[-1] for course in courses]
    ends = crossing(at, [-each for each in upper], upper)
    assert sum(ends.above) + sum(ends.below) == pytest.approx(0.09, abs=0.005)


def test_an_arm_that_is_futile_is_tested_again_and_leaves_nothing_to_others() -> None:
    plan = plan_of(arms=3, looks={**LOOKS, "futility": FUTILE})
    trial = trial_of(plan, 600, 0.2, -0.1, seed=2)
    assert [each.found for each in trial.look().arms] == ["go on", "stop for futility"]
    trial.fold(records(plan, 450, 9, -0.1, 1.5))
    open_, back = trial.look().arms
    design = design_of(plan)
    assert (open_.found, back.found) == ("not shown", "stop for benefit")
    assert back.upper == bounds_at(design, [0.6, 1.05], last=True, tests=2).upper[1]
    assert open_.upper == bounds_at(design, [0.6, 1.05], last=True, tests=1).upper[1]


def test_before_a_look_there_is_no_verdict_and_nothing_for_any_number_of_looks() -> None:
    effects = trial_of(plan_of(), 620, 5.0).effects()
    said = effects.verdicts()[0]
    assert (said.verdict, said.anytime) == ("no verdict", "no verdict")
    assert "No planned look has been taken yet" in str(effects)
    assert effects[0].anytime_ci_lower is None
    assert "planned looks" in (effects[0].anytime_why or "")


def test_the_other_outcomes_inform() -> None:
    plan = plan_of(outcomes=[fa.Mean("y", better="higher"), fa.Mean("z")])
    trial = fa.Trial(plan)
    trial.fold(records(plan, 520, 1, 0.9) | {"z": np.random.default_rng(2).normal(size=520)})
    trial.look()
    assert [each.verdict for each in trial.effects().verdicts()] == ["stop for benefit", "no verdict"]


def test_others_are_told_how_far_a_trial_is_at_the_least() -> None:
    plan = plan_of()
    assert [trial_of(plan, n, 0.0).look().told().fraction for n in (520, 600, 994)] == [0.5, 0.6, 0.95]


def test_at_the_end_nothing_goes_on() -> None:
    trial = trial_of(plan_of(), 620, 0.0)
    trial.look()
    (comparison,) = replace(trial.effects(), final=True).verdicts()
    assert comparison.verdict == "not shown"


def test_what_is_shown_of_an_outcome_without_a_better_side_is_no_decision() -> None:
    trial = trial_of(plan_of(outcomes=["y"]), 990, -0.9)
    trial.look()
    assert "shown to be lower, with 99 % of the planned information; the plan does not say which way is better" in (
        " ".join(trial.effects().to_string().split())
    )


def test_others_are_told_words_and_no_statistic() -> None:
    trial = trial_of(plan_of(), 620, 0.5)
    trial.look()
    told = trial.told()
    (look,) = told.looks
    assert (look.fraction, look.arms[0].found, look.arms[0].z, look.arms[0].estimate) == (
        0.6,
        "stop for benefit",
        None,
        None,
    )
    trial.conclude()
    assert trial.chronicle.final_effects(trial.tallies, trial.dropped) is not None


def test_effects_with_looks_come_back_from_json() -> None:
    trial = trial_of(plan_of(arms=3), 620, 0.5, 0.0)
    trial.look()
    effects = trial.effects()
    again = fa.Effects.from_json(effects.to_json())
    assert again.looks == effects.looks
    assert str(again) == str(effects)


def test_print_and_report_show_the_looks() -> None:
    trial = trial_of(plan_of(), 620, 0.5)
    trial.look()
    text, page = str(trial.effects()), trial.report().html
    for shown in (" ".join(text.split()), page):
        assert "Look 1, with 62 % of the planned information: stop for benefit" in shown
        assert "effect by stage-wise ordering" in shown
    assert "Planned look 1 has found: stop for benefit." in page


def test_a_look_is_refused_where_effects_cannot_be_trusted() -> None:
    trial = fa.Trial(plan_of())
    trial.fold({"group": ["a"] * 500 + ["b"] * 300, "y": np.random.default_rng(1).normal(size=800)})
    with pytest.raises(EstimateError, match="could not be trusted"):
        trial.look()
    assert trial.looks == ()


@simulated(120, 400)
def test_false_alarms_of_trials_that_are_looked_at(trials: int) -> None:
    plan, wrong = plan_of(looks={"information": {"units": 200}, "at": [0.4, 0.7, 1.0], "spending": "pocock"}), 0
    for seed in range(trials):
        trial = fa.Trial(plan)
        for part, n in enumerate((80, 60, 60)):
            trial.fold(records(plan, n, 10 * seed + part, 0.0))
            if trial.look().over:
                break
        wrong += trial.looks[-1].arms[0].found in ("stop for benefit", "stop for harm")
    assert wrong / trials < 0.05 + 3.5 * (0.05 * 0.95 / trials) ** 0.5
    assert wrong / trials > 0.05 - 3.5 * (0.05 * 0.95 / trials) ** 0.5


def test_events_of_all_arms_are_information() -> None:
    outcome = fa.Survival("days", "relapsed", until=100, bins=50, better="higher")
    looks = {"information": {"events": 300}, "at": [0.5, 1.0]}
    plan = fa.Plan(name="events", arm="g", arms=dict.fromkeys("abc", 1 / 3), outcomes=[outcome], looks=looks)
    trial, days = fa.Trial(plan), np.random.default_rng(4).exponential(80, 300)
    trial.fold({"g": ["a", "b", "c"] * 100, "days": days, "relapsed": [True] * 300})
    assert trial.look().fraction == np.sum(days <= 100) / 300


def test_information_may_be_events_of_a_survival_outcome() -> None:
    outcome = fa.Survival("days", "relapsed", until=100, bins=50, better="higher")
    looks = {"information": {"events": 300}, "at": [0.5, 1.0]}
    plan = fa.Plan(name="events", arm="g", arms={"a": 0.5, "b": 0.5}, outcomes=[outcome], looks=looks)
    rng, trial, events = np.random.default_rng(4), fa.Trial(plan), 0
    for part in range(3):
        arm = rng.choice(["a", "b"], 300)
        days, until = rng.exponential(np.where(arm == "b", 160, 80)), rng.uniform(20, 200, 300)
        relapsed = days <= until
        trial.fold({"g": arm, "days": np.minimum(days, until), "relapsed": relapsed})
        events += int(np.sum(relapsed & (days <= 100)))
        if events < 150:
            with pytest.raises(TooEarly, match="first look is due at 50 %"):
                trial.look()
        elif not part or not trial.looks or not trial.looks[-1].over:
            assert trial.look().fraction == events / 300
            before = events
    (curves,) = trial.effects().curves
    assert sum(each.events or 0 for each in curves.curves) == events >= before
    assert trial.looks[-1].arms[0].found == "stop for benefit"
    with pytest.raises(fa.PlanError, match="counts the events of a survival outcome"):
        fa.Plan(name="events", arm="g", arms={"a": 0.5, "b": 0.5}, outcomes=["y"], looks=looks)
    with pytest.raises(fa.PlanError, match="must have one of"):
        fa.Looks(information={"events": 3, "units": 4}, at=[1.0])
