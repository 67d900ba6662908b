"""Claims, corrections and verdicts: against statsmodels on kept rows, and what each verdict means."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import pytest
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.weightstats import CompareMeans, DescrStatsW, ttost_ind

import foldaway as fa
from foldaway.effects import Verdict
from foldaway.effects.headline import comparisons
from sizes import mostly_slow
from trials import known

ARMS = {"a": 0.4, "b": 0.3, "c": 0.3}


def data(n: int = 1200, seed: int = 3, shift: float = 0.3) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    arm = rng.choice(3, n, p=list(ARMS.values()))
    columns = {f"y{i}": rng.normal(5 + i, 1 + arm, n) + shift * (arm == 1) / (1 + i) for i in range(4)}
    return {"g": np.array(list(ARMS))[arm], **columns}


def effects_of(outcomes: list[Any], rows: dict[str, Any] | None = None, **settings: Any) -> fa.Effects:
    """Folded in random batches into two trials, which are merged."""
    rows = data() if rows is None else rows
    arms = settings.pop("arms", ARMS)
    trials = [fa.Trial(fa.Plan(name="t", arm="g", arms=arms, outcomes=outcomes, **settings)) for _ in range(2)]
    cuts = [0, *sorted(np.random.default_rng(8).integers(0, len(rows["g"]), 4).tolist()), len(rows["g"])]
    for i, (start, stop) in enumerate(pairwise(cuts)):
        trials[i % 2].fold({name: values[start:stop] for name, values in rows.items()})
    return (trials[0] + trials[1]).effects()


def parts(rows: dict[str, Any], column: str, arm: str) -> tuple[Any, Any]:
    return rows[column][rows["g"] == arm], rows[column][rows["g"] == "a"]


# Outside truths.


@pytest.mark.parametrize(("alternative", "theirs"), [("greater", "larger"), ("less", "smaller"), ("two-sided",) * 2])
def test_one_sided_tests_and_intervals_are_those_of_statsmodels(alternative: str, theirs: str) -> None:
    rows = data()
    better: Any = {"greater": "higher", "less": "lower"}.get(alternative)
    asked = [fa.Mean(name, better=better, question=better and "better") for name in ("y0", "y1")]
    for row in effects_of(asked, rows):
        compared = CompareMeans(*map(DescrStatsW, parts(rows, row.outcome, row.arm)))
        t, p, df = compared.ttest_ind(alternative=theirs, usevar="unequal")
        ends = compared.tconfint_diff(alternative=theirs, usevar="unequal")
        assert (row.statistic, row.p_value, row.df) == pytest.approx((t, p, df), rel=1e-9)
        assert (row.ci_lower, row.ci_upper) == pytest.approx(ends, rel=1e-9)
        assert (row.alternative, row.threshold) == (alternative, 0.0)


def test_margins_are_tested_as_by_statsmodels() -> None:
    rows = data()
    asked = [
        fa.Mean("y0", better="lower", margin=0.35),
        fa.Mean("y1", better="higher", margin=0.2),
        fa.Mean("y2", better="higher", question="better", margin=0.1),
        fa.Mean("y3", question="alike", margin=0.25),
    ]
    expected = {"y0": ("smaller", 0.35), "y1": ("larger", -0.2), "y2": ("larger", 0.1)}
    for row in effects_of(asked, rows):
        ours, theirs = parts(rows, row.outcome, row.arm)
        compared = CompareMeans(DescrStatsW(ours), DescrStatsW(theirs))
        if row.outcome == "y3":
            p, *_ = ttost_ind(ours, theirs, -0.25, 0.25, usevar="unequal")
            assert (row.ci_lower, row.ci_upper) == pytest.approx(
                compared.tconfint_diff(alpha=0.1, usevar="unequal"), rel=1e-9
            )
        else:
            side, threshold = expected[row.outcome]
            _, p, _ = compared.ttest_ind(alternative=side, usevar="unequal", value=threshold)
            assert row.threshold == threshold
        assert row.p_value == pytest.approx(p, rel=1e-9)
        if row.outcome in ("y0", "y1"):
            harm = "larger" if row.outcome == "y0" else "smaller"
            assert row.p_against == pytest.approx(compared.ttest_ind(alternative=harm, usevar="unequal")[1], rel=1e-9)
        # The interval and its p-value are two forms of one statement.
        low, high = known(row.ci_lower), known(row.ci_upper)
        within = {"greater": low > row.threshold, "less": high < row.threshold}
        shown = within.get(row.alternative, -row.threshold < low and high < row.threshold)
        assert shown == (known(row.p_value) < 0.05)


@pytest.mark.parametrize("keep", ["sums", "moments"])
def test_a_margin_in_percent_is_tested_against_the_scaled_control(keep: str) -> None:
    rows = data()
    settings = {"moments": fa.Moments(estimators=["difference"], errors=["welch"])} if keep == "moments" else {}
    asked = [
        fa.Mean("y0", better="lower", margin="8%"),
        fa.Mean("y1", better="higher", question="better", margin="2.5%"),
        fa.Mean("y2", better="higher", margin="8%"),
    ]
    for row in effects_of(asked, rows, **settings):
        ours, theirs = parts(rows, row.outcome, row.arm)
        side, share = {"y0": ("smaller", 0.08), "y1": ("larger", 0.025), "y2": ("larger", -0.08)}[row.outcome]
        assert row.threshold == pytest.approx(share * theirs.mean())
        scaled = CompareMeans(DescrStatsW(ours), DescrStatsW((1 + share) * theirs))
        t, p, _ = scaled.ttest_ind(alternative=side, usevar="unequal")
        if row.outcome == "y2":  # the scaled control varies less, and foldaway does not use that
            assert 0 < known(row.statistic) < t
            assert row.p_value > p
        else:
            assert row.statistic == pytest.approx(t, rel=1e-9)
            assert row.p_value == pytest.approx(p, rel=0.02)  # the degrees of freedom are those of the difference


def test_a_margin_in_percent_is_wrong_as_often_as_promised() -> None:
    # Each is worse by exactly its margin: "not worse" is wrong, in 5 % of trials at most.
    rng, wrong, trials = np.random.default_rng(5), {"up": 0, "down": 0}, 400
    for _ in range(trials):
        arm = rng.integers(0, 2, 400)
        rows = {"g": np.array(["a", "b"])[arm]}
        rows |= {name: rng.normal(10 * (1 + s * 0.3 * arm), 4) for name, s in (("up", 1), ("down", -1))}
        asked = [fa.Mean("up", better="lower", margin="30%"), fa.Mean("down", better="higher", margin="30%")]
        for row in effects_of(asked, rows, arms={"a": 0.5, "b": 0.5}):
            wrong[row.outcome] += known(row.p_value) < 0.05
    assert max(wrong.values()) <= 0.05 * trials + 2 * math.sqrt(0.05 * 0.95 * trials)


@pytest.mark.parametrize("margin", ["0%", "101%", "half", "5", "-1%", "1 % ", 0])
def test_a_margin_that_is_no_share_is_refused(margin: Any) -> None:
    with pytest.raises(fa.PlanError, match="margin"):
        fa.Mean("y", better="lower", margin=margin)


@pytest.mark.parametrize(("ours", "theirs"), [("holm", "holm"), ("benjamini-hochberg", "fdr_bh"), ("none", None)])
@pytest.mark.parametrize("keep", mostly_slow(["sums", "moments"], "sums"))
def test_the_correction_is_over_outcomes_and_arms_and_leaves_guardrails_apart(
    ours: str, theirs: str | None, keep: str
) -> None:
    asked = ["y0", fa.Mean("y1", better="higher", margin=0.2), "y2", fa.Mean("y3", question="alike", margin=0.5)]
    effects = effects_of(asked, correction=ours, moments={} if keep == "moments" else None)
    guarded = [row for row in effects if row.outcome == "y1"]
    assert {row.p_adjusted for row in guarded} == {row.anytime_p_adjusted for row in guarded} == {None}
    for kind in {row.se_kind for row in effects}:
        family = [
            row for row in effects if row.outcome != "y1" and (row.estimator, row.se_kind) == ("difference", kind)
        ]
        for field in ("p_value", "anytime_p_value"):
            found = [getattr(row, field.replace("p_value", "p_adjusted")) for row in family]
            if theirs is None:
                assert found == [None] * 6
            elif family:
                p = [getattr(row, field) for row in family]
                assert found == pytest.approx(multipletests(p, method=theirs)[1].tolist(), rel=1e-12)


def test_a_comparison_that_cannot_be_told_yet_counts_as_one() -> None:
    rows = data(300)
    rows["rare"] = (np.arange(300) % 150 == 0).astype(float)  # too rare for an any-time interval
    effects = effects_of(["y0", "rare"], rows, arms={"a": 0.4, "b": 0.3, "c": 0.3})
    first = effects.filter(outcome="y0")[0]
    assert [row.anytime_p_value for row in effects.filter(outcome="rare")] == [None, None]
    assert first.anytime_p_adjusted == pytest.approx(min(4 * known(first.anytime_p_value), 1.0))


def test_a_single_comparison_needs_no_correction() -> None:
    rows = {"g": ["a", "b"] * 50, "y": [float(i % 7) for i in range(100)]}
    [row] = effects_of(["y", fa.Mean("y", name="guard", better="lower", margin=3)], rows, arms={"a": 0.5, "b": 0.5})[:1]
    assert (row.p_adjusted, row.anytime_p_adjusted) == (None, None)


# What a verdict means.


def judged(outcome: Any, low: float, high: float, **settings: Any) -> Verdict:
    """The verdict on an effect whose two-sided 90 % interval, and so every one-sided 95 % one, is this."""
    from scipy import stats

    effect, error = (low + high) / 2, (high - low) / 2 / stats.norm.ppf(0.95)
    n = 4000
    half = np.repeat([-1.0, 1.0], n // 4)
    scale = error * math.sqrt(n) / 2
    y = np.concatenate([half, half]) * scale + np.repeat([10.0, 10.0 + effect], n // 2)
    arms = {"a": 0.5, "b": 0.5}
    [found] = effects_of([outcome], {"g": np.repeat(["a", "b"], n // 2), "y": y}, arms=arms, **settings).verdicts()
    return found


HIGHER, LOWER = fa.Mean("y", better="higher"), fa.Mean("y", better="lower")
GUARD = fa.Mean("y", better="lower", margin=1)
ALIKE = fa.Mean("y", question="alike", margin=1)
BY_ONE = fa.Mean("y", better="higher", question="better", margin=1)


@pytest.mark.parametrize(
    ("outcome", "low", "high", "word"),
    [
        ("y", 0.5, 1.0, "higher"),
        ("y", -1.0, -0.5, "lower"),
        ("y", -0.1, 1.0, "not decided yet"),
        (HIGHER, 0.5, 1.0, "better"),
        (HIGHER, -1.0, -0.5, "worse"),
        (LOWER, 0.5, 1.0, "worse"),
        (LOWER, -1.0, -0.5, "better"),
        (GUARD, -0.5, 0.9, "not worse"),
        (GUARD, -0.5, 1.1, "not decided yet"),
        (GUARD, 0.1, 1.1, "worse"),
        (GUARD, 0.1, 0.9, "worse within margin"),
        (GUARD, 1.1, 2.0, "worse"),
        (GUARD, -3.0, -2.0, "not worse"),
        (ALIKE, -0.9, 0.9, "alike"),
        (ALIKE, 0.1, 0.9, "alike"),
        (ALIKE, -0.5, 1.1, "not decided yet"),
        (ALIKE, 1.3, 2.0, "higher"),
        (ALIKE, -2.0, -1.3, "lower"),
        (BY_ONE, 1.1, 2.0, "better"),
        (BY_ONE, 0.5, 2.0, "not decided yet"),
        (BY_ONE, -3.0, -2.0, "not decided yet"),
        (fa.Mean("y", better="lower", question="better"), -1.0, -0.01, "better"),
    ],
)
def test_a_verdict_says_where_the_interval_lies(outcome: Any, low: float, high: float, word: str) -> None:
    assert judged(outcome, low, high).verdict == word


def test_a_one_sided_question_finds_one_side() -> None:
    assert judged(fa.Mean("y", better="higher", question="better"), 0.01, 1.0).verdict == "better"
    assert judged(fa.Mean("y", better="lower", question="better"), 0.01, 1.0).verdict == "not decided yet"
    assert judged("y", 0.01, 1.0).verdict == "not decided yet"  # the two-sided interval is wider


def test_what_holds_for_one_look_and_what_holds_at_any_time() -> None:
    once, ever = judged(HIGHER, 0.1, 1.0), judged(HIGHER, 1.0, 1.5)
    assert (once.verdict, once.anytime, once.holds) == ("better", "not decided yet", False)
    assert (ever.verdict, ever.anytime, ever.holds, ever.more_records) == ("better", "better", True, None)
    assert once.more_records is not None


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (0.5, 0.9, ("worse within margin", "worse", "worse")),  # the harm is certain at any time, its limit once
        (0.02, 0.3, ("worse within margin", "not worse", "worse within margin, one look")),
        (0.02, 0.98, ("worse within margin", "not decided yet", "worse within margin, one look")),
        (0.4, 0.6, ("worse within margin",) * 3),
        (-0.2, 0.3, ("not worse",) * 3),
        (0.02, 1.5, ("worse", "not decided yet", "worse, one look")),
    ],
)
def test_a_harm_is_never_hidden_behind_not_worse(low: float, high: float, said: tuple[str, ...]) -> None:
    found = judged(GUARD, low, high)
    assert (found.verdict, found.anytime, found.words) == said
    assert found.holds == ("one look" not in found.words)
    assert found.shown == found.words.removesuffix(", one look")


@pytest.mark.parametrize("low", np.linspace(-1.4, 1.4, 15))
@pytest.mark.parametrize("outcome", [HIGHER, GUARD, ALIKE, BY_ONE], ids=["plain", "guard", "alike", "by one"])
def test_what_is_shown_at_any_time_is_part_of_what_is_said(outcome: Any, low: float) -> None:
    for reach in (0.1, 0.4, 1.2):
        found = judged(outcome, low, low + reach)
        if found.anytime != "not decided yet":
            assert found.decided
            softened = (found.anytime, found.verdict) == ("not worse", "worse within margin")
            assert softened or found.anytime in found.words


@pytest.mark.parametrize("outcome", [HIGHER, GUARD, ALIKE])
def test_it_tells_how_much_longer_and_that_is_about_right(outcome: Any) -> None:
    """With as many records more and the effect as it is, a verdict holds at any time, and with half as many not yet."""
    low, high = (-0.05, 1.2) if outcome is HIGHER else (-0.6, 1.1)
    now = judged(outcome, low, high)
    assert now.verdict == "not decided yet"
    more = known(now.more_records)
    middle, reach = (low + high) / 2, (high - low) / 2
    for records, there in ((1.2 * more, True), (0.5 * more, False)):
        shrunk = reach / math.sqrt(1 + records / 4000)
        assert (judged(outcome, middle - shrunk, middle + shrunk).anytime != "not decided yet") is there


def test_a_trial_that_has_ended_waits_for_no_more_records() -> None:
    rows = {"g": ["a", "b"] * 300, "y": [i % 7 + 0.3 * (i % 2) for i in range(600)]}
    found = effects_of(["y"], rows, arms={"a": 0.5, "b": 0.5})
    open_, closed = (" ".join(replace(found, final=final).to_string().split()) for final in (False, True))
    assert "not decided yet · y: if the effect stays as it is, it will take about " in open_
    assert "not decided · y: the trial ended before this was decided." in closed
    assert "will take" not in closed


def test_nothing_is_told_of_how_long_where_the_effect_says_nothing_of_it() -> None:
    for outcome, level in ((HIGHER, 0.0), (GUARD, 1.0), (BY_ONE, 1.0)):
        assert judged(outcome, level - 0.5, level + 0.6).more_records is None


def test_no_verdict_where_the_arms_did_not_get_their_share_or_there_is_no_error() -> None:
    rows = {"g": ["a"] * 900 + ["b"] * 100, "y": [float(i % 7) for i in range(1000)]}
    with pytest.warns(fa.SampleRatioWarning):
        [failed] = effects_of(["y"], rows, arms={"a": 0.5, "b": 0.5}).verdicts()
    assert (failed.verdict, failed.anytime, failed.more_records) == ("no verdict", "no verdict", None)
    assert failed.estimate is not None
    assert "share" in str(failed.why)
    [constant] = effects_of(["y"], {"g": ["a", "b"] * 20, "y": [1.0] * 40}, arms={"a": 0.5, "b": 0.5}).verdicts()
    assert constant.verdict == "no verdict"
    assert "no standard error" in str(constant.why)


def test_the_leading_row_decides_and_the_correction_counts() -> None:
    rows = data(2000, shift=0.22)
    effects = effects_of([f"y{i}" for i in range(4)], rows)
    alone = effects_of([f"y{i}" for i in range(4)], rows, correction="none")
    for each, said in zip(comparisons(effects), effects.verdicts(), strict=True):
        assert (said.estimate, said.p_value) == (each.lead.estimate, each.lead.p_adjusted)
        assert said.decided == (known(said.p_value) < 0.05)
    words = [[said.decided for said in found.verdicts()] for found in (effects, alone)]
    assert sum(words[0]) < sum(words[1])
    assert all(one <= other for one, other in zip(*words, strict=True))
    assert "is not enough" in " ".join(str(effects).split())


def test_a_harm_is_corrected_for_the_number_of_guardrails() -> None:
    rows = data(600, seed=5, shift=0.3)
    single = effects_of([fa.Mean("y0", better="lower", margin=0.1)], rows)
    several = effects_of([fa.Mean(f"y{i}", better="lower", margin=0.1) for i in range(4)], rows)
    p = known(single[0].p_against)
    assert 0.05 / 8 < p < 0.025  # clear by itself, and not among eight
    assert single.verdicts()[0].verdict == "worse"
    assert several.verdicts()[0].verdict == "not decided yet"


# For machines.


def test_verdicts_and_open_ends_come_back_from_json() -> None:
    asked = [
        GUARD,
        fa.Mean("y", name="x", better="higher", question="better"),
        fa.Mean("y", name="z", margin=2, question="alike"),
    ]
    rows = {"g": ["a", "b"] * 200, "y": [float(i % 9) for i in range(400)]}
    effects = effects_of(asked, rows, arms={"a": 0.5, "b": 0.5})
    again = fa.Effects.from_json(effects.to_json())
    assert again.rows == effects.rows
    assert again.verdicts() == effects.verdicts()
    assert [row.ci_lower for row in effects.filter(outcome="y")] == [-math.inf]
    written = msgspec.json.decode(effects.to_json())
    fields = msgspec.to_builtins(effects.verdicts())
    assert [each["verdict"] for each in written["verdicts"]] == [each["verdict"] for each in fields]
    assert set(written["verdicts"][0]) == set(Verdict.__struct_fields__)
