"""A device: its arm, its records, its one report. What it keeps survives restarts, and kills at any moment."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import msgspec

from foldaway.backoff import pauses
from foldaway.errors import CoordinatorWarning, PlanError, RecordError, ServerError, StateError, instead_of
from foldaway.federated.device import running
from foldaway.federated.device.checked import checked_row
from foldaway.federated.device.kept import Forgotten, Kept, Store
from foldaway.federated.device.local_store import LocalStore
from foldaway.federated.device.status import State, Status
from foldaway.federated.link import HttpLink, Link, trial_address
from foldaway.federated.messages import REPORTS, Coefficients, Enrolment, Received, decoded, encoded, new_number, packed
from foldaway.numerics.block import Floats
from foldaway.plan import Plan

UNKNOWN, CLOSED = 404, 410
"""How a coordinator refuses a number that it does not know, and whatever comes after the end."""

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
        store: Store | None = None,
        link: Link | None = None,
    ) -> None:
        self.server = server
        self._token = token
        self._patience = patience
        self._verify = verify
        self._link = link
        self._own_link: HttpLink | None = None
        if store is None:
            self.plan, self._store = self._open(plan, Path(folder).expanduser())
        elif isinstance(plan, Plan):
            self.plan, self._store = plan, store
        else:
            raise TypeError("a device with a store of its own is made from a plan.")
        _require_federated(self.plan)
        # A device has nowhere to count the faulty records that it leaves out, so it refuses them.
        strict = self.plan.on_fault == "refuse"
        self._checking = self.plan if strict else msgspec.structs.replace(self.plan, on_fault="refuse")
        self._arm: str | None = None

    def _open(self, plan: Plan | str | Path, folder: Path) -> tuple[Plan, Store]:
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
            plan = known or self._coordinator().plan()
        fingerprint = known.fingerprint if known is not None else store.forgotten
        if fingerprint and fingerprint != plan.fingerprint:
            raise PlanError(
                f"this device knows the trial {plan.name} under another plan; a plan never changes. If the other was a "
                f"mistake, remove {store.traces()} and begin anew."
            )
        if usable and fingerprint is None:
            _require_federated(plan)
            store.begin(Kept.new(plan))
        return plan, store

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection to the coordinator; it is made anew if it is needed again."""
        if self._own_link is not None:
            self._own_link.close()
            self._own_link = self._link = None

    @property
    def arm(self) -> str:
        """The device's arm, which it has worked out by itself from a random number that never leaves it."""
        if self._arm is None:
            with self._changing() as kept:
                if kept.stage == "leaving":
                    raise Forgotten
                self._arm = self.plan.assign(kept.identity)
        return self._arm

    @property
    def status(self) -> Status:
        """Where the device stands, as far as it knows without asking."""
        try:
            with self._unexpired() as kept:
                return self._status(kept)
        except Forgotten:
            return Status(self.plan.name, "forgotten", 0)

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
        numbers = self._checked(record)
        with self._changing() as kept:
            if kept.stage == "leaving":
                raise Forgotten
            if kept.stage != "collecting":
                raise StateError(f"the record was not taken: {self._status(kept)}")
            if self.plan.mode == "scores":
                self._store.add_row(packed(numbers))
            else:
                kept.sums = running.taken_in(self.plan, kept, numbers)
            kept.records += 1
            kept.since = time.time() if kept.since is None else kept.since
            first = kept.records == 1
        if first and (self.server is not None or self._link is not None):
            self._join()

    def _join(self) -> None:
        """Enrol with the first record, which is taken whatever comes of it: an error would say that it is not."""
        try:
            self.enrol(patience=_NOT_LONG)
        except ServerError as refused:
            if refused.status == CLOSED:
                self._end("missed")
            if not refused.passes:
                told = f"the record was taken, but the coordinator refuses this device: {refused}"
                warnings.warn(told, CoordinatorWarning, stacklevel=3)

    def enrol(self, *, patience: float | None = None) -> None:
        """Tell the coordinator the number of the report to come, once; reporting does it if it was not done before."""
        self._enrol(self.arm, patience)

    def _enrol(self, arm: str, patience: float | None = None) -> None:
        with self._changing() as kept:
            enrolled, number = kept.enrolled, kept.number
        if enrolled:
            return
        self._agreed(patience).post("enrolments", encoded(Enrolment(number, arm)), patience=patience)
        with self._changing() as kept:
            kept.enrolled = True

    def report(self, *, wait: float = 0.0) -> Status:
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
            pause, status = next(waits), self._report()
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
            records = self.status.records
        except StateError:  # damaged: whatever is in it goes, read or not
            records, keep_report = 1, False
        if not keep_report or not self._leave():
            self._store.erase(self.plan.fingerprint)
        self._arm = None
        if records:
            from foldaway.federated.device.decoys import overwrite

            overwrite(self._checking, records)

    def _leave(self) -> bool:
        """Delete all but what was reported and is not known to be durable; whether there is such a thing."""
        try:
            with self._unexpired() as kept:
                if not kept.report and not self._store.waiting():
                    return False
                self._store.drop_rows()
                kept.stage, kept.identity, kept.records, kept.sums = "leaving", b"", 0, b""
                return True
        except Forgotten:
            return False

    def _report(self) -> Status:
        try:
            if (status := self.status).state == "forgotten":
                return status
            with self._changing() as kept:
                stage = kept.stage
                if stage != "leaving" and (not kept.records or stage not in ("collecting", "reporting")):
                    return self._status(kept)
            if stage == "leaving":
                return self._report_and_go()
            with _But(CLOSED):  # a kill may have come between the enrolment and the note of it here
                self.enrol()
            return self._report_scores() if self.plan.mode == "scores" else self._report_sums()
        except ServerError as refused:
            if refused.status is None:
                told = f"{refused} The device keeps what it has: report again later."
                raise ServerError(told) from None
            if refused.status != CLOSED:
                raise
        return self._end("missed")

    def _report_and_go(self) -> Status:
        """Send what is left of a device that has forgotten everything else, and forget that as soon as it is safe."""
        with self._changing() as kept:
            report = kept.report
        durable = self._send_moments()
        if report:
            with _But(CLOSED):
                durable = self._send_report(report).durable and durable
        if durable:
            self._store.erase(self.plan.fingerprint)
        return self.status

    def _report_sums(self) -> Status:
        arm = self.arm
        with self._changing() as kept:
            if kept.stage == "collecting":
                kept.report, kept.sums = encoded(running.report(self.plan, kept, arm)), b""
                kept.stage = "reporting"  # from here on the report is what it is
            elif kept.stage != "reporting":  # its time was up while it enrolled
                return self._status(kept)
            report = kept.report
        return self._end("counted") if self._send_report(report).durable else self._stand("pending")

    def _report_scores(self) -> Status:
        if not self._send_moments():
            return self._stand("pending")
        with self._changing() as kept:
            report = kept.report
        if not report:
            published = self._agreed().coefficients()
            if published is None:
                return self._stand("waiting for coefficients")
            report = self._reply(published)
        if not report:
            return self._end("missed")  # nothing of it is in the coefficients
        return self._end("counted") if self._send_report(report).durable else self._stand("pending")

    def _reply(self, published: Coefficients) -> bytes:
        """The scores of all records that are in the coefficients, which takes the records' place; none without any."""
        arm = self.arm
        with self._changing() as kept:
            if not kept.report and (records := self._store.covered()):
                kept.report = encoded(running.scores(self.plan, published, kept.number, arm, records))
                kept.stage = "reporting"
                self._store.drop_records()
            return kept.report

    def _send_moments(self) -> bool:
        """Send the moments of new records, and again those that are not durable; whether all are now.

        Those that come too late are not in the coefficients, so their rows must not be in the scores either.
        """
        number = new_number()
        with self._changing() as kept:
            if kept.stage == "collecting" and (rows := self._store.unsent()):
                arm = self.plan.assign(kept.identity)
                first = not self._store.waiting() and not self._store.covered()
                self._store.send_later(number, encoded(running.moments(number, arm, rows, first=first)))
            waiting = self._store.waiting()
        for number, message in waiting:
            durable = self._send_moment(message)
            if durable is None:
                return False  # later ones must not be counted without the first, which counts the device
            with self._changing():
                self._store.settle(number, durable=durable)
        with self._changing():
            return not self._store.waiting()

    def _send_moment(self, message: bytes) -> bool | None:
        """Whether it is durable: True, or False if it never will be; None while nobody knows."""
        with _But(CLOSED):
            return self._agreed().post("moments", message).durable or None
        return False

    def _send_report(self, message: bytes) -> Received:
        with _But(UNKNOWN):
            return self._agreed().post("reports", message)
        # A coordinator that crashed may have lost an enrolment that it had not made durable.
        with self._changing() as kept:
            kept.enrolled = False
        self._enrol(decoded(message, REPORTS[self.plan.mode or ""]).arm)
        return self._agreed().post("reports", message)

    def _end(self, stage: Any) -> Status:
        """The device's part is over: what it kept of its records goes."""
        with self._changing() as kept:
            self._store.drop_records()
            if not (kept.has_expired and stage == "missed"):  # which says more
                kept.end(stage)
            return self._status(kept)

    def _stand(self, state: State) -> Status:
        with self._changing() as kept:
            return self._status(kept) if kept.has_expired else Status(self.plan.name, state, kept.records)

    def _status(self, kept: Kept) -> Status:
        state: State
        if kept.stage in ("leaving", "counted", "missed", "expired", "expired while pending"):
            state = kept.stage
        elif kept.stage == "reporting" or self._store.waiting():
            state = "pending"
        elif kept.records and self.plan.mode == "scores" and not self._store.unsent():
            state = "waiting for coefficients"
        else:
            state = "enrolled" if kept.enrolled else "new"
        return Status(self.plan.name, state, kept.records)

    @contextmanager
    def _changing(self) -> Iterator[Kept]:
        """The state, to be changed in one step; StateError if the device has forgotten it."""
        gone = StateError(f"this device has forgotten the trial {self.plan.name}, and cannot take part in it again.")
        with instead_of(Forgotten, gone), self._unexpired() as kept:
            yield kept

    @contextmanager
    def _unexpired(self) -> Iterator[Kept]:
        """The state, to be changed in one step; without records that have been kept for too long.

        These go in a step of their own: whatever is refused next, they are gone.
        """
        with self._store.changing() as kept:
            if not kept.expired(self.plan.privacy.retention, time.time()):
                yield kept
                return
            leaving = kept.stage == "leaving"  # it was told to forget, and has waited for its report long enough
            if not leaving:
                kept.expire(waiting=bool(self._store.waiting()))
                self._store.drop_records()
        if leaving:
            self._store.erase(self.plan.fingerprint)
            raise Forgotten
        with self._store.changing() as kept:
            yield kept

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

    def _coordinator(self) -> Link:
        if self._link is None:
            if self.server is None:
                raise ServerError("this device does not know its coordinator: give it as server=.")
            plan: Plan | None = getattr(self, "plan", None)
            address, _ = trial_address(self.server, None if plan is None else plan.name)
            token = self._token or os.environ.get("FOLDAWAY_TOKEN")
            if not token:
                raise ServerError("the coordinator wants a token: give it as token=, or in FOLDAWAY_TOKEN.", 401)
            self._link = self._own_link = HttpLink(address, token, patience=self._patience, verify=self._verify)
        return self._link

    def _agreed(self, patience: float | None = None) -> Link:
        """The coordinator, if it runs the trial under this device's plan: nothing is sent to any other."""
        link = self._coordinator()
        if link.fingerprint(patience=patience) != self.plan.fingerprint:
            raise ServerError(
                f"the coordinator runs {self.plan.name} under another plan than this device's, so nothing was sent; "
                "compare the two with foldaway plan check, and take the trial's plan from its address.",
                409,
            )
        return link

    def __repr__(self) -> str:
        try:
            return f"Device: {self.status}"
        except StateError as damaged:  # a look at it must not fail
            return f"Device: {self.plan.name}: {damaged}"


class _But:
    """Go on after a refusal with this status."""

    def __init__(self, status: int) -> None:
        self._status = status

    def __enter__(self) -> None:
        """Nothing is done."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        return isinstance(error, ServerError) and error.status == self._status


def _require_federated(plan: Plan) -> None:
    if plan.federated is None:
        raise PlanError(f"the plan {plan.name} does not say what devices send: it needs `federated`.")
