"""A report is taken out again, once, and with others: whatever is repeated, and whichever server is asked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import foldaway as fa
from counted_devices import Simulated, begun, one
from foldaway.errors import MessageError, TrialEnded, UnknownNumber
from foldaway.federated.coordinator.ending import EndRequest
from foldaway.federated.messages import DeviceSums, Received, encoded, packed
from foldaway.service.collecting.service import Service
from foldaway.service.database.store import Store
from foldaway.sources.formats.body import Limits

pytestmark = [pytest.mark.once, pytest.mark.usefixtures("exact_counts")]

DURABLE, WAITS = Received(repeated=True, durable=True), Received(repeated=True, durable=False)
TAKEN = Received(repeated=False, durable=False)


def report(service: Service, plan: fa.Plan, *devices: Simulated) -> None:
    for device in devices:
        assert isinstance(one(service, plan, "reports", device.message("reports")), Received)


def withdraw(service: Service, plan: fa.Plan, device: Simulated) -> Any:
    return one(service, plan, "withdrawals", device.message("withdrawals"))


def records(service: Service, plan: fa.Plan) -> int | None:
    return service.end(plan.name, EndRequest(without_effects=True)).records


@pytest.mark.parametrize("mode", ["one-message", "delta", "sums"])
def test_what_was_counted_goes_with_the_next_cohort_of_those_who_stay(service: Service, mode: str) -> None:
    plan, devices = begun(service, mode, 8)
    report(service, plan, *devices[:3])
    assert withdraw(service, plan, devices[0]) == TAKEN
    assert withdraw(service, plan, devices[0]) == WAITS
    report(service, plan, *devices[3:6])  # as many more as a cohort, and one less: two states could differ by two
    assert service.status(plan.name).records == 7
    assert withdraw(service, plan, devices[0]) == WAITS
    assert one(service, plan, "reports", devices[0].message("reports")) == DURABLE  # as yet it is
    report(service, plan, devices[6])
    assert withdraw(service, plan, devices[0]) == DURABLE
    assert isinstance(one(service, plan, "reports", devices[0].message("reports")), TrialEnded)
    told = service.status(plan.name)
    assert told.records == 126
    assert told.federated is not None
    assert (sum(told.federated.reported.values()), sum(told.federated.withdrawn.values())) == (6, 1)
    assert withdraw(service, plan, devices[1]) == TAKEN
    assert records(service, plan) == 124  # at the end, with all that wait
    assert withdraw(service, plan, devices[1]) == DURABLE
    assert isinstance(withdraw(service, plan, devices[2]), TrialEnded)


@pytest.mark.parametrize("mode", ["one-message", "delta", "sums"])
def test_what_is_not_durable_is_out_at_once_and_no_newcomer(service: Service, mode: str) -> None:
    plan, devices = begun(service, mode, 5)
    report(service, plan, *devices[:2])
    assert withdraw(service, plan, devices[0]) == Received(repeated=False, durable=True)
    assert withdraw(service, plan, devices[0]) == DURABLE
    assert withdraw(service, plan, devices[4]) == Received(repeated=False, durable=True)  # before it has reported
    for device in (devices[0], devices[4]):
        assert isinstance(one(service, plan, "reports", device.message("reports")), TrialEnded)
    report(service, plan, devices[2])
    assert service.devices.pending(plan.name) == 2
    report(service, plan, devices[3])
    assert service.status(plan.name).records == 2 + 4 + 8


def test_withdrawals_that_a_crash_takes_may_come_again(service: Service) -> None:
    plan, devices = begun(service, "delta")
    report(service, plan, *devices)
    assert withdraw(service, plan, devices[1]) == TAKEN
    again = Service(service.store, "main", Limits())
    assert withdraw(again, plan, devices[1]) == TAKEN
    assert records(again, plan) == 5


@pytest.mark.parametrize("mode", ["one-message", "delta", "sums"])
def test_any_server_takes_out_what_another_has_counted(store: Store, mode: str) -> None:
    first, second = (Service(store, shard, Limits()) for shard in ("one", "two"))
    plan, devices = begun(first, mode, 10)
    report(first, plan, *devices[:3], devices[9])
    assert withdraw(second, plan, devices[1]) == TAKEN
    assert withdraw(second, plan, devices[9]) == Received(repeated=False, durable=True)  # pending at the first
    report(second, plan, *devices[3:7])
    assert withdraw(second, plan, devices[1]) == DURABLE
    assert second.status(plan.name).records == 127 - 2
    assert withdraw(second, plan, devices[0]) == TAKEN
    assert withdraw(first, plan, devices[2]) == TAKEN  # whose tallies have gone, so that this must come again
    assert records(second, plan) == 127 - 3


def test_only_the_report_itself_is_taken_out(service: Service) -> None:
    plan, devices = begun(service, "delta")
    report(service, plan, *devices)
    stranger = Simulated(plan, 5)
    assert isinstance(withdraw(service, plan, stranger), UnknownNumber)
    number, arm = devices[0].number, devices[0].arm
    forged = encoded(DeviceSums(number, arm, 1, packed(np.array([-1e6]))))
    other = encoded(DeviceSums(number, devices[1].arm, 1, packed(np.array([3.0]))))
    for bad in (forged, other, b"{}"):
        assert isinstance(one(service, plan, "withdrawals", bad), MessageError)
    assert service.devices.pending(plan.name) == 0
    outcomes = service.devices.receive(plan.name, "withdrawals", [forged, devices[0].message("withdrawals"), forged])
    assert [type(outcome) for outcome in outcomes] == [MessageError, Received, MessageError]
    assert records(service, plan) == 6


def test_replies_to_coefficients_are_not_taken_out(service: Service) -> None:
    plan, devices = begun(service, "scores")
    with pytest.raises(MessageError, match="scores cannot withdraw"):
        one(service, plan, "withdrawals", devices[0].message("moments"))
