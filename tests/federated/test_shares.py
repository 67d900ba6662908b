"""Mode shares: two real servers, of which neither can read its sums, give the effects of an analysis in the clear."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import foldaway as fa
from devices import Hosted, records_of, report_all
from foldaway.federated.summands.publishing import LEAST_GROUPS
from foldaway_device import Device, ServerError
from served import Served, eventually
from servers import Nursery
from shared_trials import assert_same, hosted, in_the_clear, new_keys, said_of
from two_servers import GROUPS, device_of, shared

COVARIATES: Any = [
    {"column": "before", "bounds": [-10, 30]},
    {"column": "country", "levels": ["de", "fr", "it"]},
]
OUTCOMES: Any = [
    fa.Mean("revenue", bounds=(-50, 150)),
    fa.Share("revenue", above=40),
    fa.Ratio("clicks", "views", bounds={"clicks": (0, 20), "views": (1, 40)}),
]


def adjusted_plan(**settings: Any) -> fa.Plan:
    """Three arms, covariates, a mean, a share and a ratio."""
    columns = {"before": 4.0, "country[fr]": 0.3, "country[it]": 0.2}
    values = ["revenue", "revenue > 40", "clicks", "views"]
    return shared(
        arms={"a": 0.4, "b": 0.3, "c": 0.3},
        outcomes=OUTCOMES,
        covariates=COVARIATES,
        coefficients={
            "center": columns,
            "slopes": {name: dict(zip(columns, (1.5, -2.0 + i, 0.25), strict=True)) for i, name in enumerate(values)},
        },
        cohort=30,
        smallest_cell=1,
        **settings,
    )


def rows_of(units: int, seed: int = 1) -> pd.DataFrame:
    """Records of so many devices."""
    rng = np.random.default_rng(seed)
    unit = np.repeat(np.arange(units), rng.integers(1, 6, units))
    n, level = len(unit), rng.normal(0, 8, units)[unit]
    arm = rng.choice(list("abc"), units)[unit]
    before = rng.normal(5, 5, n).round(2)
    return pd.DataFrame(
        {
            "unit": unit,
            "group": arm,
            "before": before,
            "country": rng.choice(["de", "fr", "it"], n),
            "revenue": (20 + 2 * before + level + 3 * (arm == "b") + rng.normal(0, 10, n)).round(2),
            "clicks": rng.integers(0, 9, n),
            "views": rng.integers(9, 30, n),
        }
    )


def devices_with(trial: Hosted, rows: pd.DataFrame) -> tuple[list[Device], list[list[dict[str, Any]]]]:
    """A device for each unit, in its arm, such that all groups are filled; and its records."""
    units = sorted(records_of(trial.plan, rows), key=lambda unit: unit[0])
    devices = [device_of(trial.plan, arm, i % GROUPS, trial.link) for i, (arm, _) in enumerate(units)]
    return devices, [records for _, records in units]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, served_from: Nursery) -> Iterator[tuple[Served, Served]]:
    folder = tmp_path_factory.mktemp("pair")
    leader = Served(folder / "leader", served_from, "--role", "leader", unrounded=True)
    helper = Served(folder / "helper", served_from, "--role", "helper")
    for server in (leader, helper):
        new_keys(server)
    with leader, helper:
        yield leader, helper


def test_the_effects_are_those_of_an_analysis_in_the_clear(pair: tuple[Served, Served]) -> None:
    trial = hosted(pair, adjusted_plan, expected_units=200)
    rows = rows_of(160)
    devices, records = devices_with(trial, rows)
    for device, mine in zip(devices, records, strict=True):
        for record in mine:
            device.record(record)
    assert set(report_all(devices)) <= {"counted", "pending"}
    answer = trial.end()
    assert answer["federated"]["stage"] == "ended"
    effects = trial.effects()
    counted = [device.report().state == "counted" for device in devices]
    assert sum(counted) == sum(answer["federated"]["reported"].values()) > 120
    published = pair[1].ask("GET", f"{trial.path}/effects").json()["summands"]
    assert published["groups"] >= LEAST_GROUPS
    made = [each for each, is_in in zip(said_of(devices, records), counted, strict=True) if is_in]
    assert_same(effects, in_the_clear(trial.plan, made, published["groups"]))
    assert {row.estimator for row in effects} >= {"difference", "adjusted"}


@pytest.mark.once
@pytest.mark.parametrize("kills", [2, pytest.param(30, marks=pytest.mark.slow)])
def test_servers_that_are_killed_lose_and_double_nothing(tmp_path: Path, served_from: Nursery, kills: int) -> None:
    """SIGKILL of the real processes, one or the other, while devices report."""
    leader = Served(tmp_path / "leader", served_from, "--role", "leader", unrounded=True)
    helper = Served(tmp_path / "helper", served_from, "--role", "helper")
    chance, count = random.Random(kills), 40 * kills
    for server in (leader, helper):
        new_keys(server)
    with leader, helper:
        settings: dict[str, Any] = {"outcomes": OUTCOMES, "cohort": 8, "smallest_cell": 1, "expected_units": count}
        trial = hosted((leader, helper), shared, **settings)
        rows = rows_of(count).query("group != 'c'")
        made, records = devices_with(trial, rows)

        def live(i: int) -> None:
            for record in records[i]:
                made[i].record(record)
            for _ in range(100):
                with suppress(ServerError):
                    if made[i].report(timeout=0.2).state in ("pending", "counted"):
                        return
                time.sleep(0.05)

        with ThreadPoolExecutor(4) as pool:
            done = [pool.submit(live, i) for i in range(len(made))]
            for kill in range(kills):
                reported = sum(each.done() for each in done)
                eventually(lambda: sum(each.done() for each in done) >= min(len(done), reported + 10), 60)  # noqa: B023
                server = (leader, helper)[kill % 2]
                time.sleep(chance.random() / 20)
                server.kill()
                server.start()
        for each in done:
            each.result()
        for _ in range(5):
            states = [device.report(timeout=10).state for device in made]
        assert states.count("counted") > len(made) - 8
        answer = trial.end()
        effects, states = trial.effects(), [device.report(timeout=10).state for device in made]
        assert sum(answer["federated"]["reported"].values()) == states.count("counted")
        published = helper.ask("GET", f"{trial.path}/effects").json()["summands"]
        counted = [each for each, state in zip(said_of(made, records), states, strict=True) if state == "counted"]
        assert_same(effects, in_the_clear(trial.plan, counted, published["groups"]))
