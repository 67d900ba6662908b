"""What goes wrong by chance with devices, each of which is killed at any change of what it keeps."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any, Generic, Self, TypeVar

import foldaway as fa
from foldaway_device import Device
from foldaway_device.plan import read_plan
from foldaway_device.state import Held, Store


class Killed(BaseException):
    """The device's process has been killed."""


@dataclass
class Seen:
    """What every kind of schedule tells.

    Attributes:
        schedules: How many there were.
        devices: Devices that have recorded something.
        counted: Those that are in the final answer once.
        wrong: What must not be, a sentence each.
        events: What has happened, by kind.
    """

    schedules: int = 0
    devices: int = 0
    counted: int = 0
    wrong: list[str] = field(default_factory=list)
    events: Counter[str] = field(default_factory=Counter)

    def __iadd__(self, other: Self) -> Self:
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))
        return self


Done = TypeVar("Done")
Told = TypeVar("Told", bound=Seen)


class Inline:
    """What a device does beside its program, done at once: schedules have one thread."""

    def start(self, task: Callable[[], object]) -> None:
        task()

    def within(self, seconds: float, task: Callable[[], Done]) -> Done:
        return task()


class FragileStore:
    """A device's store that a kill may come before or after any change of."""

    def __init__(self, store: Store, strike: Callable[[str], None]) -> None:
        self._store = store
        self._strike = strike

    @contextmanager
    def changing(self, trial: str) -> Iterator[Held]:
        with self._store.changing(trial) as held:
            yield held
            self._strike("killed before a change")
        self._strike("killed after a change")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class Mishaps(Generic[Told]):
    """One trial in which things go wrong, and its devices' link to where they report.

    Args:
        chance: What goes wrong, and when.
        plan: The plan.
        stores: Those of its devices, which outlive their kills.
        tale: What it will tell.
        kills: How likely a device is killed wherever it may be.
    """

    def __init__(
        self, chance: random.Random, plan: fa.Plan, stores: Sequence[Store], tale: Told, *, kills: float
    ) -> None:
        self._chance, self.plan, self._stores, self.tale, self._kills = chance, plan, stores, tale, kills
        self._devices: list[Device | None] = [None] * len(stores)
        self._calm = False

    def _strike(self, what: str) -> None:
        if self._happens(what, self._kills):
            raise Killed

    def _happens(self, what: str, likely: float) -> bool:
        if self._calm or self._chance.random() >= likely:
            return False
        self.tale.events[what] += 1
        return True

    def expect(self, fingerprint: str) -> None:
        assert fingerprint == self.plan.fingerprint

    def ask(self, method: str, path: str, body: bytes | None = None, *, until: float) -> bytes:
        raise NotImplementedError

    def _device(self, i: int) -> Device:
        found = self._devices[i]
        if found is None:
            store = FragileStore(self._stores[i], self._strike)
            found = Device(self.plan.name, store, read_plan(self.plan.canonical()), self)
            found._beside = Inline()  # type: ignore[assignment]
            self._devices[i] = found
        return found

    def _require(self, is_so: bool, otherwise: str) -> None:
        if not is_so:
            self.tale.wrong.append(otherwise)
