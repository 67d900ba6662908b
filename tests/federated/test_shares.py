"""Mode shares: two real servers, of which neither can read its sums, give the effects of an analysis in the clear."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pytest

import foldaway as fa
from devices import Hosted, groups_of, records_of, report_all
from foldaway.effects.door import OWN
from foldaway.federated.messages import GroupSums
from foldaway.federated.modes import mode_of
from foldaway.federated.modes.share import Devices, ServerShare
from foldaway.federated.summands.publishing import LEAST_GROUPS
from foldaway_device import Device, ServerError
from foldaway_device.modes import mode_of as device_mode
from foldaway_device.plan import read_plan
from foldaway_device.rows import row_of
from served import Served, eventually
from servers import Nursery
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


Said = tuple[str, int, list[dict[str, Any]]]
"""A device's arm, group and records."""


def devices_with(trial: Hosted, rows: pd.DataFrame) -> tuple[list[Device], list[list[dict[str, Any]]]]:
    """A device for each unit, in its arm, such that all groups are filled; and its records."""
    units = sorted(records_of(trial.plan, rows), key=lambda unit: unit[0])
    devices = [device_of(trial.plan, arm, i % GROUPS, trial.link) for i, (arm, _) in enumerate(units)]
    return devices, [records for _, records in units]


def said_of(devices: Sequence[Device], records: Sequence[list[dict[str, Any]]]) -> list[Said]:
    """What an analysis in the clear needs of them."""
    return [(device.arm, group, mine) for device, group, mine in zip(devices, groups_of(devices), records, strict=True)]


def in_the_clear(plan: fa.Plan, devices: Sequence[Said], groups: int) -> fa.Effects:
    """What mode sums makes of devices' arms, groups and records."""
    assert plan.federated is not None
    open_plan = msgspec.structs.replace(plan, federated=fa.Federated("sums", device_records=10))
    share, mode, read = ServerShare.of(open_plan), mode_of(open_plan), read_plan(open_plan.canonical())
    messages, values = [], []
    for arm, group, records in devices:
        sums: list[float] = []
        for record in records:
            sums = device_mode("sums").take_in(read, sums, row_of(read, record, arm))
        messages.append(GroupSums(bytes(16), arm, len(records), group % groups, np.array(sums).tobytes()))
        values.append(mode.check(share, messages[-1], None))
    mode.fold(share, messages, values, None)
    counts = dict(zip(plan.arms, share.devices, strict=True))
    effects, _ = mode.results(share, Devices(counts, counts), None, OWN)
    return effects


def assert_same(found: fa.Effects, expected: fa.Effects) -> None:
    """Every estimate to a millionth of its standard error, and every standard error."""
    assert [(row.outcome, row.arm, row.estimator) for row in found] == [
        (row.outcome, row.arm, row.estimator) for row in expected
    ]
    for row, clear in zip(found, expected, strict=True):
        if row.estimator == "median_of_means" and clear.std_error is None:  # it needs 16 groups
            assert row.std_error is None
            continue
        assert clear.std_error is not None, clear.why
        assert row.std_error is not None
        assert clear.estimate is not None
        assert row.estimate == pytest.approx(clear.estimate, abs=1e-6 * clear.std_error)
        assert row.std_error == pytest.approx(clear.std_error, rel=1e-6)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, served_from: Nursery) -> Iterator[tuple[Served, Served]]:
    folder = tmp_path_factory.mktemp("pair")
    leader = Served(folder / "leader", served_from, "--role", "leader", unrounded=True)
    helper = Served(folder / "helper", served_from, "--role", "helper")
    for server in (leader, helper):
        new_keys(server)
    with leader, helper:
        yield leader, helper


def new_keys(server: Served) -> str:
    """The public half of a server's key pair, made when it is first asked for."""
    command = [sys.executable, "-m", "foldaway", "key", "new-server", "--data", str(server.data)]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.strip()


def hosted(pair: tuple[Served, Served], plan: Any, **settings: Any) -> Hosted:
    """The trial on both servers, and what its devices ask of the leader."""
    leader, helper = pair
    keys = [new_keys(server) for server in pair]
    made = plan(urls=(leader.url, helper.url), keys=keys, **settings)
    Hosted(helper, made)
    return Hosted(leader, made)


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
