"""Sites fold their own records and send tallies of a crowd, once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pytest

import foldaway as fa
from clustered import federated
from devices import Hosted, assert_as_kept_rows, devices_for, report_all
from foldaway.errors import PlanError, RecordError, SourceError
from foldaway.federated.site import fold_site, number_of, send_site, units_of
from served import Served
from servers import Nursery
from trials import make_trial


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, served_from: Nursery) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("coordinator"), served_from) as found:
        yield found


def site_plan(name: str, seed: int = 31, **others: Any) -> tuple[fa.Plan, fa.Plan, pd.DataFrame]:
    plan, rows = make_trial(seed, n=400, units=True, covariates=1)
    settings = {"unit": "unit", "complete_units": True, "cohort": 10, "min_per_arm": 2, "remainder": "include"}
    return plan, federated(plan, "one-message", **{"name": name, **settings, **others}), rows


def site_files(rows: pd.DataFrame, folder: Path, sites: int) -> list[Path]:
    """The rows of each site's units as a file, a unit's records all over it."""
    units = rows["unit"].unique()
    files = []
    for site in range(sites):
        mine = rows[rows["unit"].isin(units[site::sites])].sample(frac=1, random_state=site)
        files.append(folder / f"site-{site}.parquet")
        mine.to_parquet(files[-1])
    return files


def test_sites_and_devices_together_equal_kept_rows(server: Served, tmp_path: Path) -> None:
    kept, plan, rows = site_plan("sites")
    trial = Hosted(server, plan)
    files = site_files(rows, tmp_path, 4)
    for file in files[:3]:
        report = send_site(fold_site(plan, [str(file)]), number_of(plan, [str(file)]), trial.link)
        assert (report.repeated, report.durable) == (False, True)
    report_all(devices_for(plan, pd.read_parquet(files[3]), trial.link))
    about = trial.close(deadline=0)["federated"]
    assert sum(about["enrolled"].values()) == sum(about["reported"].values()) == rows["unit"].nunique()
    assert_as_kept_rows(trial.effects(), kept, rows)


def test_a_site_counts_once_however_often_it_runs(server: Served, tmp_path: Path) -> None:
    kept, plan, rows = site_plan("again")
    trial = Hosted(server, plan)
    files = site_files(rows, tmp_path, 2)
    for file in (files[0], files[1], files[0], files[1], files[0]):
        report = send_site(fold_site(plan, [str(file)]), number_of(plan, [str(file)]), trial.link)
    assert report.repeated
    trial.close(deadline=0)
    assert_as_kept_rows(trial.effects(), kept, rows)


def test_units_are_counted_by_arm(tmp_path: Path) -> None:
    _, plan, rows = site_plan("counted")
    (file,) = site_files(rows, tmp_path, 1)
    expected = rows.groupby("group")["unit"].nunique().to_dict()
    assert units_of(fold_site(plan, [str(file)])) == expected


def test_fewer_units_than_a_cohort_stay_where_they_are(tmp_path: Path) -> None:
    _, plan, rows = site_plan("small", cohort=10)
    few = rows[rows["unit"].isin(rows["unit"].unique()[:9])]
    few.to_parquet(tmp_path / "few.parquet")
    with pytest.raises(RecordError, match=r"9 units.*stay here"):
        fold_site(plan, [str(tmp_path / "few.parquet")])


def test_a_plan_for_devices_alone_is_refused(tmp_path: Path) -> None:
    plan, _ = make_trial(32, n=100, units=True)
    with pytest.raises(PlanError, match="not for sites"):
        fold_site(federated(plan, "one-message"), ["x.parquet"])
    with pytest.raises(PlanError, match="not for sites"):
        fold_site(plan, ["x.parquet"])


def test_the_number_follows_from_plan_and_content(tmp_path: Path) -> None:
    _, plan, _ = site_plan("numbers")
    _, other, _ = site_plan("others")
    for name, content in {"a": b"1", "b": b"2", "c": b"1"}.items():
        (tmp_path / f"{name}.csv").write_bytes(content)
    a, b, c = (str(tmp_path / f"{name}.csv") for name in "abc")
    assert number_of(plan, [a]) == number_of(plan, [c]) != number_of(plan, [b])
    assert number_of(plan, [a, b]) == number_of(plan, [b, a]) != number_of(plan, [a])
    assert number_of(other, [a]) != number_of(plan, [a])
    with pytest.raises(SourceError, match="standard input"):
        number_of(plan, ["-"])


def test_the_command_sends_and_says_what_it_sent(server: Served, tmp_path: Path) -> None:
    kept, plan, rows = site_plan("command")
    trial = Hosted(server, plan)
    files = site_files(rows, tmp_path, 2)
    plan.save(tmp_path / "plan.toml")

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "foldaway", "site", "run", str(tmp_path / "plan.toml"), *words]
        environment = {**os.environ, "FOLDAWAY_TOKEN": trial.token, "FOLDAWAY_SERVER": server.url}
        return subprocess.run(command, capture_output=True, text=True, env=environment)

    first = run(str(files[0]))
    assert first.returncode == 0, first.stderr
    assert "records stay here" in first.stdout
    assert "safe there" in first.stdout
    assert max(map(len, first.stdout.splitlines())) <= 80
    second = run(str(files[1]), "--json")
    told = msgspec.json.decode(second.stdout)
    assert told["units"] == pd.read_parquet(files[1]).groupby("group")["unit"].nunique().to_dict()
    assert "has not counted them again" in run(str(files[0])).stdout
    refused = run(str(tmp_path / "nowhere.parquet"))
    assert refused.returncode == 1
    assert refused.stderr.startswith("error: ")
    trial.close(deadline=0)
    assert_as_kept_rows(trial.effects(), kept, rows)


def test_no_record_of_a_site_is_in_what_it_sends(tmp_path: Path) -> None:
    _, plan, rows = site_plan("values")
    (file,) = site_files(rows, tmp_path, 1)
    state = fold_site(plan, [str(file)]).dumps()
    values = rows[["y0", "x0"]].to_numpy().ravel()
    assert not any(np.float64(value).tobytes() in state for value in values)
    assert not any(unit.encode() in state for unit in rows["unit"])
