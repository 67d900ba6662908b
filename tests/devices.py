"""Real devices for rows of a data frame: one for each unit, in the unit's arm, over HTTP."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import msgspec
import numpy as np
import pandas as pd
import pytest

import foldaway as fa
from by_groups import by_groups
from foldaway.effects import Effect
from foldaway.federated.link import HttpLink
from foldaway.federated.messages import new_number
from foldaway.plan.arms import public_arm
from foldaway.plan.vocabulary import MEDIAN_OF_MEANS
from foldaway_device import Device
from foldaway_device.floats import base64
from foldaway_device.link import HttpLink as DeviceLink
from foldaway_device.link import Link
from foldaway_device.plan import read_plan
from foldaway_device.state import MemoryStore, State, Store
from kept_rows import fitted, mean_variance, unit_degrees
from served import Served
from trials import known


def identity_in(plan: fa.Plan, arm: str) -> bytes:
    """An identity that the plan assigns to this arm."""
    while True:
        identity = new_number()
        if public_arm(plan.arms, plan.fingerprint, identity) == arm:
            return identity


def device_in(plan: fa.Plan, arm: str | None, link: Link | None = None, store: Store | None = None) -> Device:
    """A new device in this arm, or in the one that it draws."""
    read, store = read_plan(plan.canonical()), MemoryStore() if store is None else store
    with store.changing(plan.name) as held:
        held.state = State.new(read)
        if arm is not None:
            held.state.identity = base64(identity_in(plan, arm))
    return Device(plan.name, store, read, link)


def state_of(device: Device) -> State:
    """What a device keeps."""
    with device._custody.changing() as state:
        return State.loads(state.dumps())


def wait_for(device: Device) -> None:
    """Until the device has done what it does beside its records."""
    device._beside.within(60, lambda: None)


def records_of(plan: fa.Plan, rows: pd.DataFrame, unit: str = "unit") -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Each unit's arm and records."""
    columns = [name for name in (*plan.measured, *plan.covariates, plan.weight) if name]
    for _, mine in rows.groupby(unit, sort=False):
        yield str(mine[plan.arm].iloc[0]), cast(list[dict[str, Any]], mine[columns].to_dict("records"))


def devices_for(plan: fa.Plan, rows: pd.DataFrame, link: Link, threads: int = 1) -> list[Device]:
    """A device for each unit, with its records taken."""

    def made(of: tuple[str, list[dict[str, Any]]]) -> Device:
        arm, records = of
        device = device_in(plan, arm, link)
        for record in records:
            device.record(record)
        wait_for(device)
        return device

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(made, records_of(plan, rows)))


class Hosted:
    """A federated trial on a real server."""

    def __init__(self, server: Served, plan: fa.Plan) -> None:
        made = server.ask("POST", "/v1/trials", content=plan.to_json(), headers={"Content-Type": "application/json"})
        assert made.status_code == 201, made.text
        self.server = server
        self.plan = plan
        self.path = f"/v1/trials/{plan.name}"
        self.address = server.url + self.path
        self.token: str = made.json()["ingest_token"]
        self.link: Link = DeviceLink(self.address, self.token)
        self.site_token = self.site()
        self.site_link = HttpLink(self.address, self.site_token)

    def site(self, units: int = 10**6, label: str | None = None) -> str:
        """A token for a site of so many units."""
        wanted = {"scope": "site", "trial": self.plan.name, "units": units, "label": label}
        issued: str = self.server.ask("POST", "/v1/tokens", json=wanted).json()["token"]
        return issued

    def end(self, **parameters: Any) -> dict[str, Any]:
        """End the trial, or begin to; the answer."""
        wanted: dict[str, Any] = {"json": parameters} if parameters else {}
        answer = self.server.ask("POST", f"{self.path}/end", **wanted)
        assert answer.is_success, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def status(self) -> dict[str, Any]:
        """How it stands, as far as devices are concerned."""
        found: dict[str, Any] = self.server.ask("GET", self.path).json()["federated"]
        return found

    def effects(self) -> fa.Effects:
        """The final effects."""
        answer = self.server.ask("GET", f"{self.path}/effects")
        assert answer.is_success, answer.text
        return fa.Effects.from_json(msgspec.json.encode(answer.json()["effects"]))


def report_all(devices: Sequence[Device], rounds: int = 3, threads: int = 1) -> list[str]:
    """All report, until they are durable or a few rounds are over; where each stands."""
    states = ["pending"] * len(devices)
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(rounds):
            waiting = [i for i, state in enumerate(states) if state == "pending"]
            for i, status in zip(waiting, pool.map(lambda i: devices[i].report(timeout=60), waiting), strict=True):
                states[i] = status.state
    return states


def groups_of(devices: Sequence[Device]) -> list[int]:
    """The groups that devices in mode sums have drawn."""
    return [device._own(device._drawn).group for device in devices]


def assert_as_kept_rows(
    effects: fa.Effects, plan: fa.Plan, rows: pd.DataFrame, rtol: float = 1e-9, groups: Sequence[int] | None = None
) -> None:
    """Every effect and its errors are those of all rows, kept; `plan` names the unit.

    CR0 and CR1 are those of statsmodels. The jackknife is its definition, with each unit in its group, in the order in
    which they come; if the groups are not known, differences are compared without their errors.
    """
    compared = 0
    if effects.plan is not None and effects.plan.mode == "sums":
        for row in effects:
            if row.estimator == MEDIAN_OF_MEANS:  # which stands beside, and has tests of its own
                continue
            if groups is not None:
                frame = rows.assign(group_of_unit=np.array(groups)[pd.factorize(rows["unit"])[0]])
                estimate, error = by_groups(effects.plan, frame, row.estimator, row.arm, row.outcome, "group_of_unit")
                assert row.std_error == pytest.approx(error, rel=rtol)
            else:
                estimate, error, _ = fitted(plan, rows, "difference", row.arm, row.outcome, "CR1")
            assert row.se_kind == "jackknife"
            assert row.estimate == pytest.approx(estimate, rel=rtol, abs=rtol * error)
            compared += 1
        assert compared == (2 if plan.covariates else 1) * (len(plan.arms) - 1) * len(plan.outcomes)
        return
    for row in effects:
        if row.se_kind not in ("CR0", "CR1"):
            continue
        if row.reliable:
            assert_row_as_kept_rows(row, effects, plan, rows, rtol)
        else:  # too few units stand behind it
            assert row.why
        compared += 1
    assert compared == 2 * (4 if plan.covariates else 2) * (len(plan.arms) - 1) * len(plan.outcomes)


def assert_row_as_kept_rows(
    row: Effect, effects: fa.Effects, plan: fa.Plan, rows: pd.DataFrame, rtol: float = 1e-9
) -> None:
    """An effect with a clustered error is that of all rows, kept."""
    estimate, error, _ = fitted(plan, rows, row.estimator, row.arm, row.outcome, row.se_kind)
    if row.estimator == "interacted" and effects.plan is not None and effects.plan.mode == "one-message":
        error = math.hypot(error, math.sqrt(mean_variance(plan, rows, row.arm, row.outcome)))
    assert row.estimate == pytest.approx(estimate, rel=rtol, abs=rtol * error)
    assert row.std_error == pytest.approx(error, rel=rtol)
    exact = effects.plan is not None and effects.plan.mode != "scores"
    df = unit_degrees(plan, rows, row.estimator, row.arm, row.outcome)  # scores do not tell how large devices are
    assert row.df == pytest.approx(df, rel=1e-6) if exact else 2 < known(row.df) < rows[plan.unit].nunique()
