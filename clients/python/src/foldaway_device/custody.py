"""What a device holds of one trial, changed a step at a time, and never with records that were kept for too long."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from foldaway_device.errors import StateError
from foldaway_device.state import State, Store
from foldaway_device.status import ENDED, Standing, Status


class Forgotten(StateError):
    """The trial was forgotten."""


class Custody:
    """What a device holds of one trial."""

    def __init__(self, trial: str, store: Store) -> None:
        self.trial = trial
        self._store = store

    @contextmanager
    def changing(self) -> Iterator[State]:
        """The state, to be changed in one step.

        Raises:
            Forgotten: The device has forgotten the trial.
            StateError: The storage cannot be used.
        """
        with self._unexpired() as state:
            if state.stage == "forgotten":
                raise Forgotten(f"this device has forgotten the trial {self.trial}, and cannot take part in it again.")
            yield state

    @contextmanager
    def _unexpired(self) -> Iterator[State]:
        with self._store.changing(self.trial) as held:
            state = self._there(held.state)
            if not state.expire(time.time()):
                yield state
                return
        with self._store.changing(self.trial) as held:  # whatever is refused next, what was kept for too long is gone
            yield self._there(held.state)

    def _there(self, state: State | None) -> State:
        if state is None:
            raise StateError("the storage was cleared, and with it all that this device knew: open it again.")
        return state

    @property
    def status(self) -> Status:
        """Where the device stands, as far as it knows without asking."""
        with self._unexpired() as state:
            return self.status_of(state)

    def status_of(self, state: State) -> Status:
        """The same from the state, within a change."""
        standing: Standing
        if state.stage == "reporting" or (state.stage == "collecting" and state.moments):
            standing = "pending"
        elif state.stage != "collecting":
            standing = state.stage
        elif state.covered and not state.fresh:
            standing = "waiting for coefficients"
        else:
            standing = "enrolled" if state.enrolled else "new"
        return Status(self.trial, standing, state.records)

    def end(self, how: Literal["counted", "missed", "withdrawn", "withdrawn too late"]) -> Status:
        """The device's part is over, and what it kept of its records goes; all of it, if the device is leaving."""
        with self._unexpired() as state:
            # What has ended stays as it ended, and whoever withdraws has only that to do.
            if (state.stage == "withdrawing") == how.startswith("withdrawn") and state.stage not in ENDED:
                if state.leaves:
                    state.forget()
                else:
                    state.end(how)
            return self.status_of(state)

    def withdraw(self) -> None:
        """Be withdrawn, if no report was made; else have it to take out.

        Raises:
            StateError: The report may be counted, and is kept no longer.
        """
        with self.changing() as state:
            if state.stage == "collecting":
                state.end("withdrawn")
            elif state.report:
                state.stage = "withdrawing"
            elif state.stage in ("counted", "expired while pending"):
                raise StateError(
                    "the report cannot be withdrawn, because this device did not keep it: report(keep_report=True) "
                    "keeps it until the plan's retention is over."
                )

    def forget(self, *, keep_report: bool) -> None:
        """Delete everything but the mark; or all but a report, or moments, that are not known to be safe."""
        try:
            with self._unexpired() as state:
                if keep_report and state.stage not in ENDED and (state.report or state.moments):
                    state.drop()
                    state.stage = "withdrawing" if state.stage == "withdrawing" else "leaving"
                    state.identity, state.records = "", 0
                else:
                    state.forget()
        except StateError:  # damaged: whatever is in it goes, read or not
            self._store.destroy(self.trial)
