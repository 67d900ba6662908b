"""An invitation lets one device in: whatever is repeated or sent at once, and whichever server is asked."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import foldaway as fa
from counted_devices import Simulated, begun, one, plan_of
from foldaway.errors import FoldawayError, IngestError, TrialEnded
from foldaway.federated.coordinator.ending import EndRequest
from foldaway.federated.messages import Enrolment, Received, encoded, new_number
from foldaway.service.collecting.service import Service
from foldaway.service.database.store import Store
from foldaway.sources.formats.body import Limits
from stores import Place

pytestmark = pytest.mark.once

NEW, AGAIN = Received(repeated=False, durable=True), Received(repeated=True, durable=True)


def invited(service: Service) -> fa.Plan:
    federated = fa.Federated("delta", device_records=10**9, invited=True)
    plan = plan_of(f"invited-{time.time_ns()}", "delta", federated=federated)
    service.create(plan.to_toml())
    return plan


def joining(invitation: str | None, number: bytes | None = None) -> bytes:
    number = new_number() if number is None else number
    return encoded(Enrolment(number, "a") if invitation is None else Enrolment(number, "a", invitation))


def enrolled(service: Service, plan: fa.Plan) -> int:
    told = service.status(plan.name).federated
    assert told is not None
    return sum(told.enrolled.values())


def is_refused(outcome: Received | FoldawayError) -> bool:
    return isinstance(outcome, IngestError) and outcome.status == 403 and "by invitation alone" in str(outcome)


@pytest.mark.usefixtures("exact_counts")
def test_each_invitation_is_good_for_one_device(service: Service) -> None:
    plan = invited(service)
    first, second = service.store.invitations.invite(plan.name, 2)
    mine = new_number()
    assert one(service, plan, "enrolments", joining(first, mine)) == NEW
    for again in (first, second, None):  # the same device, whatever it has
        assert one(service, plan, "enrolments", joining(again, mine)) == AGAIN
    for bad in (first, None, "x", first + " "):
        assert is_refused(one(service, plan, "enrolments", joining(bad)))
    lot = [joining(second), joining(second), joining(None)]
    outcomes = service.devices.receive(plan.name, "enrolments", lot)
    assert sorted(map(is_refused, outcomes)) == [False, True, True]
    assert enrolled(service, plan) == 2
    device = Simulated(plan, 0)
    assert isinstance(one(service, plan, "reports", device.message("reports")), FoldawayError)


def test_only_hashes_of_unused_ones_are_stored(folder: Place) -> None:
    service = Service(folder.open(), "main", Limits())
    plan = invited(service)
    texts = service.store.invitations.invite(plan.name, 50)
    assert len(set(texts)) == 50
    one(service, plan, "enrolments", joining(texts[0]))
    rows = stored(service.store, plan)
    assert len(rows) == 49
    assert not any(text.encode() in folder.files() for text in texts)
    service.end(plan.name, EndRequest(without_effects=True))
    assert stored(service.store, plan) == []
    with pytest.raises(TrialEnded):
        service.store.invitations.invite(plan.name, 1)


def stored(store: Store, plan: fa.Plan) -> list[Any]:
    with store._trials.begin() as connection:
        asked = "SELECT invitation FROM foldaway_invitations WHERE trial = ?"
        return list(connection.exec_driver_sql(asked, (plan.name,)))


def test_a_trial_for_everybody_has_none(service: Service) -> None:
    plan, _ = begun(service, "delta")
    with pytest.raises(IngestError, match=r"federated\.invited = true"):
        service.store.invitations.invite(plan.name, 1)
    assert one(service, plan, "enrolments", joining("any")) == NEW


@pytest.mark.usefixtures("exact_counts")
def test_servers_that_are_asked_at_once_let_one_device_in(place: Place) -> None:
    servers = [Service(place.open(), shard, Limits()) for shard in ("one", "two", "three")]
    plan = invited(servers[0])
    texts = servers[0].store.invitations.invite(plan.name, 12)
    lots = [[joining(text) for text in (texts if turn % 2 else reversed(texts))] for turn in range(len(servers))]

    def enrol(server: Service, lot: list[bytes]) -> list[bool]:
        return [outcome == NEW for outcome in server.devices.receive(plan.name, "enrolments", lot)]

    with ThreadPoolExecutor(len(servers)) as pool:
        let_in = list(pool.map(enrol, servers, lots))
    assert sum(map(sum, let_in)) == enrolled(servers[0], plan) == len(texts)
