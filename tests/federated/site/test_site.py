"""Sites fold their own records and send tallies of a crowd, once."""

from __future__ import annotations

import re
import subprocess
from base64 import b64decode
from collections.abc import Iterator
from functools import partialmethod
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import foldaway as fa
from clustered import federated
from commands import foldaway
from devices import Hosted, assert_as_kept_rows, devices_for, groups_of, report_all
from foldaway.errors import PlanError, RecordError, ServerError, SourceError, StateError
from foldaway.federated.link import HttpLink
from foldaway.federated.messages import Enrolment, SiteSums, encoded, new_number, packed
from foldaway.federated.modes import site_mode_of
from foldaway.federated.modes.share import units_of
from foldaway.federated.modes.site_groups import site_groups
from foldaway.federated.site.site import SiteMark, SiteReport, fold_site, send_site
from foldaway.inference.blocked_groups import blocked_by_group
from foldaway.inference.jackknife import Cells
from foldaway.inference.rounding import round_count
from foldaway.keeping.secret import Secret
from foldaway.records.check import hashes
from foldaway.sources.runs.folding import fold_files
from served import Served
from servers import Nursery
from trials import known, make_trial


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, served_from: Nursery) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("coordinator"), served_from, unrounded=True) as found:
        yield found


def site_plan(
    name: str, seed: int = 31, mode: str = "one-message", covariates: int = 1, **others: Any
) -> tuple[fa.Plan, fa.Plan, pd.DataFrame]:
    plan, rows = make_trial(seed, n=400, units=True, covariates=covariates)
    settings = {
        "unit": "unit",
        "records_per_unit": "many" if mode == "sums" else "together",
        "cohort": 10,
        "smallest_cell": 2,
    }
    return plan, federated(plan, mode, **{"name": name, **settings, **others}), rows


def site_files(rows: pd.DataFrame, folder: Path, sites: int) -> list[Path]:
    """The rows of each site's units as a file, a unit's records all over it."""
    units = rows["unit"].unique()
    files = []
    for site in range(sites):
        mine = rows[rows["unit"].isin(units[site::sites])].sample(frac=1, random_state=site)
        files.append(folder / f"site-{site}.parquet")
        mine.to_parquet(files[-1])
    return files


def sent(plan: fa.Plan, file: Path, trial: Hosted) -> SiteReport:
    """Fold and send a file, from a folder of its site's own."""
    folder = f"{file}-folder"
    return send_site(fold_site(plan, [str(file)], folder), [str(file)], trial.site_link, folder)


def groups_at(site: fa.Trial, units: Any) -> list[int]:
    """The group of each unit, as its keyed hash says."""
    places = site_groups(site, site.plan.groups)
    return [places[int(key) % len(places)] for key in hashes(pa.array(units), len(units), Secret(site.key).of_groups())]


def test_sites_and_devices_that_send_sums_equal_one_analysis_with_the_same_groups(
    server: Served, tmp_path: Path
) -> None:
    """Each site deals groups under a key of its own, and a unit's records may lie in several files of it."""
    over = fa.Federated("sums", within_sites=False)
    kept, plan, rows = site_plan("summed", mode="sums", expected_units=320, federated=over)
    trial = Hosted(server, plan)
    files = site_files(rows, tmp_path, 3)
    group: dict[str, int] = {}
    keys = []
    for file in files[:2]:
        mine = pd.read_parquet(file)
        parts = [f"{file}-{part}.parquet" for part in range(2)]
        for part, path in enumerate(parts):
            mine.iloc[part::2].to_parquet(path)
        site = fold_site(plan, parts, f"{file}-folder")
        report = send_site(site, parts, trial.site_link, f"{file}-folder")
        assert (report.repeated, report.durable) == (False, True)
        assert report.units == mine.groupby("group")["unit"].nunique().to_dict()
        keys.append(site.key)
        group |= dict(zip(mine["unit"].unique(), groups_at(site, mine["unit"].unique()), strict=True))
    assert keys[0] != keys[1]
    others = pd.read_parquet(files[2])
    devices = devices_for(plan, others, trial.link)
    group |= dict(zip(others["unit"].unique(), groups_of(devices), strict=True))
    report_all(devices)
    about = trial.end(deadline=0)["federated"]
    effects = trial.effects()
    by_arm = rows.groupby("group")["unit"].nunique().to_dict()
    assert about["enrolled"] == about["reported"] == by_arm
    assert effects.sample_ratio is not None
    assert (effects.sample_ratio.counted, effects.sample_ratio.observed) == ("units", by_arm)
    assert_as_kept_rows(effects, kept, rows, rtol=1e-12, groups=[group[unit] for unit in rows["unit"].unique()])


def test_a_site_whose_sums_did_not_arrive_sends_the_same_again_and_then_has_no_key(
    server: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dealt twice, the same records could be told apart; and once the sums are safe nothing needs the key."""
    kept, plan, rows = site_plan("same-again", mode="sums", covariates=0)
    trial = Hosted(server, plan)
    (file,) = site_files(rows, tmp_path, 1)
    mark = tmp_path / "site-0.parquet-folder" / "same-again.site"
    bodies = []

    def ask(self: HttpLink, verb: str, path: str, *, lost: bool, **others: Any) -> bytes:
        bodies.append(others["content"])
        answer = original(self, verb, path, **others)
        if lost:
            raise ServerError("the connection broke.")
        return answer

    original = HttpLink.ask
    for lost in (True, False):  # the first time, the coordinator has it and the site does not know
        monkeypatch.setattr(HttpLink, "ask", partialmethod(ask, lost=lost))
        if lost:
            with pytest.raises(ServerError, match="broke"):
                sent(plan, file, trial)
        else:
            assert sent(plan, file, trial).repeated
        assert any(b64decode(msgspec.json.decode(mark.read_bytes())["key"])) == lost
    assert sent(plan, file, trial).repeated
    assert len(bodies) == 2
    assert bodies[0] == bodies[1]
    monkeypatch.undo()
    trial.end(deadline=0)
    assert_as_kept_rows(trial.effects(), kept, rows)


def test_sums_that_no_site_has_are_refused(server: Served, tmp_path: Path) -> None:
    _, plan, rows = site_plan("bad-sums", mode="sums", covariates=0, expected_units=320)
    trial = Hosted(server, plan)
    (file,) = site_files(rows, tmp_path, 1)
    good = msgspec.json.decode(site_mode_of(plan).from_site(fold_site(plan, [str(file)])), type=SiteSums)
    records, sums = np.frombuffer(good.records), np.frombuffer(good.sums)
    of_all = len(records)
    there = np.arange(of_all) == np.argmax(records)
    first = np.where(np.arange(of_all) % plan.groups == 0, 4.0, 0.0)
    cases: dict[str, dict[str, Any]] = {
        f"where the plan makes {of_all}": {"records": packed(records[1:])},
        "counts of records do not fit": {"records": packed(records + 0.5)},
        "do not fit its sums": {"records": packed(np.where(there, 0, records))},
        "fewer units than the plan's `smallest_cell`": {"units": [0, good.units[1]]},
        "units do not fit its records": {"units": [good.units[0], int(records.sum())]},
        "the limit": {"records": packed(np.where(there, 1e30, records))},
        "not a message of the kind site sums": {"units": [2**62, good.units[1]]},
        "fewer than 10 units": {
            "units": [4, 4],
            "records": packed(first),
            "sums": packed(first),
        },
    }
    headers = {"Content-Type": "application/octet-stream", "Foldaway-Number": new_number().hex()}
    for words, change in cases.items():
        with pytest.raises(ServerError, match=words):
            trial.site_link.ask(
                "POST", "/tallies", content=encoded(msgspec.structs.replace(good, **change)), headers=headers
            )
    trial.site_link.ask("POST", "/tallies", content=encoded(good), headers=headers)
    with pytest.raises(ServerError, match="absurdly large"):
        trial.site_link.ask(
            "POST",
            "/tallies",
            content=encoded(msgspec.structs.replace(good, sums=packed(sums * 1e9))),
            headers={**headers, "Foldaway-Number": new_number().hex()},
        )


def test_sites_and_devices_together_equal_kept_rows(server: Served, tmp_path: Path) -> None:
    kept, plan, rows = site_plan("sites", cohort=5)
    trial = Hosted(server, plan)
    files = site_files(rows, tmp_path, 4)
    for file in files[:3]:
        report = sent(plan, file, trial)
        assert (report.repeated, report.durable) == (False, True)
    report_all(devices_for(plan, pd.read_parquet(files[3]), trial.link))
    about = trial.end(deadline=0)["federated"]
    assert sum(about["enrolled"].values()) == sum(about["reported"].values()) == rows["unit"].nunique()
    assert_as_kept_rows(trial.effects(), kept, rows)
    enrolled = round_count(rows["unit"].nunique())
    who = f"Units that have reported, at sites or on devices: {enrolled:,} of {enrolled:,} enrolled"
    assert any(note.startswith(who) for note in trial.effects().notes)


@pytest.mark.once
def test_a_site_counts_once_however_often_it_runs(server: Served, tmp_path: Path) -> None:
    kept, plan, rows = site_plan("again")
    trial = Hosted(server, plan)
    files = site_files(rows, tmp_path, 2)
    for file in (files[0], files[1], files[0], files[1], files[0]):
        report = sent(plan, file, trial)
    assert report.repeated
    trial.end(deadline=0)
    assert_as_kept_rows(trial.effects(), kept, rows)


def test_units_are_counted_by_arm(tmp_path: Path) -> None:
    _, plan, rows = site_plan("counted")
    (file,) = site_files(rows, tmp_path, 1)
    expected = rows.groupby("group")["unit"].nunique().to_dict()
    assert units_of(fold_site(plan, [str(file)])) == expected


@pytest.mark.parametrize("mode", ["one-message", "sums"])
def test_fewer_units_than_a_cohort_stay_where_they_are(mode: str, tmp_path: Path) -> None:
    _, plan, rows = site_plan("small", mode=mode, cohort=10)
    few = rows[rows["unit"].isin(rows["unit"].unique()[:9])]
    few.to_parquet(tmp_path / "few.parquet")
    with pytest.raises(RecordError, match=r"nothing was sent: this site has .*in the arm"):
        fold_site(plan, [str(tmp_path / "few.parquet")], tmp_path)
    # A record without its outcome: what to do is what a plan that the coordinator has allows.
    rows.assign(**{plan.measured[0]: None}).to_parquet(tmp_path / "empty.parquet")
    with pytest.raises(RecordError, match="Correct or remove these records") as refused:
        fold_site(plan, [str(tmp_path / "empty.parquet")], tmp_path)
    assert not any(word in str(refused.value) for word in ("drop_limit", "missing ="))


def test_sites_count_who_lacks_an_outcome_and_effects_are_those_of_the_records_that_have_it(
    server: Served, tmp_path: Path
) -> None:
    """Faulty records are told before anything is sent, counted by the coordinator, and refused above the limit."""
    settings: dict[str, Any] = {
        "outcomes": [fa.Mean("y0", missing="allowed")],
        "drop_limit": 0.1,
        "expected_units": 320,
    }
    _, plan, _ = site_plan("lacking", mode="sums", covariates=0, **settings)
    chance = np.random.default_rng(3)
    who = {"unit": [f"unit-{i}" for i in range(600)], "group": chance.choice(list(plan.arms), 600)}
    rows = pd.DataFrame({**who, "y0": chance.normal(size=600)})
    trial = Hosted(server, plan)
    plan.save(tmp_path / "plan.toml")
    arm = rows["group"] == plan.control
    rows.loc[arm[arm].index[:60], "y0"] = np.nan
    wrong = rows.head(5).assign(group="nobody", unit=[f"wrong-{i}" for i in range(5)])
    for site, file in enumerate(site_files(pd.concat([rows, wrong], ignore_index=True), tmp_path, 2)):
        words = ("site", "run", tmp_path / "plan.toml", file, "--folder", tmp_path / str(site))
        env = {"FOLDAWAY_TOKEN": trial.site_token, "FOLDAWAY_SERVER": server.url}
        units = pd.read_parquet(file)["unit"]
        mine = site_mode_of(plan).from_site(fold_site(plan, [str(file)], tmp_path / str(site)))
        said = foldaway(*words, env=env).stdout
        here = sum(units.str.startswith("wrong"))
        assert f"{here} records of {len(units)} are faulty and left out" in " ".join(said.split())
        assert re.search(rf"unknown +group +unknown arm +{here}", said)
        assert "Records without an outcome" in said
        assert msgspec.json.decode(mine, type=SiteSums).dropped == {"": here}
        assert max(map(len, said.splitlines())) <= 80
    with pytest.raises(Exception, match="no device can join"):
        trial.link.ask("POST", "/enrolments", encoded(Enrolment(new_number(), plan.control)), until=0.0)
    trial.end(deadline=0)
    effects = trial.effects()
    have = rows.dropna().groupby("group")["y0"]
    treated = next(each for each in plan.arms if each != plan.control)
    assert effects[0].estimate == pytest.approx(have.mean()[treated] - have.mean()[plan.control], rel=1e-9)
    assert effects.dropped == {"": 5}
    (loss, *_) = effects.losses
    assert loss.lost == {plan.control: 60, treated: 0}
    assert known(loss.p_value) < 1e-4
    many_wrong = pd.concat([rows.head(40), *[wrong] * 2], ignore_index=True)
    many_wrong.to_parquet(tmp_path / "wrong.parquet")
    with pytest.raises(RecordError, match="nothing was sent: more records were dropped"):
        fold_site(plan, [str(tmp_path / "wrong.parquet")], tmp_path / "none")
    few = rows[~arm | (np.arange(len(rows)) < arm[arm].index[61])]
    few.to_parquet(tmp_path / "few.parquet")
    with pytest.raises(RecordError, match=r"only 1 unit of the arm .* has a value of y0"):
        fold_site(plan, [str(tmp_path / "few.parquet")], tmp_path / "none")


def test_sites_send_the_baseline_and_it_is_that_of_all_rows(server: Served, tmp_path: Path) -> None:
    """Of a trait that fewer than `smallest_cell` units of an arm have at a site, the site sends nothing."""
    rng, n = np.random.default_rng(3), 600
    rows = pd.DataFrame({"unit": [f"u{i}" for i in range(n)], "group": rng.choice(["control", "new"], n)})
    rows["y"], rows["age"] = rng.normal(size=n), rng.normal(1e5, 12, n)
    rows["sex"], rows["rare"] = rng.choice(["f", "m"], n), np.where(np.arange(n) < 9, 1.0, np.nan)
    rows.loc[::7, "age"] = np.nan
    settings: dict[str, Any] = {"privacy": {"cohort": 10, "smallest_cell": 5}, "flow": {"assessed": 700}}
    levels = {"column": "sex", "levels": ["f", "m"]}
    plan = fa.Plan(
        name="baselines",
        arm="group",
        arms={"control": 0.5, "new": 0.5},
        outcomes=["y"],
        unit="unit",
        federated="sums",
        baseline=["age", levels, "rare"],
        **settings,
    )
    trial = Hosted(server, plan)

    def send(message: SiteSums) -> None:
        headers = {"Content-Type": "application/octet-stream", "Foldaway-Number": new_number().hex()}
        trial.site_link.ask("POST", "/tallies", content=encoded(message), headers=headers)

    for file in site_files(rows, tmp_path, 3):
        site = fold_site(plan, [str(file)], f"{file}-folder")
        good = msgspec.json.decode(site_mode_of(plan).from_site(site), type=SiteSums)
        assert isinstance(good.baseline, bytes)
        numbers = np.frombuffer(good.baseline).reshape(2, 4, 4)
        assert not numbers[:, 3].any()
        for place, wrong in ((0, 1e6), (0, 0.5), (0, 2.0), (3, -1.0), (5, 0.7)):
            changed = numbers.copy().reshape(2, -1)
            changed[0, place] = wrong
            altered: SiteSums = msgspec.structs.replace(good, baseline=packed(changed))
            with pytest.raises(ServerError, match="baseline"):
                send(altered)
        with pytest.raises(ServerError, match="if, and only if"):
            send(msgspec.structs.replace(good, baseline=msgspec.UNSET))
        send_site(site, [str(file)], trial.site_link, f"{file}-folder")
    told = trial.effects()
    trial.end(deadline=0)
    effects = trial.effects()
    assert effects.flow is not None
    assert (effects.flow.counted, effects.flow.exact, effects.flow.randomised) == ("units", True, n)
    found = {(row.column, row.level, row.arm): row for row in effects.baseline}
    assert told.baseline == effects.baseline
    for arm in plan.arms:
        mine, age = rows[rows["group"] == arm], found["age", "", arm]
        assert age.mean == pytest.approx(mine["age"].mean(), rel=1e-12)
        assert age.std_dev == pytest.approx(mine["age"].std(), rel=1e-9)
        assert (age.n, age.missing) == (mine["age"].notna().sum(), mine["age"].isna().sum())
        assert found["sex", "f", arm].count == (mine["sex"] == "f").sum()
        assert found["rare", "", arm].n == 0


def test_there_are_no_effects_and_no_end_before_the_least_number_of_sites_has_reported(
    server: Served, tmp_path: Path
) -> None:
    """Two tokens with one label are one site; status and effects say which sites have reported, with rounded units."""
    _, plan, rows = site_plan(
        "three-sites", mode="sums", covariates=0, cohort=2, federated=fa.Federated("sums", sites=3)
    )
    trial = Hosted(server, plan)
    units: dict[str, int] = {}
    for place, file in enumerate(site_files(rows, tmp_path, 4)):
        label = "Aarhus" if place == 3 else f"Clinic {place % 2}"
        if place == 3:
            early = server.ask("GET", f"{trial.path}/effects")
            assert "reports of 3 sites (the plan's `federated.sites`), and 2 sites reported" in early.text
            refused = server.ask("POST", f"{trial.path}/end", json={"deadline": 0})
            assert refused.status_code == 409
            assert "3 sites" in refused.text
        link, folder = HttpLink(trial.address, trial.site(label=label)), f"{file}-folder"
        sent_units = send_site(fold_site(plan, [str(file)], folder), [str(file)], link, folder).units
        units[label] = units.get(label, 0) + sum(sent_units.values())
    assert trial.status()["sites"] == units
    assert list(units) == ["Clinic 0", "Clinic 1", "Aarhus"]
    status = foldaway("trial", "status", plan.name, "--server", server.url, env={"FOLDAWAY_TOKEN": server.admin}).stdout
    assert re.search(rf"^Clinic 0 +{units['Clinic 0']}$", status, re.MULTILINE)
    trial.end(deadline=0)
    said = ", ".join(f"{site} {n} units" for site, n in units.items())
    assert f"Sites that have reported: {said}." in trial.effects().notes


def test_sites_with_other_levels_and_other_shares_are_compared_within(server: Served, tmp_path: Path) -> None:
    """Each site is a stratum, with probabilities of its own: the blocked effect and its jackknife, from kept rows."""
    shares = {"north": 0.3, "south": 0.5, "west": 0.7}
    names = list(site_plan("any")[1].arms)
    strata = fa.Strata("site", {site: {names[0]: 1 - share, names[1]: share} for site, share in shares.items()})
    arms = dict.fromkeys(names, 0.5)
    settings: dict[str, Any] = {"arms": arms, "strata": strata, "expected_units": 900, "smallest_cell": 4}
    _, plan, _ = site_plan("blocked", mode="sums", covariates=0, **settings)
    trial = Hosted(server, plan)
    chance, parts = np.random.default_rng(4), []
    for place, (site, share) in enumerate(shares.items()):
        n = 240 + 60 * place
        treated = chance.random(n) < share
        y = 10.0 * place + treated + chance.normal(size=n)
        ids = [f"{site}-{i}" for i in range(n)]
        frame = pd.DataFrame({"unit": ids, "group": np.where(treated, names[1], names[0]), "site": site, "y0": y})
        file = tmp_path / f"{site}.parquet"
        frame.to_parquet(file)
        folded = fold_site(plan, [str(file)], f"{file}-folder")
        send_site(folded, [str(file)], trial.site_link, f"{file}-folder")
        places = site_groups(folded, plan.groups_of_parts(len(shares)))
        keys = hashes(pa.array(ids), n, Secret(folded.key).of_groups())
        parts.append(frame.assign(place=[places[int(key) % len(places)] for key in keys]))
    with pytest.raises(Exception, match="no device can join"):
        trial.link.ask("POST", "/enrolments", encoded(Enrolment(new_number(), plan.control)), until=0.0)
    trial.end(deadline=0)
    rows = pd.concat(parts)
    (row,) = trial.effects()
    means = rows.groupby(["site", "group"])["y0"].mean().unstack()
    size = rows["site"].value_counts(normalize=True)
    assert row.estimate == pytest.approx(((means[names[1]] - means[names[0]]) * size).sum(), rel=1e-10)
    held = by_stratum_of(rows, names, "y0", plan.groups_of_parts(len(shares)))
    covariance = blocked_by_group(held).covariance
    assert row.std_error == pytest.approx(np.sqrt(covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1]), rel=1e-9)
    assert row.se_kind == "jackknife"
    assert known(row.ci_lower) < 1 < known(row.ci_upper)


def by_stratum_of(rows: pd.DataFrame, arms: list[str], outcome: str, groups: int) -> Cells:
    """Cells by stratum, group and arm of kept rows whose groups are known."""
    index = pd.MultiIndex.from_product([rows["site"].unique(), range(groups), arms])
    cells = rows.groupby(["site", "place", "group"])[outcome].agg(["size", "sum"]).reindex(index, fill_value=0)
    shape = rows["site"].nunique(), groups, len(arms)
    weight, value = (cells[name].to_numpy(float).reshape(shape) for name in ("size", "sum"))
    return Cells(weight, value)


def test_a_plan_for_devices_alone_is_refused(tmp_path: Path) -> None:
    plan, _ = make_trial(32, n=100, units=True)
    with pytest.raises(PlanError, match="not for sites"):
        fold_site(federated(plan, "one-message"), ["x.parquet"])
    with pytest.raises(PlanError, match="not for sites"):
        fold_site(plan, ["x.parquet"])


def test_the_number_is_random_and_comes_back_for_the_same_records(tmp_path: Path) -> None:
    _, plan, _ = site_plan("numbers")
    for name, content in {"a": b"1", "b": b"2"}.items():
        (tmp_path / f"{name}.csv").write_bytes(content)
    a, b = (str(tmp_path / f"{name}.csv") for name in "ab")
    first, made = SiteMark.of(fa.Trial(plan), [a, b], tmp_path / "one")
    again, made_again = SiteMark.of(fa.Trial(plan), [b, a], tmp_path / "one")
    assert (first.number, made, made_again) == (again.number, True, False)
    # Nobody can work it out from the records: elsewhere the same files have another.
    assert SiteMark.of(fa.Trial(plan), [a, b], tmp_path / "two")[0].number != first.number
    assert (tmp_path / "one" / "numbers.site").stat().st_mode & 0o777 == 0o600
    with pytest.raises(StateError, match="of other records"):
        SiteMark.of(fa.Trial(plan), [a], tmp_path / "one")
    with pytest.raises(StateError, match="under another plan"):
        SiteMark.of(fa.Trial(site_plan("numbers", cohort=11)[1]), [a, b], tmp_path / "one")
    (tmp_path / "one" / "numbers.site").write_bytes(b"{")
    with pytest.raises(StateError, match="damaged"):
        SiteMark.of(fa.Trial(plan), [a, b], tmp_path / "one")
    with pytest.raises(SourceError, match="standard input"):
        SiteMark.of(fa.Trial(plan), ["-"], tmp_path / "three")


def test_a_changed_file_is_refused_and_not_counted_as_another_site(server: Served, tmp_path: Path) -> None:
    _, plan, rows = site_plan("changed")
    trial = Hosted(server, plan)
    (file,) = site_files(rows, tmp_path, 1)
    sent(plan, file, trial)
    before = trial.status()["enrolled"]
    rows.head(len(rows) - 1).to_parquet(file)
    with pytest.raises(StateError, match="nothing was sent"):
        sent(plan, file, trial)
    assert trial.status()["enrolled"] == before


def test_no_site_joins_once_the_trial_is_ending_and_its_number_is_free_again(server: Served, tmp_path: Path) -> None:
    _, plan, rows = site_plan("too-late")
    trial = Hosted(server, plan)
    (file,) = site_files(rows, tmp_path, 1)
    trial.end(deadline=600, without_effects=True)
    with pytest.raises(ServerError) as refused:
        sent(plan, file, trial)
    assert refused.value.status == 410
    assert sum(trial.status()["enrolled"].values()) == 0
    assert not (tmp_path / "site-0.parquet-folder" / "too-late.site").exists()


def test_a_site_that_was_counted_is_acknowledged_while_the_trial_is_ending(server: Served, tmp_path: Path) -> None:
    _, plan, rows = site_plan("ending")
    trial = Hosted(server, plan)
    (file,) = site_files(rows, tmp_path, 1)
    sent(plan, file, trial)
    trial.end(deadline=600, share=1.0)
    assert sent(plan, file, trial).repeated


def test_a_site_sends_nothing_to_a_coordinator_with_another_plan(server: Served, tmp_path: Path) -> None:
    _, plan, rows = site_plan("other-plan")
    trial = Hosted(server, site_plan("other-plan", cohort=11)[1])
    (file,) = site_files(rows, tmp_path, 1)
    with pytest.raises(ServerError, match=r"under another plan.*new trial"):
        sent(plan, file, trial)
    assert sum(trial.status()["enrolled"].values()) == 0
    assert not (tmp_path / "site-0.parquet-folder").exists()  # so that it may be sent when the plans agree


@pytest.mark.parametrize("few", [1, 9])
def test_no_arm_with_fewer_units_than_a_cohort_leaves_the_site(few: int, server: Served, tmp_path: Path) -> None:
    """Each arm has a factor of its own: that of one unit is the unit."""
    _, plan, rows = site_plan(f"few-{few}", cohort=10)
    small = next(iter(plan.arms))
    units = rows[rows["group"] == small]["unit"].unique()
    mine = rows[~rows["unit"].isin(units[few:])]
    mine.to_parquet(tmp_path / "few.parquet")
    with pytest.raises(RecordError, match=f"{few} units? in the arm {small}"):
        fold_site(plan, [str(tmp_path / "few.parquet")])
    # The coordinator takes nobody's word for it.
    trial = Hosted(server, plan)
    state = fold_files([str(tmp_path / "few.parquet")], plan).dumps()
    headers = {"Content-Type": "application/octet-stream", "Foldaway-Number": new_number().hex()}
    with pytest.raises(ServerError, match="say too much"):
        trial.site_link.ask("POST", "/tallies", content=state, headers=headers)
    # An arm without units says nothing.
    rows[rows["group"] != small].to_parquet(tmp_path / "others.parquet")
    assert units_of(fold_site(plan, [str(tmp_path / "others.parquet")]))[small] == 0


@pytest.mark.parametrize("mode", ["one-message", "sums"])
def test_the_command_sends_and_says_what_it_sent(mode: str, server: Served, tmp_path: Path) -> None:
    kept, plan, rows = site_plan(f"command-{mode}", mode=mode, covariates=0 if mode == "sums" else 1)
    trial = Hosted(server, plan)
    files = site_files(rows, tmp_path, 2)
    plan.save(tmp_path / "plan.toml")

    def run(*words: object, home: str = "one", code: int = 0) -> subprocess.CompletedProcess[str]:
        given = ("site", "run", tmp_path / "plan.toml", *words, "--folder", tmp_path / home)
        return foldaway(*given, code=code, env={"FOLDAWAY_TOKEN": trial.site_token, "FOLDAWAY_SERVER": server.url})

    first = run(files[0])
    assert "records stay here" in first.stdout
    assert "safe there" in first.stdout
    assert f"command-{mode}.site in {tmp_path / 'one'}" in " ".join(first.stdout.split())
    assert max(map(len, first.stdout.splitlines())) <= 80
    second = run(files[1], "--json", home="two")
    told = msgspec.json.decode(second.stdout)
    assert told["units"] == pd.read_parquet(files[1]).groupby("group")["unit"].nunique().to_dict()
    repeated = run(files[0]).stdout
    assert "did not count them again" in " ".join(repeated.split())
    assert "bytes of tallies" not in repeated
    assert max(map(len, repeated.splitlines())) <= 80
    assert "--folder" in run(files[1], code=1).stderr
    refused = run(tmp_path / "nowhere.parquet", code=1)
    assert refused.stderr.startswith("error: ")
    # One more joins and never reports: the end waits for it, and says so even where no bar is drawn.
    trial.link.ask("POST", "/enrolments", encoded(Enrolment(new_number(), plan.control)), until=0.0)
    env = {"FOLDAWAY_TOKEN": server.admin, "FOLDAWAY_SERVER": server.url}
    ended = foldaway("end", plan.name, "--yes", "--deadline", "0.5", "--share", "1", env=env)
    assert re.search(r"Waiting until [-0-9]+ [:+0-9]+, or until 100 % of the devices have reported\.", ended.stderr)
    assert "these effects are final" in ended.stdout
    assert_as_kept_rows(trial.effects(), kept, rows)


@pytest.mark.parametrize("mode", ["one-message", "sums"])
def test_no_record_of_a_site_is_in_what_it_sends(mode: str, tmp_path: Path) -> None:
    _, plan, rows = site_plan("values", mode=mode, expected_units=320)
    (file,) = site_files(rows, tmp_path, 1)
    trial = fold_site(plan, [str(file)], tmp_path)
    state = site_mode_of(plan).from_site(trial)
    values = rows[["y0", "x0"]].to_numpy().ravel()
    assert not any(np.float64(value).tobytes() in state for value in values)
    assert not any(unit.encode() in state for unit in rows["unit"])
    if mode == "sums":
        assert trial.key not in state
        assert Secret(trial.key).mark() not in state


def test_no_unit_leaves_its_site_alone_in_a_group(tmp_path: Path) -> None:
    """Groups are added until each has a smallest cell of every arm that it has units of; sites fill different ones."""
    _, plan, rows = site_plan("alone", mode="sums", smallest_cell=4)
    (file,) = site_files(rows, tmp_path, 1)
    first_groups = set()
    for site in range(8):
        trial = fold_site(plan, [str(file)], tmp_path / str(site))
        units = rows.drop_duplicates("unit")
        units = units.assign(place=groups_at(trial, units["unit"]))
        cells = units.groupby(["group", "place"]).size()
        assert cells.min() >= 4
        places = site_groups(trial, plan.groups)
        assert 5 <= len(set(places)) < plan.groups == 128
        sent_of = msgspec.json.decode(site_mode_of(plan).from_site(trial), type=SiteSums)
        records = np.frombuffer(sent_of.records, "<f8").reshape(len(plan.arms), plan.groups)
        assert {(arm, place) for arm, place in zip(*np.nonzero(records), strict=True)} == {
            (list(plan.arms).index(arm), place) for arm, place in cells.index
        }
        assert records.sum() == len(rows)
        first_groups.add(int(places[0]))
    assert len(first_groups) > 1
