"""What a device tells its server: that it takes part, the moments of its records, its one report.

Whatever was sent is kept until it is durable and sent again under the same number, so that nothing is counted twice.
"""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

from foldaway_device.custody import Custody
from foldaway_device.draws import Drawn, draw
from foldaway_device.errors import PlanError, ServerError
from foldaway_device.factor import merged
from foldaway_device.floats import from_base64, unpacked
from foldaway_device.link import Link
from foldaway_device.modes import mode_of
from foldaway_device.modes.mode import Holding
from foldaway_device.modes.one_message import moments
from foldaway_device.plan import Plan
from foldaway_device.state import State, new_number
from foldaway_device.status import Status

UNKNOWN, ENDED, TOO_EARLY = 404, 410, 425


class Reporting:
    """The messages of one device in one trial. Every `until` is a time of the monotonic clock."""

    def __init__(self, plan: Plan, custody: Custody, link: Link) -> None:
        self._plan = plan
        self._mode = mode_of(plan.mode)
        self._custody = custody
        self._link = link
        self._agreed = False

    def enrol(self, until: float) -> None:
        """Tell the server the number of the report to come, if it does not know it."""
        with self._custody.changing() as state:
            enrolled, number, identity = state.enrolled, state.number, state.identity
        if not enrolled and identity:
            self._enrol(number, self._drawn(identity).arm, until)

    def report(self, until: float) -> Status:
        """Send what there is to send, and say where the device stands.

        Raises:
            ServerError: The server cannot be reached, or refuses. The device keeps what it has.
        """
        status = self._custody.status
        if status.nothing:
            return status
        try:
            if status.state == "withdrawing":
                return self._withdraw(until)
            if status.state != "leaving":
                try:
                    self.enrol(until)
                except ServerError as refused:
                    if refused.status != ENDED:  # a kill may have come between an answer and the note of it here
                        raise
            return self._deliver(until)
        except ServerError as refused:
            if refused.status != ENDED:
                raise
        return self._custody.end("withdrawn too late" if status.state == "withdrawing" else "missed")

    def _withdraw(self, until: float) -> Status:
        with self._custody.changing() as state:
            report = state.report
        durable = not report or self._send(report, until, kind="withdrawals")
        return self._custody.end("withdrawn") if durable else self._custody.status

    def _deliver(self, until: float) -> Status:
        published = None
        if self._mode.replies:
            if not self._send_moments(until):
                return self._custody.status
            with self._custody.changing() as state:
                leaving, report = state.stage == "leaving", state.report
            if leaving and not report:
                return self._custody.end("counted")
            if not report and (published := self._coefficients(until)) is None:
                return self._custody.status
        with self._custody.changing() as state:
            if state.stage == "collecting":
                self._make(state, published)
            report = state.report if state.stage in ("reporting", "leaving") else ""
        if not report:
            return self._custody.status  # its time was up in between, or nothing of it is in what was published
        return self._custody.end("counted") if self._send(report, until) else self._custody.status

    def _make(self, state: State, published: dict[str, Any] | None) -> None:
        """Make the report, which takes the records' place."""
        sums, n = (state.covered, state.records) if self._mode.replies else (state.sums, state.fresh)
        if not sums:
            state.end("missed")
            return
        holding = Holding(state.number, *self._drawn(state.identity), n, sums)
        state.report = json.dumps(self._mode.report(self._plan, holding, published))
        state.drop()
        state.moments, state.stage = "", "reporting"

    def _send_moments(self, until: float) -> bool:
        """Send the moments of new records, once those sent before are durable; whether all are now.

        Those that come too late are not in what is published, so their records must not be in the reply either.
        """
        while True:
            with self._custody.changing() as state:
                if state.stage == "collecting" and state.fresh and not state.moments:
                    holding = Holding(new_number(), *self._drawn(state.identity), state.fresh, state.sums)
                    state.moments = json.dumps(moments(holding, first=not state.covered))
                    state.fresh, state.sums = 0, []
                waiting = state.moments
            if not waiting:
                return True
            try:
                durable, late = self._post("moments", waiting, until), False
            except ServerError as refused:
                if refused.status != ENDED:
                    raise
                durable, late = False, True
            if not durable and not late:
                return False
            with self._custody.changing() as state:
                if state.moments == waiting:  # another program may have been faster
                    state.moments = ""
                    if durable and state.stage == "collecting":
                        state.covered = merged(state.covered, unpacked(json.loads(waiting)["factor"]))

    def _coefficients(self, until: float) -> dict[str, Any] | None:
        """What the server has published; nothing while the trial is open."""
        self._agree(until)
        try:
            found = _json(self._link.ask("GET", "/coefficients", until=until))
        except ServerError as refused:
            if refused.status != TOO_EARLY:
                raise
            return None
        return found

    def _send(self, report: str, until: float, kind: str = "reports") -> bool:
        try:
            return self._post(kind, report, until)
        except ServerError as refused:
            if refused.status != UNKNOWN:
                raise
        # A server that crashed may have lost an enrolment that it had not made durable.
        message = json.loads(report)
        self._enrol(message["number"], message["arm"], until)
        return self._post(kind, report, until)

    def _enrol(self, number: str, arm: str, until: float) -> None:
        with self._custody.changing() as state:
            invitation = {"invitation": state.invitation} if state.invitation else {}
        self._post("enrolments", json.dumps({"number": number, "arm": arm, **invitation}), until)
        with self._custody.changing() as state:
            state.enrolled = True

    def _post(self, kind: str, message: str, until: float) -> bool:
        """Send a message to a server that runs the trial under this plan, and to no other; whether it is durable."""
        self._agree(until)
        durable = _json(self._link.ask("POST", f"/{kind}", message.encode(), until=until)).get("durable")
        if not isinstance(durable, bool):
            raise ServerError("the server's answer is not one that a device expects; is the address right?")
        return durable

    def _agree(self, until: float) -> None:
        if not self._agreed:
            if sha256(served_plan(self._link, until)).hexdigest() != self._plan.fingerprint:
                raise ServerError(
                    "the server runs this trial under another plan than this device's, so nothing was sent.", 409
                )
            self._link.expect(self._plan.fingerprint)
            self._agreed = True

    def _drawn(self, identity: str) -> Drawn:
        return draw(self._plan, from_base64(identity))


def served_plan(link: Link, until: float) -> bytes:
    """The plan's bytes, as the server gives them out."""
    try:
        return link.ask("GET", "/plan", until=until)
    except ServerError as refused:
        if refused.status not in (401, 403):
            raise
    raise PlanError(
        "the server rejects this token, or the trial's name is misspelt: give the trial's ingest token, which "
        "foldaway trial create has shown."
    )


def _json(answer: bytes) -> dict[str, Any]:
    try:
        found = json.loads(answer)
    except ValueError:
        found = None
    if isinstance(found, dict):
        return found
    raise ServerError("the server's answer is not JSON; is the address right, and does nobody answer in between?")
