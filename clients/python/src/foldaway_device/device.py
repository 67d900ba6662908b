"""A device: its arm, its records, its one report. What it keeps survives restarts, and kills at any moment."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from foldaway_device.beside import Beside
from foldaway_device.custody import Custody
from foldaway_device.draws import Drawn, draw
from foldaway_device.errors import FoldawayError, PlanError, RecordError, ServerError, StateError
from foldaway_device.floats import from_base64
from foldaway_device.folder import FolderStore
from foldaway_device.link import HttpLink, Link, pauses, trial_address
from foldaway_device.modes import mode_of
from foldaway_device.plan import Plan, read_plan
from foldaway_device.reporting import ENDED, Reporting, served_plan
from foldaway_device.rows import row_of
from foldaway_device.state import State, Store
from foldaway_device.status import Status

Part = TypeVar("Part")

# Seconds between two attempts to enrol beside the records, and for which each goes on trying.
_ENROL_AGAIN, _PATIENCE = 30.0, 10.0


class Device:
    """A device that takes part in a trial and keeps what its records come to; `Device.open` makes it or finds it.

    Example:
        >>> import tempfile
        >>> plan = (
        ...     b'{"name": "demo", "arm": "group", "arms": {"a": 0.5, "b": 0.5}, "outcomes": ["y"],'
        ...     b' "federated": {"mode": "sums"}}'
        ... )
        >>> folder = tempfile.TemporaryDirectory()
        >>> device = Device.open(plan, store=folder.name)
        >>> device.arm in ("a", "b")
        True
        >>> device.record({"y": 12.5})
        >>> print(Device.open(plan, store=folder.name).status)
        demo: new (1 record taken): the server does not know of it yet.
        >>> device.forget()
        >>> print(device.status)
        demo: forgotten (0 records taken): everything was deleted; it cannot take part in this trial again.
        >>> folder.cleanup()
    """

    def __init__(
        self,
        trial: str,
        store: Store,
        plan: Plan | None,
        link: Link | None,
        on_refusal: Callable[[FoldawayError], None] | None = None,
    ) -> None:
        """A device whose state is in the store already; without a plan if it has forgotten, or cannot read it."""
        self.trial = trial
        self._store = store
        self._plan = plan
        self._custody = Custody(trial, store)
        self._on_refusal = on_refusal or _warn
        self._drawn: Drawn | None = None
        self._reporting: Reporting | None = None
        self._beside = Beside()
        self._join_after = 0.0
        if plan is not None:
            with self._custody.changing() as state:
                self._drawn = draw(plan, from_base64(state.identity)) if state.identity else None
            if link is not None:
                self._reporting = Reporting(plan, self._custody, link)

    @classmethod
    def open(
        cls,
        trial: str | bytes | Path,
        *,
        token: str | None = None,
        invitation: str | None = None,
        plan: bytes | Path | None = None,
        store: str | os.PathLike[str] | Store = "~/.foldaway",
        timeout: float = 10.0,
        on_refusal: Callable[[FoldawayError], None] | None = None,
    ) -> Device:
        """The device of a folder for a trial. One that knows the plan, or is given it, needs no network.

        Args:
            trial: The trial's address; or, for a device that does not report yet, its plan.
            token: The trial's ingest token; ``FOLDAWAY_TOKEN`` by default.
            invitation: What the app's own server has given this device to join with, if the plan asks for it.
            plan: The plan's bytes as the server gives them out, or a file that holds them, to begin without a network.
            store: The folder where the device keeps its state; every device needs one of its own.
            timeout: Seconds to go on asking for the plan, if the device does not know it.
            on_refusal: Told when the server refuses this device while it takes records; a warning by default.

        Raises:
            PlanError: The address, the token or the plan cannot be used, or the device knows the trial under another
                plan.
            ServerError: The plan has to be asked for, and the server cannot be reached.
            StateError: The folder cannot be used.
        """
        link: Link | None = None
        if isinstance(trial, str):
            url, name = trial_address(trial)
            token = token if token is not None else os.environ.get("FOLDAWAY_TOKEN")
            if token is None:
                raise PlanError(
                    "the server wants a token: give the trial's ingest token as token=, or in FOLDAWAY_TOKEN."
                )
            link = HttpLink(url, token)
            given = None if plan is None else _read(plan)
        else:
            given = _read(trial)
            name = given.name
        if given is not None and given.name != name:
            raise PlanError("the plan is that of another trial than the one in the address.")
        kept_in = FolderStore(store) if isinstance(store, str | os.PathLike) else store
        kept: State | None = None
        try:
            if name in kept_in.trials():
                with kept_in.changing(name) as held:
                    kept = held.state
        except StateError:  # whatever is asked of the device will say so, but it can be told to forget
            return cls(name, kept_in, None, link, on_refusal)
        if given is not None:
            _require_same(given, kept)
        if kept is None:
            fresh = given or _asked(link, name, timeout)
            mode_of(fresh.mode)  # before anything is kept
            if fresh.invited and link is not None and not invitation:
                raise PlanError(
                    "this trial takes devices by invitation alone: get one from the app's server, and give it as "
                    "invitation=."
                )
            with kept_in.changing(name) as held:
                held.state = kept = held.state or State.new(fresh)  # another program may have been faster
            _require_same(fresh, kept)
        if invitation:
            with kept_in.changing(name) as held:
                if held.state is not None and held.state.stage == "collecting" and not held.state.enrolled:
                    held.state.invitation = invitation
        return cls(name, kept_in, read_plan(kept.plan.encode()) if kept.plan else None, link, on_refusal)

    @property
    def arm(self) -> str:
        """The device's arm, which it has worked out by itself from a random number that never leaves it."""
        return self._own(self._drawn).arm

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the plan."""
        return self._own(self._plan).fingerprint

    @property
    def status(self) -> Status:
        """Where the device stands, as far as it knows without asking."""
        return self._custody.status

    def record(self, record: Mapping[str, Any]) -> None:
        """Take a record in: it is folded into what the device keeps, and not kept. Never waits for the network.

        Args:
            record: The plan's columns; the arm's may be left out, and so may the unit's, which is the device.

        Raises:
            RecordError: The record is faulty; it was not taken, and the message does not repeat it.
            StateError: The device has reported, or has forgotten the trial.
        """
        plan = self._own(self._plan)
        row = row_of(plan, record, self.arm)
        with self._custody.changing() as state:
            if state.stage != "collecting":
                raise StateError(f"the record was not taken: {_why_not(self._custody.status_of(state))}")
            if state.records >= plan.device_records:
                raise RecordError(
                    "the record was not taken: the plan takes no more records of a device than "
                    f"{plan.device_records:,} (`federated.device_records`)."
                )
            state.sums = mode_of(plan.mode).take_in(plan, state.sums, row)
            state.records += 1
            state.fresh += 1
            state.until = state.until or time.time() + plan.retention
            enrolled = state.enrolled
        if not enrolled:
            self._join()

    def _join(self) -> None:
        """Enrol beside the records, which are taken whatever comes of it."""
        reporting, now = self._reporting, time.monotonic()
        if reporting is None or now < self._join_after:
            return
        self._join_after = now + _ENROL_AGAIN

        def enrol() -> None:
            try:
                reporting.enrol(time.monotonic() + _PATIENCE)
            except StateError:
                pass  # the next record or report says so
            except FoldawayError as refused:
                if isinstance(refused, ServerError) and refused.status == ENDED:
                    self._custody.end("missed")
                elif not (isinstance(refused, ServerError) and refused.passes):
                    self._on_refusal(refused)

        self._beside.start(enrol)

    def report(self, *, timeout: float = 10.0, wait: float = 0.0, keep_report: bool = False) -> Status:
        """Send what the plan's mode asks for at this point, once, and say where the device stands.

        In mode ``scores``, while the trial is open: the moments of new records; after its end: the scores. In the
        other modes: what the records came to; it ends the device's part. Call it again, in this process or a later
        one, until the status is settled: nothing is ever counted twice.

        Args:
            timeout: Seconds to wait for the server, at the most, however often it must be asked.
            wait: Seconds to go on asking until the status is settled, if that is longer.
            keep_report: Keep the report also when it is counted, as long as the plan's `retention` allows, so that
                the device can `withdraw` it.

        Raises:
            ServerError: The server cannot be reached, or refuses. The device keeps what it has.
        """
        if keep_report and not self.status.settled:
            with self._custody.changing() as state:
                state.keep = True
        return self._tell(timeout, wait)

    def withdraw(self, *, timeout: float = 10.0, wait: float = 0.0) -> Status:
        """Take the device out of the trial: until the trial ends, effects are as if it had never reported.

        A report that was counted is taken out together with others that come, or at the trial's end. Call it again, or
        `report`, in this process or a later one, until the status is settled: nothing is ever taken out twice.

        Args:
            timeout: Seconds to wait for the server, at the most.
            wait: Seconds to go on asking until the status is settled, if that is longer.

        Raises:
            StateError: The report may be counted, and the device has not kept it; or the plan is of mode ``scores``.
            ServerError: The server cannot be reached, or refuses. The device will withdraw when it is called again.
        """
        if mode_of(self._own(self._plan).mode).replies:
            raise StateError(
                "devices of the mode scores cannot withdraw, because the other devices' replies depend on it."
            )
        self._custody.withdraw()
        return self._tell(timeout, wait)

    def _tell(self, timeout: float, wait: float) -> Status:
        """Send what there is to send, and say where the device stands.

        Raises:
            ServerError: The server cannot be reached, or refuses.
        """
        if self._reporting is None:
            status = self.status
            if status.settled or self._plan is None:
                return status
            raise PlanError("this device does not know its server: open it with the trial's address.")
        reporting, most = self._reporting, max(timeout, wait)
        now = time.monotonic()
        try:
            return self._beside.within(most, lambda: _reported(reporting, now + most, now + wait))
        except TimeoutError:
            pass
        except ServerError as refused:
            if refused.status is None:
                raise ServerError(f"{refused} The device keeps what it has: report again later.") from None
            raise
        raise ServerError(
            f"the server has not answered within {most:g} seconds. The device keeps what it has: report again later."
        )

    def forget(self, *, keep_report: bool = False) -> None:
        """Delete everything, for good, but a mark by which the device knows that it must not take part again.

        A report that the server has, but has not yet made durable, may still be lost there with its memory; once
        forgotten it cannot be sent again, and the device is then missing. Wait until it is settled
        (``report(wait=…)``), or keep the report alone until then.

        Args:
            keep_report: Keep a report that is made and not known to be safe, as it is sent and under its number alone.
                The device is then ``leaving``, and a ``report()`` at any later time ends that. In mode ``scores`` that
                is so for moments, too.
        """
        self._custody.forget(keep_report=keep_report)
        self._drawn = None

    def _own(self, part: Part | None) -> Part:
        if part is None:
            raise StateError(f"this device has forgotten the trial {self.trial}, or what it kept cannot be read.")
        return part

    def __repr__(self) -> str:
        try:
            return f"Device: {self.status}"
        except StateError as damaged:  # a look at it must not fail
            return f"Device: {self.trial}: {damaged}"


def _reported(reporting: Reporting, until: float, settled_by: float) -> Status:
    """Where the device stands when it has reported; asked again, until then, as long as that is not settled."""
    for pause in pauses(0.2, 30.0):
        status = reporting.report(until)
        if status.nothing or time.monotonic() + pause > settled_by:
            return status
        time.sleep(pause)
    raise AssertionError


def _asked(link: Link | None, name: str, timeout: float) -> Plan:
    """The plan that the server gives out."""
    assert link is not None, "without an address there is a plan"
    try:
        plan = read_plan(Beside().within(timeout, lambda: served_plan(link, time.monotonic() + timeout)))
    except TimeoutError:
        raise ServerError(
            f"the server has not answered within {timeout:g} seconds: open the device again later."
        ) from None
    if plan.name != name:
        raise PlanError("the address answers with the plan of another trial.")
    return plan


def _read(plan: bytes | Path) -> Plan:
    if isinstance(plan, bytes):
        return read_plan(plan)
    try:
        return read_plan(plan.read_bytes())
    except OSError as error:
        raise PlanError(f"the plan {plan} cannot be read: {error.strerror}.") from None


def _require_same(plan: Plan, kept: State | None) -> None:
    if kept is not None and kept.fingerprint not in ("", plan.fingerprint):
        raise PlanError(f"this device knows the trial {plan.name} under another plan; a plan never changes.")


def _why_not(status: Status) -> str:
    if status.state in ("pending", "counted"):
        return "this device has sent its report, and its part has ended."
    return str(status)


def _warn(refused: FoldawayError) -> None:
    warnings.warn(f"the record was taken, but {refused}", RuntimeWarning, stacklevel=2)
