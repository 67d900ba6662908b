"""A device's state in its store, changed a step at a time, and never with records that were kept for too long."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from foldaway.errors import StateError, instead_of
from foldaway.federated.device.local_store import LocalStore
from foldaway.federated.device.state import DeviceState, DeviceStatus, Forgotten, MemoryStore, Stage, Standing
from foldaway.federated.modes import mode_of
from foldaway.plan import Plan

DeviceStore = LocalStore | MemoryStore
"""Where a device keeps its state; all that happens between ``changing`` and its end happens, or nothing does."""


class Custody:
    """What a device holds of one trial."""

    def __init__(self, plan: Plan, store: DeviceStore) -> None:
        self.plan = plan
        self.store = store
        self._mode = mode_of(plan)

    @contextmanager
    def changing(self) -> Iterator[DeviceState]:
        """The state, to be changed in one step; StateError if the device has forgotten it."""
        gone = StateError(f"this device has forgotten the trial {self.plan.name}, and cannot take part in it again.")
        with instead_of(Forgotten, gone), self.unexpired() as state:
            yield state

    @contextmanager
    def unexpired(self) -> Iterator[DeviceState]:
        """The state, to be changed in one step; without records that have been kept for too long.

        These go in a step of their own: whatever is refused next, they are gone.
        """
        with self.store.changing() as state:
            if not state.expired(self.plan.privacy.retention, time.time()):
                yield state
                return
            leaving = state.stage == "leaving"  # it was told to forget, and has waited for its report long enough
            if not leaving:
                state.expire(waiting=bool(self.store.waiting()))
                self.store.drop_records()
        if leaving:
            self.erase()
            raise Forgotten
        with self.store.changing() as state:
            yield state

    @property
    def status(self) -> DeviceStatus:
        """Where the device stands, as far as it knows without asking."""
        try:
            with self.unexpired() as state:
                return self.status_of(state)
        except Forgotten:
            return DeviceStatus(self.plan.name, "forgotten", 0)

    def status_of(self, state: DeviceState) -> DeviceStatus:
        """The same from the state, within a change."""
        standing: Standing
        if state.stage in ("leaving", "counted", "missed", "expired", "expired while pending"):
            standing = state.stage
        elif state.stage == "reporting" or self.store.waiting():
            standing = "pending"
        elif state.records and self._mode.replies and not self.store.unsent():
            standing = "waiting for coefficients"
        else:
            standing = "enrolled" if state.enrolled else "new"
        return DeviceStatus(self.plan.name, standing, state.records)

    def end(self, stage: Stage) -> DeviceStatus:
        """The device's part is over: what it kept of its records goes."""
        with self.changing() as state:
            self.store.drop_records()
            if stage != "missed" or state.stage not in ("expired", "expired while pending"):  # which say more
                state.end(stage)
            return self.status_of(state)

    def leave(self) -> bool:
        """Delete all but what was reported and is not known to be durable; whether there is such a thing."""
        try:
            with self.unexpired() as state:
                if not state.report and not self.store.waiting():
                    return False
                self.store.drop_records(messages=False)
                state.stage, state.identity, state.records, state.sums = "leaving", b"", 0, b""
                return True
        except Forgotten:
            return False

    def erase(self) -> None:
        """Delete everything, for good."""
        self.store.erase(self.plan.fingerprint)
