"""Segments at sites: which levels are told, in which groups, and what effects by level come to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pytest

import foldaway as fa
from foldaway.effects import Effects
from foldaway.effects.door import OWN, TOLD, Door
from foldaway.errors import MessageError
from foldaway.federated.messages import SiteSums, packed, unpacked
from foldaway.federated.modes import site_mode_of
from foldaway.federated.modes.mode import SentBefore
from foldaway.federated.modes.share import Devices, ServerShare
from foldaway.federated.modes.site_groups import groups_within, site_groups
from foldaway.federated.modes.site_segments import counted, told_levels
from foldaway.federated.site.site import fold_site
from trials import known

SITES = {"Aarhus": 300, "Bergen": 200, "Uppsala": 260}
ARMS = {"placebo": 0.5, "drug": 0.5}
SEX = {"column": "sex", "levels": ["f", "m", "x"]}


def plan_of(**others: Any) -> fa.Plan:
    settings: dict[str, Any] = {
        "outcomes": [
            fa.Mean("pain", missing="allowed"),
            fa.Ratio("pain", "visits", name="per visit", missing="allowed"),
        ],
        "segments": [SEX],
        "expected_units": 760,
        "federated": "sums",
        "privacy": {"cohort": 20, "smallest_cell": 5},
    }
    return fa.Plan(name="by-sex", arm="arm", arms=ARMS, unit="patient", **settings | others)


def patients(site: str, seed: int = 1, *, rare: int = 0) -> pd.DataFrame:
    """Patients with one to three visits, of whom so many are of the rare sex."""
    chance, n = np.random.default_rng([seed, len(site)]), SITES[site]
    sex = chance.choice(["f", "m"], n)
    sex[:rare] = "x"
    arm = chance.choice(list(ARMS), n)
    who = np.repeat(np.arange(n), chance.integers(1, 4, n))
    pain = 5 + 2 * len(site) - (arm == "drug") * (1 + (sex == "f")) + chance.normal(0, 1, n)
    rows = pd.DataFrame({"patient": [f"{site}{i}" for i in who], "arm": arm[who], "sex": sex[who]})
    rows["pain"] = pain[who] + chance.normal(0, 1, len(who))
    rows.loc[chance.random(len(who)) < 0.08, "pain"] = np.nan
    return rows.assign(visits=chance.integers(1, 5, len(who)), site=site)


def folded(plan: fa.Plan, rows: pd.DataFrame, folder: Path) -> fa.Trial:
    folder.mkdir(exist_ok=True, parents=True)
    rows.to_parquet(folder / "rows.parquet")
    return fold_site(plan, [str(folder / "rows.parquet")], folder)


def together(plan: fa.Plan, sites: dict[str, pd.DataFrame], folder: Path, door: Door = OWN) -> Effects:
    """The effects of what the sites send, without a server."""
    mode, share = site_mode_of(plan), ServerShare(fa.Trial(plan))
    for site, rows in sites.items():
        sent = mode.from_site(folded(plan, rows, folder / site))
        share = share.merge(mode.site(share, sent).sent_by(site, site))
    share = ServerShare.of(plan, share.dumps())
    units = dict(zip(plan.arms, share.devices, strict=True))
    return mode.results(share, Devices(units, units), None, door)[0]


@pytest.mark.parametrize("within", [True, False])
def test_effects_by_level_are_those_of_all_rows_in_one_place(within: bool, tmp_path: Path) -> None:
    plan = plan_of(federated=fa.Federated("sums", within_sites=within))
    sites = {site: patients(site) for site in SITES}
    effects = together(plan, sites, tmp_path)
    strata = {"column": "site", "levels": list(SITES)} if within else None
    kept = fa.Trial(msgspec.structs.replace(plan, federated=None, strata=strata))
    kept.fold(pd.concat(sites.values()))
    theirs = {(each.column, each.outcome): each for each in kept.effects().segments}
    ours = {(each.column, each.outcome): each for each in effects.segments if each.column != "site"}
    assert ours.keys() == theirs.keys()
    for key, found in ours.items():
        rows = {row.segment: row for row in theirs[key].effects}
        for row in found.effects:
            other = rows[row.segment]
            assert row.n == other.n
            if not (within and key[1] == "per visit"):  # kept rows weigh ratios in strata, and sites compare within
                assert row.estimate == pytest.approx(known(other.estimate), rel=1e-9)
            spread = np.sqrt(1 / (2 * known(row.df)) + 1 / (2 * known(other.df)))
            assert row.std_error == pytest.approx(other.std_error, rel=4 * spread)
    by_sex = ours["sex", "pain"]
    assert by_sex.differs
    assert {row.segment for row in by_sex.effects} == {"f", "m"}


def test_a_level_that_few_units_of_a_site_have_is_not_told_nor_what_it_follows_from(tmp_path: Path) -> None:
    """With three patients of a third sex, the smaller of the two others stays at the site as well."""
    plan = plan_of()
    sites = {site: patients(site, rare=3 if site == "Bergen" else 0) for site in SITES}
    effects = together(plan, sites, tmp_path)
    (by_sex,) = (each for each in effects.segments if (each.column, each.outcome) == ("sex", "pain"))
    common = sites["Bergen"]["sex"].value_counts().index[0]
    n = {row.segment: known(row.n) for row in by_sex.effects}
    present = pd.concat(sites.values()).dropna(subset="pain")
    expected = present[(present["site"] != "Bergen") | (present["sex"] == common)]["sex"].value_counts()
    assert n == expected.to_dict()
    assert any("add up to fewer records" in note for note in effects.notes)
    told = together(plan, sites, tmp_path / "told", TOLD)
    assert {row.segment for each in told.segments if each.column == "sex" for row in each.effects} == {"f", "m"}


@pytest.mark.parametrize("seed", range(4))
def test_whatever_is_sent_or_follows_from_it_is_of_enough_units(seed: int, tmp_path: Path) -> None:
    """Of every group of a told level, and of all others together, and of the difference from what was sent before."""
    chance = np.random.default_rng(seed)
    least = int(chance.integers(2, 12))
    plan = plan_of(privacy={"cohort": 20, "smallest_cell": least})
    rows = patients("Aarhus", seed, rare=int(chance.integers(0, 25)))
    who = rows["patient"].unique()
    first = folded(plan, rows[rows["patient"].isin(who[:150])], tmp_path / "1")
    both = folded(plan, rows, tmp_path / "2")
    before = counted(first)
    fine = site_groups(both, plan.groups)
    (now,), names = both.seen.segments, np.array(SEX["levels"])
    told = told_levels(both, now, before[0])
    groups = groups_within(both, now.with_rest(told))
    assert all(len(set(groups[fine == group])) == 1 for group in set(fine))  # groups are made of whole groups
    assert len(set(groups)) > 1 or not told.any()
    cells = rows.assign(level=rows["sex"].where(rows["sex"].isin(names[told]), "(others)"))
    early = cells["patient"].isin(who[:150])
    for _, part in cells.groupby(["level", "arm"]):
        everyone = set(part["patient"])
        assert len(everyone) >= least
        assert len(everyone - set(part[early.loc[part.index]]["patient"])) >= least
    units = now.with_rest(told).by_group(plan.groups)
    joined = np.zeros_like(units)
    np.add.at(np.moveaxis(joined, -1, 0), groups, np.moveaxis(units, -1, 0))
    filled = joined[..., joined.any(axis=(0, 1))]
    assert ((filled >= least) | ~filled.any(axis=-1, keepdims=True)).all()


def test_sent_again_a_level_to_which_few_have_come_is_left_out(tmp_path: Path) -> None:
    plan = plan_of()
    rows = patients("Aarhus")
    who = rows.drop_duplicates("patient")
    women = who[who["sex"] == "f"]["patient"]
    few = folded(plan, rows[~rows["patient"].isin(women[-4:])], tmp_path / "1")
    mode, levels = site_mode_of(plan), counted(few)
    arms = len(ARMS)

    def told(trial: fa.Trial, before: SentBefore | None) -> list[bool]:
        message = msgspec.json.decode(mode.from_site(trial, before), type=SiteSums)
        counts = unpacked(message.segments[0].records, 3 * arms * plan.groups).reshape(3, -1)
        return [bool(level.any()) for level in counts]

    assert told(few, None) == [True, True, False]
    assert told(folded(plan, rows, tmp_path / "2"), SentBefore((), levels)) == [False, False, False]


def test_a_message_whose_levels_do_not_fit_is_refused(tmp_path: Path) -> None:
    plan = plan_of(outcomes=["visits"], segments=[SEX])
    mode, share = site_mode_of(plan), ServerShare(fa.Trial(plan))
    good = msgspec.json.decode(mode.from_site(folded(plan, patients("Aarhus"), tmp_path)), type=SiteSums)
    (cells,) = good.segments

    def refused(match: str, **changed: Any) -> None:
        with pytest.raises(MessageError, match=match):
            mode.site(share, msgspec.json.encode(msgspec.structs.replace(good, **changed)))

    records = np.frombuffer(cells.records)
    sums = np.frombuffer(cells.sums)
    refused("other segments than the plan", segments=[])
    refused("do not fit its sums", segments=[msgspec.structs.replace(cells, records=packed(-records))])
    doubled = msgspec.structs.replace(cells, records=packed(2 * records), sums=packed(2 * sums))
    refused("more records than there are", segments=[doubled])
    refused("do not add up to those of all records", segments=[msgspec.structs.replace(cells, sums=packed(1.1 * sums))])
    absurd = msgspec.structs.replace(cells, sums=packed(1e6 * sums))
    bounded = plan_of(outcomes=[fa.Mean("visits", bounds=(0, 10))], segments=[SEX])
    with pytest.raises(MessageError, match="beyond the plan's `bounds`"):
        site_mode_of(bounded).site(
            ServerShare(fa.Trial(bounded)), msgspec.json.encode(msgspec.structs.replace(good, segments=[absurd]))
        )
    lone = records.copy()
    lone[np.flatnonzero(lone)[0]] = 1
    few = msgspec.structs.replace(cells, records=packed(lone))
    refused("do not fit one another, or the plan's `smallest_cell`", segments=[few])
    assert mode.site(share, msgspec.json.encode(good)).own.n == records.sum()
