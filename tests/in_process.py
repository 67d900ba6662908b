"""Real devices and a real coordinator in one process: messages go from call to call, without HTTP."""

from __future__ import annotations

from typing import Any

import msgspec

import foldaway as fa
from devices import device_in
from foldaway.errors import FoldawayError
from foldaway.service.collecting.device_trials import DeviceTrials
from foldaway.service.http.problems import of_error
from foldaway_device import Device, ServerError


class DirectLink:
    """How devices talk to a coordinator without HTTP; a refusal is what it would be over HTTP."""

    def __init__(self, trials: DeviceTrials, plan: fa.Plan) -> None:
        self.trials = trials
        self.plan = plan

    def expect(self, fingerprint: str) -> None:
        assert fingerprint == self.plan.fingerprint

    def ask(self, method: str, path: str, body: bytes | None = None, *, until: float) -> bytes:
        try:
            if path == "/plan":
                return self.plan.canonical()
            if path == "/coefficients":
                return msgspec.json.encode(self.trials.coefficients(self.plan.name))
            assert body is not None
            kind: Any = path.removeprefix("/")
            (outcome,) = self.trials.receive(self.plan.name, kind, [bytearray(body)])
            if isinstance(outcome, FoldawayError):
                raise outcome
            return msgspec.json.encode(outcome)
        except FoldawayError as error:
            raise ServerError(str(error), of_error(error).status) from None

    def device(self, arm: str) -> Device:
        """A device in this arm."""
        return device_in(self.plan, arm, self)
