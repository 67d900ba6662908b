"""The two servers of a trial in mode shares, in one process: requests between them go from call to call."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

import foldaway as fa
from devices import device_in
from foldaway.errors import FoldawayError
from foldaway.federated.coordinator.ending import EndRequest
from foldaway.federated.messages import Closing, ReportBatch, decoded, new_number
from foldaway.federated.summands.publishing import LEAST_GROUPS
from foldaway.federated.summands.sealing import KeyPair, Role
from foldaway.plan.arms import device_group, public_arm
from foldaway.service.collecting.answers import Answers
from foldaway.service.collecting.device_endings import DeviceEndings
from foldaway.service.collecting.device_trials import DeviceTrials
from foldaway.service.collecting.pair import Asks, Pair
from foldaway.service.collecting.posting import Post
from foldaway.service.database.store import Store as Database
from foldaway.service.http.problems import of_error
from foldaway.service.keys.vault import Vault
from foldaway_device import Device
from foldaway_device.floats import base64
from foldaway_device.link import Link
from foldaway_device.plan import read_plan
from foldaway_device.state import MemoryStore, Store
from plans import in_parts

KEYS: dict[Role, KeyPair] = {"leader": KeyPair.new(), "helper": KeyPair.new()}

GROUPS = LEAST_GROUPS

_VAULT = Vault([bytes(range(32))])


def shared(urls: tuple[str, str] = ("http://leader.example", "http://helper.example"), **settings: Any) -> fa.Plan:
    """A plan in mode shares, of these servers and keys."""
    keys = settings.pop("keys", [b64encode(KEYS[role].public).decode() for role in ("leader", "helper")])
    servers = [{"url": url, "key": key} for url, key in zip(urls, keys, strict=True)]
    given: dict[str, Any] = {
        "name": "shared",
        "arm": "group",
        "arms": {"a": 0.5, "b": 0.5},
        "outcomes": [fa.Mean("y", bounds=(-100, 100))],
        "expected_units": 1_000,
        "federated": {"mode": "shares", "device_records": settings.pop("device_records", 10), "servers": servers},
    }
    return fa.Plan(**in_parts(given | settings))


def device_of(plan: fa.Plan, arm: str, group: int, link: Link | None = None, store: Store | None = None) -> Device:
    """A new device in this arm and in one of the groups with these lowest bits, so that few devices fill `GROUPS`."""
    store = store or MemoryStore()
    device_in(plan, None, link, store)
    while True:
        identity = new_number()
        its = device_group(plan.groups, plan.fingerprint, identity) % GROUPS
        if (public_arm(plan.arms, plan.fingerprint, identity), its) == (arm, group):
            break
    with store.changing(plan.name) as held:
        assert held.state is not None
        held.state.identity = base64(identity)
    return Device(plan.name, store, read_plan(plan.canonical()), link)


class OneServer:
    """One of the two, which forgets what is not durable when it crashes."""

    def __init__(self, folder: Path, plan: fa.Plan, role: Role, post: Post | None = None) -> None:
        self._folder, self._role, self._post = folder, role, post
        self.plan = plan
        self.crash()
        self.trials.partner(plan)
        self.store.create_trial(plan, None)

    def crash(self) -> None:
        """Start again from what is durable."""
        self.store = Database.open(str(self._folder), _VAULT)
        self.answers = Answers(self.store)
        self.trials = DeviceTrials(self.store, "main", self.answers, Pair(self._role, KEYS[self._role], self._post))
        self.endings = DeviceEndings(self.store, self.answers, self.trials)


class TwoServers:
    """Both.

    Args:
        folder: An empty folder.
        plan: What ``shared`` gives.
        between: Called with each request, and what brings it to the helper.
    """

    def __init__(
        self,
        folder: Path,
        plan: fa.Plan,
        between: Callable[[Callable[[], tuple[int, bytes, str]]], tuple[int, bytes, str]] = lambda ask: ask(),
    ) -> None:
        self.plan, self._between = plan, between
        self.traffic: list[tuple[str, bytes, str]] = []
        self.helper = OneServer(folder / "helper", plan, "helper")
        self.leader = OneServer(folder / "leader", plan, "leader", self._post)

    def _post(self, url: str, data: bytes, proof: str) -> tuple[int, bytes, str]:
        self.traffic.append((url, data, proof))
        return self._between(lambda: self.deliver(url, data, proof))

    def deliver(self, url: str, data: bytes, proof: str) -> tuple[int, bytes, str]:
        """What ``pair_routes`` does."""
        trials = self.helper.trials
        what: Asks = "batches" if url.endswith("/batches") else "closing"
        try:
            partner = trials.helped(self.plan.name)
            asked = partner.asked(what, proof)
            assert asked == sha256(data).digest()
            desk = trials.helper(self.plan.name)
            found: Any
            if what == "batches":
                found = desk.add(decoded(data, ReportBatch, most=None))
            else:
                found = desk.close(decoded(data, Closing, most=None))
        except FoldawayError as error:
            problem = of_error(error)
            return problem.status, msgspec.json.encode(problem), ""
        content = msgspec.json.encode(found)
        return 200, content, partner.answers(what, asked, content)

    def end(self, **request: Any) -> Any:
        """End the trial at its leader: the effects, exactly."""
        return self.leader.endings.end(self.plan, EndRequest(**request))
