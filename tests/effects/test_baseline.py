"""The baseline table and the flow diagram: those of the rows kept, whatever way the records took; told rounded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import foldaway as fa
from commands import foldaway
from foldaway.effects.read_flow import at_the_end
from foldaway.errors import PlanError
from foldaway.plan import Flow
from plans import replaced

PLAN = fa.Plan(
    name="baseline",
    arm="arm",
    arms={"usual": 0.4, "new": 0.3, "newer": 0.3},
    outcomes=[fa.Mean("pain", missing="allowed")],
    covariates=["age"],
    segments=[{"column": "sex", "levels": ["f", "m"]}],
    baseline=["age", "sex", "smokes", {"column": "stage", "levels": ["I", "II", "III"]}, "pressure"],
    received="took",
    drop_limit=0.3,
    estimand={"population": "adults with pain", "summary": "difference in means"},
    flow={"assessed": 2_000, "excluded": {"not eligible": 300}},
)


LISTED = [{"column": "sex", "levels": ["f", "m"]}, *(each for each in PLAN.baseline.written() if each != "sex")]


def patients(n: int = 1_500, seed: int = 5) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    rows = pd.DataFrame(
        {
            "arm": rng.choice(list(PLAN.arms), n, p=list(PLAN.arms.values())),
            "age": rng.normal(61, 9, n).round(1),
            "sex": rng.choice(["f", "m"], n),
            "smokes": (rng.random(n) < 0.3).astype(float),
            "stage": rng.choice(["I", "II", "III"], n, p=[0.6, 0.395, 0.005]),
            "pressure": 1e6 + rng.normal(120, 15, n),
            "pain": rng.normal(5, 2, n),
        }
    )
    rows["took"] = (rng.random(n) < np.where(rows["arm"] == "usual", 0.2, 0.9)).astype(float)
    for column, share in (("pressure", 0.2), ("stage", 0.1), ("pain", 0.15), ("age", 0.02)):
        rows[column] = rows[column].where(rng.random(n) >= share, None)
    return rows


KEY = bytes(16)


def folded(plan: fa.Plan, rows: pd.DataFrame, key: bytes | None = KEY) -> fa.Trial:
    trial = fa.Trial(plan, key=key)
    for start in range(0, len(rows), 400):
        trial.fold(rows.iloc[start : start + 400])
    return trial


@pytest.mark.parametrize("others", [{}, {"unit": "patient"}, {"covariates": []}, {"moments": {}}])
def test_the_table_is_that_of_the_rows_kept(others: dict[str, Any]) -> None:
    alone = {"segments": [], "outcomes": ["pain"], "received": None, "baseline": LISTED}
    settings = {**others, **(alone if "moments" in others else {})}
    plan = replaced(PLAN, **settings)
    rows = patients().assign(patient=lambda frame: frame.index // 2)
    trial = folded(plan, rows)
    kept = rows[rows["age"].notna() & (rows["pain"].notna() if "moments" in others else True)]
    if "covariates" in others:
        kept = rows
    halves = [folded(plan, kept.iloc[part::2]) for part in range(2)]
    merged = fa.Trial.loads(halves[0].dumps(), plan, key=bytes(16)).merge(halves[1])
    for table in (trial.effects().baseline, merged.effects().baseline):
        found = {(row.column, row.level, row.arm): row for row in table}
        control = kept[kept["arm"] == plan.control]["age"].astype(float)
        for arm in plan.arms:
            mine = kept[kept["arm"] == arm]
            for column in ("age", "pressure"):
                row, values = found[column, "", arm], mine[column].astype(float)
                assert row.mean == pytest.approx(values.mean(), rel=1e-12)
                assert row.std_dev == pytest.approx(values.std(), rel=1e-9)
                assert (row.n, row.missing) == (values.notna().sum(), values.isna().sum())
            for column, level in (("sex", "f"), ("stage", "III"), ("smokes", 1)):
                row, count = (
                    found[column, level if isinstance(level, str) else "", arm],
                    int((mine[column] == level).sum()),
                )
                assert row.count == count
                assert row.share == pytest.approx(count / mine[column].notna().sum())
            ages = mine["age"].astype(float)
            apart = (ages.mean() - control.mean()) / np.sqrt((ages.var() + control.var()) / 2)
            if arm != plan.control:
                assert found["age", "", arm].std_difference == pytest.approx(apart, rel=1e-9)


def test_others_are_told_rounded_numbers_and_none_of_a_few() -> None:
    """Two sets of rows that differ in one person's value and level give the same table; a rare level gives none."""
    rows = patients()
    other = rows.copy()
    place = rows.index[rows["pressure"].notna() & (rows["stage"] == "I")][0]
    other.loc[place, ["pressure", "stage"]] = [rows.loc[place, "pressure"] + 0.5, "II"]
    one, two = (folded(PLAN, each).told().baseline for each in (rows, other))
    differ = sum(a != b for a, b in zip(one, two, strict=True))
    assert differ <= 2  # a count may step
    rare = [row for row in one if row.level == "III"]
    assert rare
    assert all(row.count is row.share is row.n is None and "fewer than 10" in (row.why or "") for row in rare)
    for arm in PLAN.arms:  # the hidden level does not follow from the others and the whole
        stages = [row for row in one if (row.column, row.arm) == ("stage", arm)]
        hidden = [row.level for row in stages if row.count is None]
        assert len(hidden) == 2
        assert (rows[rows["arm"] == arm]["stage"].isin(hidden)).sum() >= PLAN.privacy.smallest_cell
    pressures = [row for row in one if row.column == "pressure"]
    exact = [row for row in folded(PLAN, rows).effects().baseline if row.column == "pressure"]
    for told, row in zip(pressures, exact, strict=True):
        assert told.mean != row.mean
        assert row.std_dev is not None
        assert row.n is not None
        assert told.mean == pytest.approx(row.mean, abs=row.std_dev / np.sqrt(row.n) / 4)


def test_others_do_not_see_whether_anybody_has_another_value_than_0_and_1() -> None:
    rows = patients()
    other = rows.copy()
    other.loc[0, "smokes"] = 2.0
    one, two = ([r for r in folded(PLAN, each).told().baseline if r.column == "smokes"] for each in (rows, other))
    assert all(row.count is None and row.mean is not None for row in (*one, *two))


FREE = fa.Plan(
    name="free",
    arm="arm",
    arms={"usual": 0.4, "new": 0.3, "newer": 0.3},
    outcomes=["pain"],
    baseline=["age", "sex", "stage", "smokes", "pressure"],
)


def free_rows(n: int = 1_200) -> pd.DataFrame:
    rows = patients(n).assign(patient=lambda frame: frame.index // 2)
    rows["age"], rows["pain"] = rows["age"].astype(float).fillna(60.0), rows["pain"].astype(float).fillna(5.0)
    rows["smokes"] = rows["smokes"] == 1
    return rows


@pytest.mark.parametrize("unit", [None, "patient"])
def test_text_without_levels_is_counted_as_if_the_plan_had_listed_its_levels(unit: str | None) -> None:
    rows = free_rows()
    rows["stage"] = rows["stage"].where(rows["stage"] != "III", "II")
    levels = {"sex": ["f", "m"], "stage": ["I", "II"], "smokes": ["false", "true"]}
    listed = [{"column": name, "levels": levels[name]} if name in levels else name for name in FREE.baseline]
    ours, theirs = (replaced(plan, unit=unit) for plan in (FREE, replaced(FREE, baseline=listed)))
    expected, told = folded(theirs, rows).effects().baseline, folded(theirs, rows).told().baseline
    halves = [folded(ours, rows.iloc[part::2]) for part in range(2)]
    loaded = fa.Trial.loads(halves[0].dumps(), ours, key=bytes(16))
    for trial in (folded(ours, rows), halves[0].merge(halves[1]), loaded.merge(halves[1])):
        table = trial.effects().baseline
        assert [(row.column, row.level, row.arm) for row in table] == [(r.column, r.level, r.arm) for r in expected]
        for row, other in zip(table, expected, strict=True):
            assert (row.n, row.missing, row.count, row.share) == (other.n, other.missing, other.count, other.share)
            assert row.mean == (None if other.mean is None else pytest.approx(other.mean, rel=1e-12))
        assert trial.told().baseline == told


def test_whatever_carries_the_records_numbers_are_numbers_and_text_is_levels(tmp_path: Path) -> None:
    rows = free_rows(300)
    rows.loc[::7, "stage"] = None
    expected = folded(FREE, rows).effects().baseline
    (tmp_path / "plan.toml").write_text(FREE.to_toml())
    rows.to_csv(tmp_path / "rows.csv", index=False)
    rows["smokes"] = [bool(value) for value in rows["smokes"]]
    rows.to_json(tmp_path / "rows.ndjson", orient="records", lines=True, double_precision=15)
    rows.to_parquet(tmp_path / "rows.parquet")
    categorical = rows.astype({"sex": "category", "stage": "category"})
    found = [folded(FREE, categorical).effects().baseline]
    for ending in ("csv", "ndjson", "parquet"):
        foldaway("run", tmp_path / "plan.toml", tmp_path / f"rows.{ending}", "--save", tmp_path / ending)
        found.append(fa.Trial.load(tmp_path / ending).effects().baseline)
    for table in found:
        for row, other in zip(table, expected, strict=True):
            assert (row.column, row.level.lower()) == (other.column, other.level.lower())  # pandas writes True into CSV
            assert (row.n, row.count) == (other.n, other.count)
            assert row.mean == (None if other.mean is None else pytest.approx(other.mean, rel=1e-9))


def test_a_level_that_few_have_and_every_identifier_are_others() -> None:
    rows = free_rows().assign(pressure=lambda frame: [f"person {place}" for place in frame.index])
    trial = folded(replaced(FREE, unit="patient"), rows)
    for table in (trial.effects().baseline, fa.Trial.loads(trial.dumps(), key=bytes(16)).effects().baseline):
        assert {row.level for row in table if row.column == "pressure"} == {"(others)"}
        assert {row.level for row in table if row.column == "stage"} == {"I", "II", "(others)"}
        assert sum(row.count or 0 for row in table if row.column == "pressure") == len(rows)
    state = trial.dumps()
    assert b"person" not in state
    assert b"III" not in state
    for arm in FREE.arms:
        stages = [row for row in trial.told().baseline if (row.column, row.arm) == ("stage", arm)]
        hidden = [row.level for row in stages if row.count is None]
        assert "(others)" in hidden
        assert len(hidden) == 2


@pytest.mark.parametrize(("column", "wrong"), [("age", "sixty"), ("age", True), ("sex", 1.0)])
def test_a_column_is_of_what_more_records_have_whatever_comes_first(column: str, wrong: Any) -> None:
    """Values of the other kind count as missing: no batch, order or merge decides, and no record is left out."""
    rows = free_rows().to_dict("records")
    mixed = [{**row, column: wrong} if place < 5 else row for place, row in enumerate(rows)]
    without = [{**row, column: None} if place < 5 else row for place, row in enumerate(rows)]
    expected = folded(FREE, pd.DataFrame(without)).effects().baseline
    whole, backwards, parts = fa.Trial(FREE, key=KEY), fa.Trial(FREE, key=KEY), fa.Trial(FREE, key=KEY)
    whole.fold(mixed)
    backwards.fold(mixed[::-1])
    parts.fold(mixed[:1])
    other = fa.Trial(FREE, key=KEY)
    other.fold(mixed[1:])
    merged = fa.Trial.loads(parts.merge(other).exchanged(), FREE, key=KEY)
    for trial in (whole, backwards, merged):
        assert (trial.n, trial.dropped.total) == (len(rows), 0)
        found = trial.effects().baseline
        assert [(row.column, row.level, row.arm, row.n, row.missing, row.count) for row in found] == [
            (row.column, row.level, row.arm, row.n, row.missing, row.count) for row in expected
        ]


def test_a_state_of_before_text_was_counted_loads() -> None:
    plan = replaced(FREE, baseline=["age", "pressure"])
    rows = free_rows()
    trial = folded(plan, rows, None)
    loaded = fa.Trial.loads(trial.dumps(), plan)
    assert b"levels" not in trial.exchanged()
    assert loaded.merge(folded(plan, rows, None)).effects().baseline[0].n == 2 * trial.effects().baseline[0].n  # type: ignore[operator]


def test_the_flow_counts_everyone_once_and_is_exact_at_the_end(tmp_path: Path) -> None:
    rows = patients()
    rows.loc[rows.index[:7], "arm"] = "unknown"
    rows.loc[rows.index[7:40], "took"] = None
    trial = folded(PLAN, rows, None)
    flow = trial.effects().flow
    assert flow is not None
    good = rows[rows["age"].notna() & rows["took"].notna() & rows["arm"].isin(list(PLAN.arms))]
    for arm in flow.arms:
        mine, all_of_it = good[good["arm"] == arm.arm], rows[rows["arm"] == arm.arm]
        assert arm.randomised == len(all_of_it)
        assert sum(arm.lost.values()) >= len(all_of_it) - len(mine)
        assert arm.analysed["pain"] == mine["pain"].notna().sum()
        assert arm.received == mine.loc[mine["pain"].notna(), "took"].sum()
    assert (flow.unknown, flow.unaccounted) == (7, 2_000 - 300 - len(rows))
    told = trial.told().flow
    assert told is not None
    assert not told.exact
    assert [arm.randomised for arm in told.arms] != [arm.randomised for arm in flow.arms]
    trial.fix()
    trial.save(tmp_path / "state")
    trial.end(tmp_path / "state")
    assert fa.Effects.load(tmp_path / "state").flow == flow


def test_the_report_shows_participants_and_who_was_assessed_may_be_said_later(tmp_path: Path) -> None:
    page = folded(PLAN, patients()).report().html
    for words in ("Assessed for eligibility: 2,000", "not eligible", "Randomised: ", "Analysed, by outcome"):
        assert words in page
    for words in ("Baseline characteristics", "SMD new", "adults with pain", "Estimand (ICH E9(R1))"):
        assert words in page
    plan = replaced(PLAN, flow=None, baseline=[], estimand=None)
    trial = folded(plan, patients(), None)
    trial.fix()
    assert "Who took part" not in trial.report().html
    trial.save(tmp_path / "state")
    (tmp_path / "flow.toml").write_text("[flow]\nassessed = 1700\nexcluded = { declined = 12 }\n")
    foldaway("report", tmp_path / "state", "-o", tmp_path / "page.html", "--flow", tmp_path / "flow.toml")
    assert "declined" in (tmp_path / "page.html").read_text()
    with pytest.raises(PlanError, match="adds up to more"):
        Flow.of({"assessed": 3, "excluded": {"declined": 4}})
    with pytest.raises(PlanError, match="cannot read"):
        Flow.load(tmp_path / "nowhere.toml")


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"baseline": ["pain"]}, "used more than once (outcomes, baseline)"),
        ({"baseline": ["age", "age"]}, "has a column twice"),
        ({"segments": ["sex"], "baseline": ["sex"]}, "is a segment without levels"),
        ({"federated": "sums", "segments": [], "received": None, "covariates": []}, "needs `unit`"),
        ({"baseline": [{"column": "stage", "levels": ["I"]}]}, "must be at least two"),
    ],
)
def test_a_plan_says_what_is_wrong_with_its_baseline(settings: dict[str, Any], fault: str) -> None:
    with pytest.raises(PlanError) as refused:
        replaced(PLAN, **settings)
    assert fault in str(refused.value)


def test_of_few_who_received_the_treatment_others_are_told_nothing_at_the_end_either() -> None:
    got = np.tile([0.0, 1.0], 200)
    got[[0, 2]] = 1
    plan = fa.Plan(name="demo", arm="g", arms={"a": 0.5, "b": 0.5}, outcomes=["y"], received="got", flow={})
    trial = fa.Trial(plan)
    trial.fold({"g": ["a", "b"] * 200, "y": np.arange(400.0), "got": got})
    exact = trial.effects()
    assert exact.flow is not None
    assert [arm.received for arm in exact.flow.arms] == [2, 200]
    told = at_the_end(trial.told(), exact).flow
    assert told is not None
    assert told.exact
    assert [arm.received for arm in told.arms] == [None, None]
