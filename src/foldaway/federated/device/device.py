"""A device: its arm, its records, its one report. What it keeps survives restarts, and kills at any moment."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import msgspec
import numpy as np

from foldaway.backoff import pauses
from foldaway.errors import CoordinatorWarning, PlanError, RecordError, ServerError, StateError, instead_of
from foldaway.federated.device.custody import Custody, DeviceStore
from foldaway.federated.device.local_store import LocalStore
from foldaway.federated.device.reporting import CLOSED, Connection, Reporting
from foldaway.federated.device.state import DeviceState, DeviceStatus, Forgotten
from foldaway.federated.link import Link, trial_address
from foldaway.federated.messages import packed
from foldaway.federated.modes import mode_of
from foldaway.forgetting.harden import forget_now
from foldaway.numerics.block import Floats
from foldaway.plan import Plan
from foldaway.plan.arms import public_arm
from foldaway.records import check
from foldaway.records.columns import REFUSED
from foldaway.records.faults import FaultyBatch

# Seconds that a record may be held up by the enrolment that goes with the first one.
_NOT_LONG = 5.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 30.0


class Device:
    """A device that takes part in a trial and keeps its records to itself, or keeps none.

    Args:
        plan: The plan, the path of its file, or the trial's address at its coordinator.
        folder: Where the device keeps its state, for its owner alone. It may hold other files, which are left alone,
            but must not be shared between devices.
        server: The address of the coordinator, or of the trial there; may be given later, as ``device.server``.
        token: The trial's ingest token; ``FOLDAWAY_TOKEN`` by default.
        patience: Seconds to go on trying while the coordinator does not answer.
        verify: A file with the certificate authority for https, or True for the system's.
        store: Where to keep the state in place of the folder, for simulations.
        link: How to talk to the coordinator in place of HTTP.

    Example:
        >>> import tempfile
        >>> plan = Plan(
        ...     name="demo", arm="group", arms={"a": 0.5, "b": 0.5}, outcomes=["y"], federated="one-message"
        ... )
        >>> folder = tempfile.TemporaryDirectory()
        >>> device = Device(plan, folder.name)
        >>> device.arm in plan.arms
        True
        >>> device.record({"y": 12.5})
        >>> print(Device(plan, folder.name).status)
        demo: new (1 record taken): the coordinator does not know of it yet.
        >>> device.forget()
        >>> print(device.status)
        demo: forgotten (0 records taken): everything was deleted; it cannot take part in this trial again.
        >>> folder.cleanup()
    """

    def __init__(
        self,
        plan: Plan | str | Path,
        folder: str | Path = "~/.foldaway",
        *,
        server: str | None = None,
        token: str | None = None,
        patience: float = 60.0,
        verify: str | bool = True,
        store: DeviceStore | None = None,
        link: Link | None = None,
    ) -> None:
        self._connection = Connection(server, token, patience, verify, link)
        if store is None:
            self.plan, self._store = self._open(plan, Path(folder).expanduser())
        elif isinstance(plan, Plan):
            self.plan, self._store = plan, store
        else:
            raise TypeError("a device with a store of its own is made from a plan.")
        self._mode = mode_of(self.plan)
        self._custody = Custody(self.plan, self._store)
        self._reporting = Reporting(self._custody, self._connection)
        # A device has nowhere to count the faulty records that it leaves out, so it refuses them.
        self._checking = msgspec.structs.replace(self.plan, drop_limit=0) if self.plan.drops else self.plan
        self._arm: str | None = None

    def _open(self, plan: Plan | str | Path, folder: Path) -> tuple[Plan, DeviceStore]:
        name = None
        if isinstance(plan, str) and plan.startswith(("http://", "https://")):
            self.server, name = trial_address(plan)
        elif not isinstance(plan, Plan):
            plan = Plan.load(plan)
        store = LocalStore(folder, plan.name if isinstance(plan, Plan) else str(name))
        known, usable = None, True
        try:
            known = store.plan()
        except StateError:  # whatever is asked of the device will say so, but it can be told to forget
            usable = False
        if not isinstance(plan, Plan):
            plan = known or self._connection.coordinator().plan()
        fingerprint = known.fingerprint if known is not None else store.forgotten
        if fingerprint and fingerprint != plan.fingerprint:
            raise PlanError(
                f"this device knows the trial {plan.name} under another plan; a plan never changes. If the other was a "
                f"mistake, remove {store.traces()} and begin anew."
            )
        if usable and fingerprint is None:
            mode_of(plan)  # before anything is written
            store.begin(DeviceState.new(plan))
        return plan, store

    @property
    def server(self) -> str | None:
        """The address of the coordinator, or of the trial there."""
        return self._connection.server

    @server.setter
    def server(self, address: str | None) -> None:
        self._connection.server = address

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection to the coordinator; it is made anew if it is needed again."""
        self._connection.close()

    @property
    def arm(self) -> str:
        """The device's arm, which it has worked out by itself from a random number that never leaves it."""
        if self._arm is None:
            with self._custody.changing() as state:
                if state.stage == "leaving":
                    raise Forgotten
                self._arm = public_arm(self.plan.arms, self.plan.fingerprint, state.identity)
        return self._arm

    @property
    def status(self) -> DeviceStatus:
        """Where the device stands, as far as it knows without asking."""
        return self._custody.status

    def record(self, record: Mapping[str, Any]) -> None:
        """Take a record in. In modes other than ``scores`` it is folded at once and not kept.

        With the first record, a device that knows its coordinator enrols there; if that cannot be reached, it
        does so when it reports.

        Args:
            record: The plan's columns; the arm's may be left out, and so may the unit's, which is the device.

        Raises:
            RecordError: The record is faulty; it was not taken, and the message does not repeat it.
            StateError: The device has reported, or has forgotten the trial.
        """
        row = self._checked(record)
        with self._custody.changing() as state:
            if state.stage == "leaving":
                raise Forgotten
            if state.stage != "collecting":
                once = f"this device has sent its report, and with that its part in {self.plan.name} has ended."
                why = once if state.stage in ("reporting", "counted") else self._custody.status_of(state)
                raise StateError(f"the record was not taken: {why}")
            if state.records >= self.plan.unit_records:
                most = f"{self.plan.unit_records:,} (`federated.device_records`)"
                raise RecordError(f"the record was not taken: the plan takes no more records of a device than {most}.")
            sums = self._mode.take_in(self.plan, state.sums, row)
            if sums is None:
                self._store.add_row(packed(row))
            else:
                state.sums = sums
            state.records += 1
            state.since = time.time() if state.since is None else state.since
            first = state.records == 1
        if first and self._connection.is_known:
            self._join()

    def _join(self) -> None:
        """Enrol with the first record, which is taken whatever comes of it: an error would say that it is not."""
        try:
            self.enrol(patience=_NOT_LONG)
        except ServerError as refused:
            if refused.status == CLOSED:
                self._custody.end("missed")
            if not refused.passes:
                warning = f"the record was taken, but the coordinator refuses this device: {refused}"
                warnings.warn(warning, CoordinatorWarning, stacklevel=3)

    def enrol(self, *, patience: float | None = None) -> None:
        """Tell the coordinator the number of the report to come, once; reporting does it if it was not done before."""
        self._reporting.enrol(self.arm, patience)

    def report(self, *, wait: float = 0.0) -> DeviceStatus:
        """Send what the plan's mode asks for at this point, once, and say where the device stands.

        In mode ``scores``, while the trial is open: the moments of new records. After its close: the scores, and the
        records are no longer kept. In the other modes: what the records came to; it ends the device's part. Call it
        again, in this process or a later one, until the status is settled: nothing is ever counted twice.

        Args:
            wait: Seconds to go on asking until the status is settled.

        Raises:
            ServerError: The coordinator cannot be reached, or refuses. The device keeps what it has.
        """
        until, waits = time.monotonic() + wait, pauses(_FIRST_PAUSE, _LONGEST_PAUSE)
        while True:
            pause, status = next(waits), self._reporting.report()
            nothing = not status.records and status.state != "leaving"
            if status.settled or nothing or time.monotonic() + pause > until:
                return status
            time.sleep(pause)

    def forget(self, *, keep_report: bool = False) -> None:
        """Delete everything local, for good: what remains is a mark that the trial was forgotten.

        A report that the coordinator has, but has not yet made durable, may still be lost there with its memory; once
        forgotten it cannot be sent again, and the device is then missing. Wait until it is settled
        (``report(wait=…)``), or keep the report alone until then.

        Args:
            keep_report: Keep a report that is made and not known to be safe, as it is sent and under its number alone.
                The device is then ``leaving``, and a ``report()`` at any later time ends that. Records, and what was
                never reported, go at once all the same. In mode ``scores`` that is so for moments and for scores; who
                forgets before the close has no scores to send, and will be missing among the replies.
        """
        try:
            leaving = keep_report and self._custody.leave()
        except StateError:  # damaged: whatever is in it goes, read or not
            leaving = False
        if not leaving:
            self._custody.erase()
        self._arm = None
        forget_now()

    def _checked(self, record: Mapping[str, Any]) -> Floats:
        """The record's row z = [1, x, y], and its weight."""
        plan = self._checking
        if not isinstance(record, Mapping):
            raise RecordError("a device takes one record at a time, as a mapping from columns to values.")
        given = record.get(plan.arm)
        if given is not None and given != self.arm:
            raise RecordError(f"the record was not taken: its column {plan.arm!r} is not the arm of this device.")
        filled = {**record, plan.arm: self.arm}
        if plan.unit is not None:
            filled[plan.unit] = "this device"
        return checked_row(plan, filled)

    def __repr__(self) -> str:
        try:
            return f"Device: {self.status}"
        except StateError as damaged:  # a look at it must not fail
            return f"Device: {self.plan.name}: {damaged}"


def checked_row(plan: Plan, record: Mapping[str, Any]) -> Floats:
    """The row z = [1, x, y] of a record with all of the plan's columns, and its weight.

    Raises:
        RecordError: The record is faulty; the message does not repeat it.

    Example:
        >>> checked_row(Plan(name="d", arm="g", arms={"a": 0.5, "b": 0.5}, outcomes=["y"]), {"g": "a", "y": 2.5})
        array([1. , 2.5, 1. ])
    """
    with instead_of(RecordError, _of_one):
        batch, _ = check([record], plan)
    return np.append(batch.assemble(slice(0, 1))[:, 0], 1.0 if batch.weight is None else batch.weight[0])


def _of_one(error: RecordError) -> RecordError:
    """The refusal of a batch, as one of its only record."""
    if not isinstance(error, FaultyBatch):
        return RecordError(str(error).replace(REFUSED, "the record was not taken"))
    columns = [f"{column} ({', '.join(rules)})" for column, rules in error.faults.by_column().items()]
    return RecordError(f"the record was not taken: faulty in {'; '.join(columns)}. Correct it, and record it again.")
