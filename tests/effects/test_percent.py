"""People read shares in per cent; machines get them as they are, and no verdict depends on it."""

import json

import numpy as np
import pytest

import foldaway as fa
from foldaway.effects import Effects
from foldaway.effects.percent import in_percent


@pytest.fixture(scope="module")
def effects() -> Effects:
    rng = np.random.default_rng(1)
    n = 6_000
    arm, country = rng.integers(0, 2, n), rng.integers(0, 2, n)
    share = {"kind": "share", "column": "wait", "above": 1}
    plan = fa.Plan(
        name="units-of-measure",
        arm="arm",
        arms={"a": 0.5, "b": 0.5},
        outcomes=[
            fa.Mean("wait", better="higher", name="time", measure="s"),
            {**share, "name": "long", "better": "lower", "margin": 0.05},
            {**share, "name": "plain", "measure": "of visits"},
            {**share, "name": "relative", "better": "lower", "margin": "9%"},
        ],
        segments=["country"],
    )
    trial = fa.Trial(plan)
    wait = rng.exponential(1 + 0.05 * arm)
    trial.fold({"arm": np.array(["a", "b"])[arm], "wait": wait, "country": np.array(["x", "y"])[country]})
    return trial.effects()


def test_every_number_of_a_share_is_a_hundred_times_as_large_and_no_other(effects: Effects) -> None:
    read = in_percent(effects)
    segments = [row for each in effects.segments for row in each.effects]
    shown = [row for each in read.segments for row in each.effects]
    for ours, theirs in [*zip(effects, read, strict=True), *zip(segments, shown, strict=True)]:
        times = 1 if ours.outcome == "time" else 100
        for name in ("estimate", "std_error", "control_level", "ci_lower", "ci_upper", "threshold", "anytime_ci_upper"):
            before, after = getattr(ours, name), getattr(theirs, name)
            assert after == (None if before is None else pytest.approx(times * before, rel=1e-15))
        for name in ("p_value", "relative", "odds_ratio", "df", "n"):
            assert getattr(ours, name) == getattr(theirs, name)


def test_verdicts_and_decisions_do_not_depend_on_the_unit(effects: Effects) -> None:
    read = in_percent(effects)
    for ours, theirs in zip(effects.verdicts(), read.verdicts(), strict=True):
        assert (ours.words, ours.more_records, ours.why) == (theirs.words, theirs.more_records, theirs.why)
        if ours.margin is not None:
            assert theirs.margin == pytest.approx(100 * ours.margin)
    assert [each.sentence for each in effects.decisions()] == [each.sentence for each in read.decisions()]


def test_people_read_per_cent_and_machines_the_share(effects: Effects) -> None:
    text = str(effects)
    level = next(row.control_level for row in effects if row.outcome == "plain")
    assert level is not None
    line = next(line for line in text.splitlines() if line.startswith("plain"))
    assert line.split()[:4] == ["plain", "(%", "of", "visits)"]
    assert float(line.split()[4]) == pytest.approx(100 * level, rel=0.01)
    assert "by more than 5 percentage points" in text.replace("\n  ", " ")
    rows = json.loads(effects.to_json())["effects"]
    assert next(row["control_level"] for row in rows if row["outcome"] == "plain") == level


def test_without_shares_nothing_changes(effects: Effects) -> None:
    only = fa.Plan(name="mean", arm="arm", arms={"a": 0.5, "b": 0.5}, outcomes=["y"])
    trial = fa.Trial(only)
    trial.fold({"arm": ["a", "b"] * 100, "y": [float(i % 9) for i in range(200)]})
    found = trial.effects()
    assert in_percent(found) is found
