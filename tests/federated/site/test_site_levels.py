"""Baseline characteristics of text at sites: levels that the plan does not list, named where enough units have them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pytest

import foldaway as fa
from foldaway.effects.door import OWN, TOLD
from foldaway.errors import MessageError
from foldaway.federated.messages import SiteSums
from foldaway.federated.modes import site_mode_of
from foldaway.federated.modes.share import Devices, ServerShare
from foldaway.federated.modes.site_baseline import counted
from foldaway.federated.site.site import fold_site
from trials import known

PLAN = fa.Plan(
    name="characteristics",
    arm="arm",
    arms={"placebo": 0.5, "drug": 0.5},
    outcomes=["pain"],
    baseline=["age", "sex", "stage"],
    unit="patient",
    federated="sums",
    privacy={"cohort": 20, "smallest_cell": 5},
)
MODE = site_mode_of(PLAN)


def patients(site: str, levels: list[str], n: int = 150) -> pd.DataFrame:
    """Patients with two visits each; some lack their sex, and four have a stage that no other has."""
    chance = np.random.default_rng(len(site))
    rows = pd.DataFrame({"patient": [f"{site}{i}" for i in range(n)], "arm": chance.choice(list(PLAN.arms), n)})
    sex, stage = (chance.choice(those, n).astype(object) for those in (["f", "m"], levels))
    sex[chance.random(n) < 0.1] = None
    stage[:4] = f"only {site}"
    rows = rows.assign(age=chance.normal(60, 9, n), sex=sex, stage=stage).iloc[np.repeat(np.arange(n), 2)]
    return rows.assign(pain=chance.normal(5, 1, 2 * n))


SITES = {"Aarhus": patients("Aarhus", ["I", "II"]), "Bergen": patients("Bergen-", ["II", "III"])}


def folded(rows: pd.DataFrame, folder: Path) -> fa.Trial:
    folder.mkdir(exist_ok=True, parents=True)
    rows.to_parquet(folder / "rows.parquet")
    return fold_site(PLAN, [str(folder / "rows.parquet")], folder)


def share_of(folder: Path) -> ServerShare:
    share = ServerShare(fa.Trial(PLAN))
    for site, rows in SITES.items():
        sent = MODE.site(share, MODE.from_site(folded(rows, folder / site)))
        share = share.merge(sent.sent_by(site, site))
    return ServerShare.of(PLAN, share.dumps())


def test_the_table_is_that_of_all_rows_and_levels_of_few_are_among_the_others(tmp_path: Path) -> None:
    share = share_of(tmp_path)
    units = dict(zip(PLAN.arms, share.devices, strict=True))
    ours = MODE.results(share, Devices(units, units), None, OWN)[0].baseline
    listed = [{"column": "sex", "levels": ["f", "m"]}, {"column": "stage", "levels": ["I", "II", "III", "(others)"]}]
    kept = fa.Trial(msgspec.structs.replace(PLAN, federated=None, baseline=["age", *listed]))
    rows = pd.concat(SITES.values())
    kept.fold(rows.assign(stage=rows["stage"].where(rows["stage"].isin(["I", "II", "III"]), "(others)")))
    theirs = {(row.column, row.level, row.arm): row for row in kept.effects().baseline}
    assert {(row.column, row.level, row.arm) for row in ours} == theirs.keys()
    for row in ours:
        other = theirs[row.column, row.level, row.arm]
        assert (row.n, row.count) == (other.n, other.count)
        if row.column == "age":
            numbers = [known(other.mean), known(other.std_dev)]
            assert [row.mean, row.std_dev] == pytest.approx(numbers, rel=1e-9)
    told = MODE.results(share, Devices(units, units), None, TOLD)[0].baseline
    assert {row.level for row in told if row.column == "stage"} == {"I", "II", "III", "(others)"}


def test_names_of_levels_that_few_have_stay_at_the_site(tmp_path: Path) -> None:
    trial = folded(SITES["Aarhus"], tmp_path)
    sent = MODE.from_site(trial)
    assert b"only Aarhus" not in sent
    assert b"only Aarhus" not in share_of(tmp_path / "both").dumps()
    levels = msgspec.json.decode(sent, type=SiteSums).levels
    assert {column: set(each) for column, each in levels.items()} == {"sex": {"f", "m", ""}, "stage": {"I", "II", ""}}


@pytest.mark.parametrize(
    ("levels", "match"),
    [
        ({"pain": {"I": [9, 9]}}, "cannot have"),
        ({"stage": {"I": [9]}}, "cannot have"),
        ({"stage": {"I\n": [9, 9]}}, "cannot have"),
        ({"stage": {"I": [9_000, 9]}}, "do not fit its records"),
        ({"stage": {"I": [4, 150], "": [140, 0]}}, "fewer than `smallest_cell`"),
        ({"stage": {"I": [-5, 150], "": [160, 0]}}, "not a message"),
    ],
    ids=str,
)
def test_levels_that_cannot_be_are_refused(levels: dict[str, Any], match: str, tmp_path: Path) -> None:
    good = msgspec.json.decode(MODE.from_site(folded(SITES["Aarhus"], tmp_path)), type=SiteSums)
    bad = msgspec.json.encode({**msgspec.to_builtins(good), "levels": levels})
    with pytest.raises(MessageError, match=match):
        MODE.site(ServerShare(fa.Trial(PLAN)), bad)


def test_where_sites_write_numbers_and_text_the_table_has_what_more_records_have(tmp_path: Path) -> None:
    share, rows = share_of(tmp_path), SITES["Aarhus"]
    numbered = folded(rows.assign(stage=rows["stage"].str.len().astype(float)), tmp_path / "numbers")
    share = share.merge(MODE.site(share, MODE.from_site(numbered)).sent_by("Cork", "Cork"))
    units = dict.fromkeys(PLAN.arms, 1)
    table = MODE.results(share, Devices(units, units), None, OWN)[0].baseline
    stages = [row for row in table if row.column == "stage"]
    assert {row.level for row in stages} == {"I", "II", "III", "(others)"}
    assert sum(known(row.missing) for row in stages if row.level == "I") == len(rows)


def test_sent_again_a_characteristic_must_be_of_enough_new_units(tmp_path: Path) -> None:
    """Further records of the same patients, and many of one newcomer, are of nobody or of one."""
    rows = SITES["Aarhus"]
    late = patients("Late", ["I", "II"], 90)
    lone = late["patient"] == late["patient"].iloc[0]
    first = rows.assign(age=rows["age"].where(rows["patient"].isin(rows["patient"].unique()[:75])))
    again = pd.concat([first, late.assign(age=late["age"].where(lone)), *[late[lone]] * 20])
    here, there = (counted(folded(each, tmp_path / str(n))) for n, each in enumerate((again, first)))
    arm = list(PLAN.arms).index(late["arm"].iloc[0])
    assert here[arm] - there[arm] == 1  # of the first characteristic, age


def test_an_empty_list_of_levels_is_refused(tmp_path: Path) -> None:
    good = msgspec.json.decode(MODE.from_site(folded(SITES["Aarhus"], tmp_path)), type=SiteSums)
    with pytest.raises(MessageError, match="cannot have"):
        MODE.site(ServerShare(fa.Trial(PLAN)), msgspec.json.encode(msgspec.structs.replace(good, levels={"sex": {}})))
