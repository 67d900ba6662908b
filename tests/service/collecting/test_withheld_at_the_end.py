"""A federated trial does not end without effects, for whatever reason they would be withheld, unless told so."""

from __future__ import annotations

import pytest

from counted_devices import begun
from foldaway.errors import IngestError
from foldaway.federated.coordinator.ending import EndRequest
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
