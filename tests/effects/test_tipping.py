"""What missing outcomes could change: filled in as the tipping point says, the rows give the effect where it tips."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import foldaway as fa
from plans import replaced

PLAN = fa.Plan(
    name="missing",
    arm="arm",
    arms={"usual": 0.5, "new": 0.25, "newer": 0.25},
    outcomes=[
        fa.Mean("pain", missing="allowed"),
        fa.Share("well", equals=1, name="well", missing="allowed", better="higher", margin=0.02),
        fa.Mean("weeks"),
    ],
    correction="none",
)


def patients(n: int = 2_000, lost: float = 0.12) -> pd.DataFrame:
    rng = np.random.default_rng(2)
    rows = pd.DataFrame({"arm": rng.choice(list(PLAN.arms), n, p=list(PLAN.arms.values()))})
    rows["pain"] = rng.normal(6.0, 2.0, n) - 0.6 * (rows["arm"] == "new")
    rows["weeks"] = rng.normal(size=n)
    rows["well"] = (rng.random(n) < 0.6 + 0.15 * (rows["arm"] == "newer")).astype(float)
    for column in ("pain", "well"):
        rows[column] = rows[column].where(rng.random(n) >= lost * (1 + (rows["arm"] == "new")))
    return rows


def effects_of(rows: pd.DataFrame, **settings: Any) -> fa.Effects:
    trial = fa.Trial(replaced(PLAN, **settings), key=bytes(16))
    trial.fold(rows)
    return trial.effects()


def estimate(rows: pd.DataFrame, outcome: str, arm: str) -> float:
    (row, *_) = effects_of(rows).filter(outcome=outcome, arm=arm, estimator="difference")
    assert row.estimate is not None
    return float(row.estimate)


def test_filled_in_at_the_tipping_point_the_effect_is_where_it_tips_and_bounds_are_reached() -> None:
    rows = patients()
    effects = effects_of(rows)
    tips = effects.tipping()
    assert [(each.outcome, each.arm) for each in tips] == [
        *(("pain", arm) for arm in ("new", "newer")),
        *(("well", arm) for arm in ("new", "newer")),
    ]
    assert {each.shown for each in tips} == {True, False}
    for tip in tips:
        (row, *_) = effects.filter(outcome=tip.outcome, arm=tip.arm)
        ends = [end for end in (row.ci_lower, row.ci_upper) if end is not None and np.isfinite(end)]
        reached = estimate(rows, tip.outcome, tip.arm)
        for arm in (tip.control, tip.arm):
            filled = rows.copy()
            by = tip.apart[arm]
            assert by is not None
            for each in (tip.control, tip.arm):
                mine = filled["arm"] == each
                mean = filled.loc[mine, tip.outcome].mean()
                filled.loc[mine & filled[tip.outcome].isna(), tip.outcome] = mean + (by if each == arm else 0.0)
            moved = np.average(filled.loc[filled["arm"] == tip.arm, tip.outcome])
            moved -= np.average(filled.loc[filled["arm"] == tip.control, tip.outcome])
            # Where the end of the interval was, the threshold is now.
            assert min(abs(tip.threshold - (end + moved - reached)) for end in ends) < 1e-12
            assert tip.average[arm] == pytest.approx(rows.loc[rows["arm"] == arm, tip.outcome].mean() + by)
        if tip.outcome == "well":
            ones = [1.0, 0.0]
            for bound, fill in ((tip.lowest, ones[::-1]), (tip.highest, ones)):
                worst = rows.assign(
                    well=rows["well"].fillna((rows["arm"] == tip.arm).map({True: fill[0], False: fill[1]}))
                )
                assert bound == pytest.approx(estimate(worst, "well", tip.arm), rel=1e-12)


def test_others_are_told_what_follows_from_rounded_numbers_and_a_report_shows_it() -> None:
    trial = fa.Trial(PLAN, key=bytes(16))
    trial.fold(patients())
    told = trial.told()
    for exact, rounded in zip(trial.effects().tipping(), told.tipping(), strict=True):
        assert exact.missing != rounded.missing
        assert exact.shown == rounded.shown
    page, text = trial.report().html, trial.effects().to_string(all=True)
    for words in ("What could missing outcomes change?", "Where it is shaded", "Where the finding tips"):
        assert words in page
    assert "the effect lies between" in " ".join(text.split())
    assert "no longer show an effect if, of the missing outcomes," in " ".join(text.split())


def test_without_missing_outcomes_or_for_a_question_with_two_thresholds_nothing_is_said() -> None:
    complete = patients(lost=0.0)
    assert effects_of(complete).tipping() == []
    alike = [fa.Mean("pain", missing="allowed", question="alike", margin=1.0)]
    assert effects_of(patients(), outcomes=alike).tipping() == []
    few = patients().assign(well=lambda rows: rows["well"].where(rows["arm"] != "usual", 1.0))
    shares = [tip for tip in effects_of(few).tipping() if tip.outcome == "well"]
    assert all(tip.apart["usual"] is None for tip in shares)
