"""Trials in mode shares on two real servers, and what an analysis in the clear makes of the same devices."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest

import foldaway as fa
from devices import Hosted, groups_of
from foldaway.effects.door import OWN
from foldaway.federated.messages import GroupSums
from foldaway.federated.modes import mode_of
from foldaway.federated.modes.share import Devices, ServerShare
from foldaway_device import Device
from foldaway_device.modes import mode_of as device_mode
from foldaway_device.plan import read_plan
from foldaway_device.rows import row_of
from served import Served

Said = tuple[str, int, list[dict[str, Any]]]
"""A device's arm, group and records."""


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
