"""What a device tells its coordinator: that it takes part, the moments of its records, its one report.

Whatever was sent is kept until it is durable and sent again under the same number, so that nothing is counted twice.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from foldaway.errors import ServerError
from foldaway.federated.device.custody import Custody
from foldaway.federated.device.state import DeviceStatus
from foldaway.federated.link import HttpLink, Link, trial_address
from foldaway.federated.messages import Enrolment, Kind, Received, decoded, encoded, new_number
from foldaway.federated.modes import mode_of
from foldaway.federated.modes.mode import Holding, moments
from foldaway.plan import Plan
from foldaway.plan.arms import device_group, public_arm

UNKNOWN, CLOSED = 404, 410
"""How a coordinator refuses a number that it does not know, and whatever comes after the end."""


@dataclass(repr=False)
class Connection:
    """How a device reaches its coordinator: made when it is first needed, from what the device was given."""

    server: str | None
    token: str | None
    patience: float
    verify: str | bool
    link: Link | None
    _own: HttpLink | None = None

    @property
    def is_known(self) -> bool:
        """Whether the device knows its coordinator."""
        return self.server is not None or self.link is not None

    def coordinator(self, trial: str | None = None) -> Link:
        """The coordinator, for the trial of this name, or the one in its address.

        Raises:
            ServerError: The device does not know it, or has no token for it.
        """
        if self.link is None:
            if self.server is None:
                raise ServerError("this device does not know its coordinator: give it as server=.")
            address, _ = trial_address(self.server, trial)
            token = self.token or os.environ.get("FOLDAWAY_TOKEN")
            if not token:
                raise ServerError("the coordinator wants a token: give it as token=, or in FOLDAWAY_TOKEN.", 401)
            self.link = self._own = HttpLink(address, token, patience=self.patience, verify=self.verify)
        return self.link

    def agreed(self, plan: Plan, patience: float | None = None) -> Link:
        """The coordinator, if it runs the trial under this device's plan: nothing is sent to any other."""
        link = self.coordinator(plan.name)
        if link.fingerprint(patience=patience) != plan.fingerprint:
            raise ServerError(
                f"the coordinator runs {plan.name} under another plan than this device's, so nothing was sent; "
                "compare the two with foldaway plan check, and take the trial's plan from its address.",
                409,
            )
        return link

    def close(self) -> None:
        """Close the connection; it is made anew if it is needed again."""
        if self._own is not None:
            self._own.close()
            self._own = self.link = None


class Reporting:
    """The messages of one device in one trial."""

    def __init__(self, custody: Custody, connection: Connection) -> None:
        self._custody = custody
        self._connection = connection
        self._plan = custody.plan
        self._mode = mode_of(custody.plan)

    def enrol(self, arm: str, patience: float | None = None) -> None:
        """Tell the coordinator the number of the report to come, once."""
        with self._custody.changing() as state:
            enrolled, number = state.enrolled, state.number
        if enrolled:
            return
        self._post("enrolments", encoded(Enrolment(number, arm)), patience)
        with self._custody.changing() as state:
            state.enrolled = True

    def report(self) -> DeviceStatus:
        """Send what the mode asks for at this point, and say where the device stands.

        Raises:
            ServerError: The coordinator cannot be reached, or refuses.
        """
        try:
            if (status := self._custody.status).state == "forgotten":
                return status
            with self._custody.changing() as state:
                stage, identity = state.stage, state.identity
                if stage != "leaving" and (not state.records or stage not in ("collecting", "reporting")):
                    return self._custody.status_of(state)
            if stage == "leaving":
                return self._report_and_go()
            arm = public_arm(self._plan.arms, self._plan.fingerprint, identity)
            with _But(CLOSED):  # a kill may have come between the enrolment and the note of it here
                self.enrol(arm)
            return self._report_in(arm)
        except ServerError as refused:
            if refused.status is None:
                raise ServerError(f"{refused} The device keeps what it has: report again later.") from None
            if refused.status != CLOSED:
                raise
        return self._custody.end("missed")

    def _report_and_go(self) -> DeviceStatus:
        """Send what is left of a device that has forgotten everything else, and forget that as soon as it is safe."""
        with self._custody.changing() as state:
            report = state.report
        durable = self._send_moments()
        if report:
            with _But(CLOSED):
                durable = self._send_report(report).durable and durable
        if durable:
            self._custody.erase()
        return self._custody.status

    def _report_in(self, arm: str) -> DeviceStatus:
        """As a device that still takes part."""
        published = None
        if self._mode.replies:
            if not self._send_moments():
                return self._custody.status
            with self._custody.changing() as state:
                replied = bool(state.report)
            if not replied and (published := self._connection.agreed(self._plan).coefficients()) is None:
                return self._custody.status
        with self._custody.changing() as state:
            if state.stage not in ("collecting", "reporting"):  # its time was up in between
                return self._custody.status_of(state)
            if not state.report:
                rows = self._custody.store.covered()
                group = device_group(self._plan.groups, self._plan.fingerprint, state.identity)
                holding = Holding(state.number, arm, group, state.records, state.sums, rows)
                if (message := self._mode.report(self._plan, holding, published)) is not None:
                    # From here on the report is what it is, and takes the records' place.
                    state.report, state.sums, state.stage = encoded(message), b"", "reporting"
                    self._custody.store.drop_records()
            report = state.report
        if not report:
            return self._custody.end("missed")  # nothing of it is in what was published
        return self._custody.end("counted") if self._send_report(report).durable else self._custody.status

    def _send_moments(self) -> bool:
        """Send the moments of new records, and again those that are not durable; whether all are now.

        Those that come too late are not in what is published, so their rows must not be in the reply either.
        """
        store, number = self._custody.store, new_number()
        with self._custody.changing() as state:
            if state.stage == "collecting" and (rows := store.unsent()):
                arm = public_arm(self._plan.arms, self._plan.fingerprint, state.identity)
                first = not store.waiting() and not store.covered()
                store.send_later(number, encoded(moments(number, arm, rows, first=first)))
            waiting = store.waiting()
        for number, message in waiting:
            durable = False  # and never will be, if it comes too late
            with _But(CLOSED):
                durable = self._post("moments", message).durable
                if not durable:
                    return False  # later ones must not be counted without the first, which counts the device
            with self._custody.changing():
                store.settle(number, durable=durable)
        with self._custody.changing():
            return not store.waiting()

    def _send_report(self, message: bytes) -> Received:
        with _But(UNKNOWN):
            return self._post("reports", message)
        # A coordinator that crashed may have lost an enrolment that it had not made durable.
        with self._custody.changing() as state:
            state.enrolled = False
        self.enrol(decoded(message, self._mode.reports).arm)
        return self._post("reports", message)

    def _post(self, kind: Kind, message: bytes, patience: float | None = None) -> Received:
        return self._connection.agreed(self._plan, patience).post(kind, message, patience=patience)


class _But:
    """Go on after a refusal with this status."""

    def __init__(self, status: int) -> None:
        self._status = status

    def __enter__(self) -> None:
        """Nothing is done."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        return isinstance(error, ServerError) and error.status == self._status
