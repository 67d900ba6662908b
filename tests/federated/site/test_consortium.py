"""Three hospitals with repeated visits and missing outcomes, of which one randomises 2:1: from records to effects.

`tests/data/sites/make.R` made the rows, and what R's estimatr says of all of them in one place.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from functools import partialmethod
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf

import foldaway as fa
from commands import foldaway
from devices import Hosted
from foldaway.effects import Effect
from foldaway.effects.door import OWN, TOLD, Door
from foldaway.errors import MessageError, PlanError, ServerError, StateError
from foldaway.federated.link import HttpLink
from foldaway.federated.messages import SiteSums, new_number
from foldaway.federated.modes import site_mode_of
from foldaway.federated.modes.share import Devices, ServerShare
from foldaway.federated.modes.site_exits import told_exits
from foldaway.federated.site.site import STATE, SiteMark, fold_site, send_site
from foldaway.inference.random_effects import random_effects
from foldaway.report.page.page import effects_page
from served import Served
from servers import Nursery
from trials import known

DATA = Path(__file__).parents[2] / "data" / "sites"
SITES = ["Aarhus", "Bergen", "Uppsala"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, served_from: Nursery) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("coordinator"), served_from, unrounded=True) as found:
        yield found


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    return pd.read_csv(DATA / "consortium.csv")


def truths() -> dict[str, tuple[float, float]]:
    with (DATA / "consortium_truths.csv").open() as file:
        return {row["name"]: (float(row["estimate"]), float(row["std_error"])) for row in csv.DictReader(file)}


def consortium(name: str, **others: Any) -> fa.Plan:
    settings: dict[str, Any] = {
        "outcomes": [fa.Mean("pain", missing="allowed")],
        "federated": fa.Federated("sums", sites=3, probabilities={"Bergen": {"placebo": 1 / 3, "drug": 2 / 3}}),
        "expected_units": 780,
        "privacy": fa.Privacy(cohort=20, smallest_cell=3),
    }
    arms = {"placebo": 0.5, "drug": 0.5}
    return fa.Plan(name=name, arm="arm", arms=arms, unit="patient", **settings | others)


def run_sites(server: Served, trial: Hosted, rows: pd.DataFrame, folder: Path) -> list[str]:
    """A process for each hospital, which reads the file of its own records; what each says."""
    trial.plan.save(folder / "plan.toml")
    said = []
    for site in SITES:
        mine = rows[rows["site"] == site].drop(columns="site")
        mine.to_csv(folder / f"{site}.csv", index=False)
        env = {"FOLDAWAY_TOKEN": trial.site(label=site), "FOLDAWAY_SERVER": server.url}
        words = ("site", "run", folder / "plan.toml", folder / f"{site}.csv", "--folder", folder / site)
        said.append(foldaway(*words, env=env).stdout)
    return said


def test_effects_within_sites_are_estimatrs_on_all_rows(server: Served, rows: pd.DataFrame, tmp_path: Path) -> None:
    """No record names its site; what is missing is told; the shares of 2:1 are no fault of the allocation."""
    rows = rows.assign(sex=np.where(rows["patient"].str[1:].astype(int) % 3 == 0, "f", "m"))
    trial = Hosted(server, consortium("within", segments=[{"column": "sex", "levels": ["f", "m"]}]))
    for said, site in zip(run_sites(server, trial, rows, tmp_path), SITES, strict=True):
        absent = rows[rows["site"] == site].groupby("arm")["pain"].apply(lambda pain: pain.isna().sum())
        assert all(f"{arm} {n}" in " ".join(said.split()) for arm, n in absent.items())
    trial.end(deadline=0)
    effects, truth = trial.effects(), truths()
    (row,) = effects
    assert row.estimate is not None
    assert row.estimate == pytest.approx(truth["blocks"][0], rel=1e-9)
    assert abs(row.estimate - truth["pooled"][0]) > 0.3
    spread = 1 / np.sqrt(2 * known(row.df))
    assert row.std_error == pytest.approx(truth["blocks"][1], rel=3 * spread)
    assert effects.sample_ratio is not None
    assert known(effects.sample_ratio.p_value) > 0.001
    by_site, by_sex = effects.segments
    for each in by_sex.effects:
        of_sex = rows[rows["sex"] == each.segment].dropna(subset="pain")
        means = of_sex.groupby(["site", "arm"])["pain"].mean().unstack()
        within = (means["drug"] - means["placebo"]) * of_sex["site"].value_counts(normalize=True)
        assert each.n == len(of_sex)
        assert each.estimate == pytest.approx(within.sum(), rel=1e-9)
    assert [each.segment for each in by_site.effects] == ["Aarhus", "Uppsala", "Bergen"]  # the largest first
    for each in by_site.effects:
        own = truth[str(each.segment)]
        assert each.estimate == pytest.approx(own[0], rel=1e-9)
        assert each.std_error == pytest.approx(own[1], rel=3 / np.sqrt(2 * known(each.df)))
    y, error = np.array([[each.estimate, each.std_error] for each in by_site.effects], dtype=float).T
    assert by_site.random == random_effects(y, error**2)
    assert "sites like these" in effects.to_string(all=True)
    loss = next(each for each in effects.losses if each.outcome)
    assert sum(loss.lost.values()) == rows["pain"].isna().sum()


def test_pooled_regression_with_sites_is_statsmodels(server: Served, rows: pd.DataFrame, tmp_path: Path) -> None:
    """Moments of sites, where the site is a covariate: an effect for each site, and errors clustered by patient."""
    complete = rows.dropna()
    sites = [{"column": "hospital", "levels": SITES}]
    shape: dict[str, Any] = {"outcomes": ["pain"], "covariates": sites, "records_per_unit": "together"}
    trial = Hosted(server, consortium("pooled", **shape, federated=fa.Federated("one-message", sites=3)))
    run_sites(server, trial, complete.assign(hospital=complete["site"]), tmp_path)
    trial.end(deadline=0)
    fit = smf.ols("pain ~ C(arm, Treatment('placebo')) + C(site)", complete).fit(
        cov_type="cluster", cov_kwds={"groups": pd.factorize(complete["patient"])[0]}
    )
    row = next(each for each in trial.effects() if (each.estimator, each.se_kind) == ("regression", "CR1"))
    assert row.estimate == pytest.approx(fit.params.iloc[1], rel=1e-9)
    assert row.std_error == pytest.approx(fit.bse.iloc[1], rel=1e-9)
    assert row.estimate == pytest.approx(truths()["fixed_effects"][0], rel=1e-9)


@pytest.mark.once
def test_a_site_that_sends_again_is_counted_as_it_is_now(
    server: Served, rows: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is lost or restarted: once, with all of its records, and only where enough have come since."""
    plan = consortium("growing", federated=fa.Federated("sums"))
    trial = Hosted(server, plan)
    mine = rows[rows["site"] == "Aarhus"].drop(columns="site")
    patients = mine["patient"].unique()
    path, folder = tmp_path / "aarhus.csv", tmp_path / "home"
    token = trial.site(label="Aarhus")
    link = HttpLink(trial.address, token)

    def send(first: int, *, replace: bool = True) -> bool:
        mine[mine["patient"].isin(patients[:first])].to_csv(path, index=False)
        files = [str(path)]
        return send_site(fold_site(plan, files, folder), files, link, folder, replace=replace).repeated

    def lost(self: HttpLink, verb: str, where: str, **others: Any) -> bytes:
        original(self, verb, where, **others)
        raise ServerError("the connection broke.")

    original = HttpLink.ask
    assert not send(120)
    with pytest.raises(StateError, match="--replace"):
        send(220, replace=False)
    with pytest.raises(MessageError, match="more in the arm"):
        send(130)
    link.fingerprint()
    monkeypatch.setattr(HttpLink, "ask", partialmethod(lost))
    with pytest.raises(ServerError, match="broke"):
        send(220)
    monkeypatch.undo()
    with pytest.raises(StateError, match="has not confirmed"):
        send(320)
    server.kill()
    server.start()
    link = HttpLink(server.url + trial.path, token)
    assert send(220)  # the coordinator has had it
    assert trial_units(server, trial) == {"Aarhus": 220}
    assert not send(320)
    assert send(320)
    state = site_mode_of(plan).from_site(fold_site(plan, [str(path)], folder))
    key = msgspec.json.decode((folder / "growing.site").read_bytes(), type=SiteMark).site.hex()
    for sending, why in (
        ("2", "later tallies"),
        ("9", "0 units more in the arm"),
    ):  # whatever a site's own program does
        headers = {"Foldaway-Site": key, "Foldaway-Sending": sending, "Foldaway-Number": new_number().hex()}
        with pytest.raises(ServerError, match=why):
            link.ask("POST", "/tallies", content=state, headers={"Content-Type": STATE, **headers})
    assert trial_units(server, trial) == {"Aarhus": 320}
    trial.end(deadline=0)
    (row,) = trial.effects()
    assert row.estimate == pytest.approx(truths()["Aarhus"][0], rel=1e-9)
    assert row.n == mine["pain"].notna().sum()


def trial_units(server: Served, trial: Hosted) -> dict[str, int]:
    found: dict[str, int] = server.ask("GET", trial.path).json()["federated"]["sites"]
    return found


def together(plan: fa.Plan, rows: pd.DataFrame, folder: Path, door: Door = OWN) -> fa.Effects:
    """The effects of what three sites send, without a server."""
    mode, share = site_mode_of(plan), ServerShare(fa.Trial(plan))
    folder.mkdir(exist_ok=True)
    for site in SITES:
        path = folder / f"{site}.parquet"
        rows[rows["site"] == site].to_parquet(path)
        sent = mode.from_site(fold_site(plan, [str(path)], folder / site))
        share = share.merge(mode.site(share, sent).sent_by(site * 3, site))
    share = ServerShare.of(plan, share.dumps())
    units = dict(zip(plan.arms, share.devices, strict=True))
    return mode.results(share, Devices(units, units), None, door)[0]


def test_ratios_and_adjusted_effects_are_within_sites_and_a_small_site_may_join_its_neighbour(
    rows: pd.DataFrame, tmp_path: Path
) -> None:
    complete = rows.dropna().assign(pills=lambda frame: 1.0 + frame.index % 3)
    level = complete.groupby("patient")["pain"].transform("mean")
    complete = complete.assign(age=50 + 5 * (level - complete.groupby("site")["pain"].transform("mean")).round(1))
    shares = {"placebo": 1 / 3, "drug": 2 / 3}
    plan = consortium(
        "joined",
        outcomes=[fa.Mean("pain"), fa.Ratio("pain", "pills", name="per pill")],
        covariates=["age"],
        coefficients={"center": {"age": 50}, "slopes": {"pain": {"age": 0.15}, "pills": {"age": 0.0}}},
        federated=fa.Federated("sums", joined={"Aarhus": "Uppsala"}, probabilities={"Bergen": shares}),
    )
    effects = together(plan, complete, tmp_path)
    strata = complete.assign(site=complete["site"].replace("Aarhus", "Uppsala"))
    size = strata["site"].value_counts(normalize=True)

    def level_of(column: str) -> pd.Series:
        means = strata.groupby(["arm", "site"])[column].mean().unstack()
        return (means * size).sum(axis=1)

    found = {(row.outcome, row.estimator): row for row in effects}
    pain, ratio = level_of("pain"), level_of("pain") / level_of("pills")
    plain, adjusted = found["pain", "difference"], found["pain", "adjusted"]
    assert plain.estimate == pytest.approx(pain["drug"] - pain["placebo"], rel=1e-9)
    assert found["per pill", "difference"].estimate == pytest.approx(ratio["drug"] - ratio["placebo"], rel=1e-9)
    assert known(adjusted.std_error) < 0.8 * known(plain.std_error)
    assert known(found["per pill", "adjusted"].std_error) < known(found["per pill", "difference"].std_error)
    assert {each.segment for each in effects.segments[0].effects} == {"Bergen", "Uppsala"}
    column: Any = {"column": "site", "probabilities": dict.fromkeys(SITES, shares)}
    named = msgspec.structs.replace(plan, strata=column, federated="sums")
    plain, adjusted, *_ = together(named, complete, tmp_path / "named")
    assert plain.estimate == pytest.approx(truths()["blocks"][0], rel=1e-9)
    assert known(adjusted.std_error) < 0.8 * known(plain.std_error)
    told = effects_page(effects).html
    assert "Mean over sites" in told
    assert "Within sites" in told


def exits(seed: int, n: int = 900) -> pd.DataFrame:
    """Patients of three hospitals, of which one randomises 2:1 and has the longest times."""
    chance = np.random.default_rng(seed)
    site = chance.choice(3, n)
    drug = chance.random(n) < np.where(site == 1, 2 / 3, 1 / 2)
    time = np.ceil(chance.exponential(np.where(site == 1, 90, 30) * np.where(drug, 1.3, 1.0)))
    followed = np.where(chance.random(n) < 0.2, np.ceil(60 * chance.random(n)), 60)
    names = {"site": np.array(SITES)[site], "arm": np.where(drug, "drug", "placebo")}
    ids = [f"p{i}" for i in range(n)]
    event = time <= followed
    return pd.DataFrame({"patient": ids, **names, "days": np.minimum(time, followed), "relapsed": event.astype(int)})


def chance_of_groups(*rows: Effect) -> float:
    """By how much two errors may differ because units fell into other groups: as often as 4 standard errors."""
    return float(4 * np.sqrt(sum(1 / (2 * known(row.df)) for row in rows)))


def test_survival_is_that_of_all_exits_where_enough_leave_at_each_time(server: Served, tmp_path: Path) -> None:
    """With few bins nothing has to be moved; records weigh as the hospital's shares ask for."""
    survival = fa.Survival("days", "relapsed", until=60, bins=4)
    rows, outcomes = exits(1), [survival, fa.Share("relapsed", equals=1, name="relapse")]
    plan = consortium("exits", outcomes=outcomes, privacy=fa.Privacy(cohort=20, smallest_cell=4))
    trial = Hosted(server, plan)
    run_sites(server, trial, rows, tmp_path)
    trial.end(deadline=0)
    effects = trial.effects()
    shares = {site: {"placebo": 0.5, "drug": 0.5} for site in SITES} | {"Bergen": {"placebo": 1 / 3, "drug": 2 / 3}}
    strata = fa.Strata("site", shares)
    kept = fa.Trial(fa.Plan(name="kept", arm="arm", arms=plan.arms, unit="patient", outcomes=outcomes, strata=strata))
    kept.fold(rows)
    for ours, theirs in zip(effects, kept.effects(), strict=True):
        assert ours.estimate == pytest.approx(theirs.estimate, rel=1e-9)
        assert ours.std_error == pytest.approx(theirs.std_error, rel=chance_of_groups(ours, theirs))
    (curves,), (whole,) = effects.curves, kept.effects().curves
    assert [curve.survival for curve in curves.curves] == [pytest.approx(curve.survival) for curve in whole.curves]
    assert curves.hazards[0].hazard_ratio == pytest.approx(known(whole.hazards[0].hazard_ratio), rel=1e-9)
    assert curves.hazards[0].said.startswith("stratified log-rank test")
    site = effects.segments[0]
    assert site.outcome == survival.default_name
    for each in site.effects:
        alone = fa.Trial(fa.Plan(name="one", arm="arm", arms=plan.arms, unit="patient", outcomes=outcomes))
        alone.fold(rows[rows["site"] == each.segment])
        assert each.estimate == pytest.approx(alone.effects()[0].estimate, rel=1e-9)


def test_an_outcome_at_a_site_is_told_where_enough_carry_it_even_in_few_groups(tmp_path: Path) -> None:
    """Where each patient has one record, records with the event are patients; with more, groups are counted."""
    rows = exits(4, 660)
    outcomes = [fa.Survival("days", "relapsed", until=60, bins=4)]
    plan = consortium("told", outcomes=outcomes, federated="sums", privacy=fa.Privacy(cohort=20, smallest_cell=10))
    by_site = together(plan, rows, tmp_path / "one", TOLD).segments[0]
    assert [each.why for each in by_site.effects if each.segment != "Bergen"] == [None, None]
    twice = pd.concat([rows, rows])
    by_site = together(plan, twice, tmp_path / "two", TOLD).segments[0]
    assert {str(each.why)[:13] for each in by_site.effects} == {"Fewer than 10"}


def test_survival_within_strata_of_a_column_is_that_of_all_exits(tmp_path: Path) -> None:
    """Each hospital has patients of two wards, in which the arms have other probabilities."""
    rows = exits(2, 1_500)
    chance = np.random.default_rng(3)
    rows["ward"] = np.where(chance.random(len(rows)) < 0.4, "north", "south")
    drug = chance.random(len(rows)) < np.where(rows["ward"] == "north", 2 / 3, 1 / 2)
    rows["arm"] = np.where(drug, "drug", "placebo")
    shares = {"north": {"placebo": 1 / 3, "drug": 2 / 3}, "south": {"placebo": 0.5, "drug": 0.5}}
    outcomes = [fa.Survival("days", "relapsed", until=60, bins=4)]
    plan = consortium(
        "wards", outcomes=outcomes, federated="sums", strata=fa.Strata("ward", shares), privacy={"smallest_cell": 4}
    )
    effects = together(plan, rows, tmp_path)
    kept = fa.Trial(msgspec.structs.replace(plan, federated=None))
    kept.fold(rows)
    (ours,), (theirs,) = effects, kept.effects()
    assert [ours.estimate, ours.level] == pytest.approx([known(theirs.estimate), known(theirs.level)], rel=1e-9)
    assert ours.std_error == pytest.approx(theirs.std_error, rel=chance_of_groups(ours, theirs))
    (curves,), (whole,) = effects.curves, kept.effects().curves
    assert [curve.survival for curve in curves.curves] == [pytest.approx(curve.survival) for curve in whole.curves]
    assert curves.hazards[0].hazard_ratio == pytest.approx(known(whole.hazards[0].hazard_ratio), rel=1e-9)


@pytest.mark.parametrize("least", [1, 5, 30])
def test_between_two_times_that_a_site_tells_enough_of_every_arm_have_left(least: int) -> None:
    """And enough that had not left when it sent before; nobody's exit is lost, and none is told too early."""
    chance = np.random.default_rng(least)
    before = told_exits(chance.poisson(0.7, (2, 8, 122)).astype(float), np.zeros((0, 2, 122)), least)
    grown = before + chance.poisson(0.5, before.shape)
    told = told_exits(grown, before.sum(axis=1)[None], least)
    assert told.sum(axis=-1).tolist() == grown.sum(axis=-1).tolist()

    def by_time(counts: Any) -> Any:
        return counts.sum(axis=1).reshape(2, -1, 2).sum(axis=-1)

    then, now = by_time(before), by_time(told)
    both = np.flatnonzero(then.any(axis=0) & now.any(axis=0))
    for counts, ends in ((now, np.flatnonzero(now.any(axis=0))), (now - then, both)):
        left = np.diff(np.cumsum(counts, axis=1)[:, ends], axis=1, prepend=0)
        assert (left >= least).all()
    assert (np.cumsum(now, axis=1) <= np.cumsum(by_time(grown), axis=1)).all()
    assert least > 1 or (before == told_exits(before, np.zeros((0, 2, 122)), 1)).all()


def test_of_any_two_messages_of_a_site_the_difference_is_of_enough_exits() -> None:
    """Also of two that did not follow each other, and where patients leave later than it once seemed."""
    least, chance = 10, np.random.default_rng(8)
    for _ in range(50):
        entered = np.arange(240) // 2
        time, arm = chance.exponential(20, 240).astype(int), np.arange(240) % 2
        sent: list[Any] = []
        for today in range(20, 121, 20):
            here = entered <= today
            exit = np.minimum(time, np.minimum(today - entered, 60))[here]
            counts = np.zeros((2, 61, 2))
            np.add.at(counts, (arm[here], exit, (time[here] <= exit).astype(int)), 1.0)
            before = np.stack(sent) if sent else np.zeros((0, 2, 122))
            sent.append(told_exits(counts.reshape(2, 1, 122), before, least)[:, 0])
        by_time = np.stack(sent).reshape(len(sent), 2, 61, 2).sum(axis=-1)
        for now, then in ((by_time[i], by_time[j]) for i in range(len(sent)) for j in range(i)):
            told = then.any(axis=0)
            told |= np.cumsum(told) == told.sum()  # once all have left, how many is known at any time
            both = np.flatnonzero(now.any(axis=0) & told)
            left = np.diff(np.cumsum(now - then, axis=1)[:, both], axis=1, prepend=0)
            assert (left >= least).all()


def test_one_who_left_early_is_not_told_by_a_message_and_the_one_before_the_last() -> None:
    """The one between told nobody's early exit, and so says nothing of how many came since the first."""
    counts, sent = np.zeros((2, 1, 120)), np.zeros((0, 2, 120))
    for early, late in ((10, 10), (0, 10), (1, 20)):
        counts[..., 11] += early
        counts[..., 61] += late
        sent = np.concatenate([sent, told_exits(counts, sent, 10)[None, :, 0]])
    assert sent[..., 11].tolist() == [[10, 10], [0, 0], [0, 0]]
    assert sent.sum(axis=-1).tolist() == [[20, 20], [30, 30], [51, 51]]


def test_exits_of_one_patient_do_not_count_as_those_of_many(tmp_path: Path) -> None:
    """Ten events of one patient, whom a bin would show alone, are told with those of enough others."""
    chance, n = np.random.default_rng(6), 80
    rows = pd.DataFrame({"patient": [f"p{i}" for i in range(n)], "arm": np.arange(n) % 2, "site": "Aarhus"})
    rows = rows.assign(arm=np.where(rows["arm"], "drug", "placebo"), days=chance.integers(40, 60, n), relapsed=1)
    lone = [rows[rows["arm"] == arm].head(1).assign(days=12) for arm in ("drug", "placebo")]
    many = pd.concat([rows, *(lone * 10)])
    outcomes = [fa.Survival("days", "relapsed", until=60, bins=12)]
    plan = consortium("lone", outcomes=outcomes, federated="sums", privacy=fa.Privacy(cohort=20, smallest_cell=10))
    times = []
    for name, each in (("one", rows.assign(days=rows["days"].where(rows.index % 4 > 1, 12))), ("many", many)):
        path = tmp_path / f"{name}.parquet"
        each.to_parquet(path)
        sent = site_mode_of(plan).from_site(fold_site(plan, [str(path)], tmp_path / name))
        exits = np.frombuffer(msgspec.json.decode(sent, type=SiteSums).exits[0]).reshape(2, -1, 13, 2)
        assert exits.sum() == len(each)
        times.append(np.flatnonzero(exits.any(axis=(0, 1, 3))).tolist())
    assert times[0][0] == 3
    assert times[1][0] > 8


def test_of_a_site_that_has_sent_to_two_servers_what_it_sent_last_counts(rows: pd.DataFrame, tmp_path: Path) -> None:
    plan = consortium("servers")
    mode, mine = site_mode_of(plan), rows[rows["site"] == "Bergen"]
    shares: list[ServerShare] = []
    for number, patients in enumerate((100, 200), 1):
        path = tmp_path / f"{number}.parquet"
        mine[mine["patient"].isin(mine["patient"].unique()[:patients])].to_parquet(path)
        sent = mode.from_site(fold_site(plan, [str(path)], tmp_path / str(number)))
        shares.append(mode.site(ServerShare(fa.Trial(plan)), sent).sent_by("key", "Bergen", number))
    first, last = shares
    for both in (first.merge(last), last.merge(first)):
        again = ServerShare.of(plan, both.dumps())
        assert (again.n, again.devices, again.largest) == (len(mine), last.devices, last.largest)
        assert sum(again.devices) == 200 > sum(first.devices)


def test_what_a_plan_says_of_sites_must_fit() -> None:
    with pytest.raises(PlanError, match="for sites that send sums"):
        consortium("no", federated=fa.Federated("sums", within_sites=False, joined={"a": "b"}))
    with pytest.raises(PlanError, match="must have a probability for each"):
        consortium("no", federated=fa.Federated("sums", probabilities={"a": {"drug": 1 / 2, "other": 1 / 2}}))
    with pytest.raises(PlanError, match="add up to"):
        consortium("no", federated=fa.Federated("sums", probabilities={"a": {"drug": 0.5, "placebo": 0.6}}))
    with pytest.raises(PlanError, match="is joined itself"):
        consortium("no", federated=fa.Federated("sums", joined={"a": "b", "b": "c"}))
    shares = {"a": {"drug": 0.4, "placebo": 0.6}}
    with pytest.raises(PlanError, match="whose arms have other probabilities"):
        consortium("no", federated=fa.Federated("sums", joined={"a": "b"}, probabilities=shares))
