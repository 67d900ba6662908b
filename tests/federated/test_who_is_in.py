"""Mode scores: who is enrolled, whose records are in the coefficients, and who has replied are three things.

The errors are scaled by the second and the third alone: a device that enrolled and died before it sent anything is in
no coefficient, and must be in no error.
"""

from __future__ import annotations

from collections.abc import Iterator
from tempfile import TemporaryDirectory

import numpy as np
import pytest

import foldaway as fa
from devices import wait_for
from foldaway.effects.door import OWN
from foldaway.federated.coordinator.ending import EndRequest
from foldaway.federated.modes import MODES
from foldaway.inference.few_units import welch_degrees
from foldaway.service.collecting.answers import Answer
from foldaway.service.collecting.service import Service
from foldaway.service.database.store import Store
from foldaway.sources.formats.body import Limits
from foldaway_device import Device
from in_process import DirectLink
from plans import SMALL
from postgres import quick_folder
from stores import VAULT
from trials import known


@pytest.fixture
def service() -> Iterator[Service]:
    with TemporaryDirectory(dir=quick_folder()) as folder:
        store = Store.open(folder, VAULT)
        yield Service(store, "main", Limits())
        store.close()


class Run:
    """A trial of some devices, of which some never send moments and some never reply."""

    def __init__(self, service: Service, name: str, *, devices: int, ghosts: int = 0, silent: int = 0) -> None:
        privacy = fa.Privacy(cohort=5, smallest_cell=2)
        plan = fa.Plan(**{**SMALL, "name": name}, federated="scores", privacy=privacy)
        service.create(plan.to_json())
        link = DirectLink(service.devices, plan)
        rng = np.random.default_rng(5)
        self.values = [rng.normal(size=3) + rng.normal() for _ in range(devices)]
        some = [link.device("ab"[j % 2]) for j in range(devices)]
        for device, values in zip(some, self.values, strict=True):
            for i, y in enumerate(values):
                device.record({"y": float(y)})
                if i == 0:
                    device.report()  # moments of one device come in several messages
        for j in range(ghosts):
            ghost = link.device("aab"[j % 3])
            ghost.record({"y": 0.0})
            wait_for(ghost)  # which enrols
        _report(some)
        service.end(name, EndRequest(deadline=600))
        _report(some[: devices - silent])
        self.answer: Answer = service.end(name, EndRequest(deadline=0))
        self.effects = fa.Effects.from_json(bytes(self.answer.effects))


def _report(devices: list[Device]) -> None:
    for _ in range(3):  # a cohort has to come together
        for device in devices:
            device.report()


def test_devices_that_never_sent_anything_change_no_error_and_are_told_in_round_numbers(service: Service) -> None:
    alone, haunted = Run(service, "alone", devices=41), Run(service, "haunted", devices=41, ghosts=19)
    assert haunted.answer.federated is not None
    assert sum(haunted.answer.federated.missing.values()) == 19
    assert len(alone.effects) == len(haunted.effects) > 0
    for row, other in zip(alone.effects, haunted.effects, strict=True):
        assert (row.estimate, row.std_error, row.df) == (other.estimate, other.std_error, other.df)
        assert 15 < known(row.df) <= 39
    told = " ".join(haunted.effects.notes)
    assert "60 enrolled, 40 with records in the effects, 40 replied (a 20 of 20, b 20 of 20)." in told
    assert "Each of these counts is rounded" in told
    assert (
        "Not in the effects: 20 enrolled devices, which sent no moments before the end, or whose moments waited" in told
    )
    assert "Integrity: all here" in told
    assert "missing replies" not in told


def test_the_errors_are_scaled_from_the_replied_to_those_in_the_coefficients(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By hand from the records: in each arm Σ u² over those that replied, times in the moments over replied."""
    monkeypatch.setattr(type(MODES["scores"]).results, "__defaults__", (OWN,))
    run = Run(service, "both", devices=40, ghosts=9, silent=10)
    parts = []
    for arm in range(2):
        mine = run.values[arm::2]
        replied = mine[:15]
        records = np.concatenate(mine)
        sums = np.array([np.sum(values - records.mean()) for values in replied])
        parts.append(np.sum(sums**2) / len(records) ** 2 * len(mine) / len(replied))
    (row,) = run.effects.filter(estimator="difference", se_kind="CR0")
    assert row.std_error == pytest.approx(np.sqrt(sum(parts)), rel=1e-9)
    assert row.df == pytest.approx(welch_degrees(parts, [15, 15]))  # the error is known from those that replied
    told = " ".join(run.effects.notes)
    assert "49 enrolled, 40 with records in the effects, 30 replied" in told
    assert "rounded" not in told
    assert "Not in the effects: 9 enrolled devices" in told
    assert "10 missing replies" in told
