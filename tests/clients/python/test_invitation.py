"""A device joins with the invitation that the app's own server has got for it, and nobody joins without."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import foldaway as fa
from devices import Hosted
from foldaway_device import Device, PlanError, ServerError
from foldaway_device.errors import FoldawayError
from foldaway_device.folder import FolderStore
from served import Served
from servers import Nursery


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory, served_from: Nursery) -> Iterator[Hosted]:
    with Served(tmp_path_factory.mktemp("coordinator"), served_from, unrounded=True) as server:
        plan = fa.Plan(
            name="invited",
            arm="group",
            arms={"a": 0.5, "b": 0.5},
            outcomes=["y"],
            federated=fa.Federated("sums", invited=True),
            privacy=fa.Privacy(cohort=1, smallest_cell=1),
        )
        yield Hosted(server, plan)


def invitations(trial: Hosted, count: int = 1) -> list[str]:
    """As the app's server asks for them, with a token that is good for nothing else."""
    wanted = {"scope": "invite", "trial": trial.plan.name}
    token = trial.server.ask("POST", "/v1/tokens", json=wanted).json()["token"]
    answer = trial.server.ask("POST", f"{trial.path}/invitations", token, json={"count": count})
    assert answer.status_code == 201
    found: list[str] = answer.json()["invitations"]
    return found


def joined(trial: Hosted) -> int:
    return sum(trial.status()["enrolled"].values())


def test_an_invitation_lets_one_device_in(trial: Hosted, tmp_path: Path) -> None:
    before, (mine,) = joined(trial), invitations(trial)
    with pytest.raises(PlanError, match="by invitation alone"):
        Device.open(trial.address, token=trial.token, store=tmp_path / "mine")
    told: list[FoldawayError] = []
    first, second = (
        Device.open(trial.address, token=trial.token, invitation=mine, store=tmp_path / name, on_refusal=told.append)
        for name in ("mine", "other")
    )
    first.record({"y": 1.0})
    assert first.report(keep_report=True).state == "counted"
    second.record({"y": 2.0})
    with pytest.raises(ServerError, match="another device has used it") as refused:
        second.report()
    assert refused.value.status == 403
    assert second.status.state == "new"
    assert joined(trial) == before + 1
    # With another one it is in.
    again = Device.open(trial.address, token=trial.token, invitation=invitations(trial)[0], store=tmp_path / "other")
    assert (again.report().state, again.status.records) == ("counted", 1)
    assert FolderStore(tmp_path / "other").trials()
    # The first is known by its number from then on.
    reopened = Device.open(trial.address, token=trial.token, store=tmp_path / "mine")
    assert reopened.withdraw().state == "withdrawn"
    assert joined(trial) == before + 2


@pytest.mark.parametrize("body", [{}, {"count": 0}, {"count": 10_001}, {"count": "x"}, {"count": 1, "more": 1}, []])
def test_what_is_asked_for_is_a_number(trial: Hosted, body: Any) -> None:
    answer = trial.server.ask("POST", f"{trial.path}/invitations", json=body)
    assert (answer.status_code, answer.json()["detail"]) == (400, 'send {"count": N}, with N from 1 to 10,000.')
