"""A federated trial does not end without effects, for whatever reason they would be withheld, unless told so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from counted_devices import Simulated, begun
from foldaway.errors import IngestError
from foldaway.federated.coordinator.ending import EndRequest
from foldaway.federated.messages import DeviceMoments, encoded
from foldaway.service.collecting.service import Service


@pytest.mark.parametrize("mode", ["one-message", "delta"])
def test_a_trial_whose_every_row_would_be_withheld_stays_open(service: Service, mode: str) -> None:
    """Enough devices have reported for effects, but too few for any kind of error."""
    plan, devices = begun(service, mode, count=9, cohort=3, smallest_cell=2)
    service.devices.receive(plan.name, "reports", [device.message("reports") for device in devices[:8]])
    before = service.status(plan.name)
    for request in (None, EndRequest(exact=True), EndRequest(deadline=0.0), EndRequest(deadline=0.0, share=0.1)):
        with pytest.raises(IngestError, match="effects would be withheld") as refused:
            service.end(plan.name, request)
        assert refused.value.status == 409
    assert service.status(plan.name) == before
    assert not service.end(plan.name, EndRequest(deadline=1000.0)).final
    ending = service.store.devices.situation(plan).ending
    assert ending is not None
    service.store.devices.change_ending(plan.name, ending._replace(deadline=0.0))
    service.tick()
    assert service.status(plan.name).status == "open"
    answer = service.end(plan.name, EndRequest(without_effects=True))
    assert answer.final


def report(device: Simulated, place: int) -> bytes:
    """Four records about a mean of the device's own, so that all devices are of one size."""
    mean = 1.0 + place % 5
    factor: Any = np.array([[2.0, 2.0 * mean], [0.0, 1.0]])
    return encoded(
        DeviceMoments(device.number, device.arm, 4, DeviceMoments.of(device.number, device.arm, 4, factor).factor)
    )


@pytest.mark.parametrize("ask", [EndRequest(), EndRequest(exact=True), EndRequest(deadline=0.0)])
def test_a_trial_of_which_only_some_rows_would_be_withheld_stays_open(service: Service, ask: EndRequest) -> None:
    """Two arms have devices enough for an error, the third has not."""
    arms = {"a": 0.4, "b": 0.4, "c": 0.2}
    plan, devices = begun(service, "one-message", count=36, cohort=3, smallest_cell=2, arms=arms)
    messages = [report(each, j) for j, each in enumerate(devices) if each.arm != "c" or j < 12]
    service.devices.receive(plan.name, "reports", messages)
    before = service.status(plan.name)
    with pytest.raises(
        IngestError, match=r"effects would be withheld: 4 of 8, such as y, c, difference: CR0"
    ) as refused:
        service.end(plan.name, ask)
    assert refused.value.status == 409
    assert service.status(plan.name) == before
    answer = service.end(plan.name, EndRequest(without_effects=True))
    assert answer.final
    effects = answer.opened()
    assert effects is not None
    assert {(row.arm, row.estimate is None) for row in effects.rows} == {("b", False), ("c", True)}
