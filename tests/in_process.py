"""Real devices and a real coordinator in one process: messages go from call to call, without HTTP."""

from __future__ import annotations

from typing import Any

import foldaway as fa
from devices import store_in
from foldaway.errors import FoldawayError, ServerError, TooEarly
from foldaway.federated import Device
from foldaway.federated.messages import Coefficients, Received
from foldaway.service.collecting.device_trials import DeviceTrials
from foldaway.service.collecting.service import Service
from foldaway.service.http.problems import of_error


def received(trials: DeviceTrials, name: str, kind: Any, message: bytes) -> Received:
    """Hand a message to a coordinator; a refusal is what it would be over HTTP."""
    try:
        (outcome,) = trials.receive(name, kind, [bytearray(message)])
    except FoldawayError as error:
        outcome = error
    if isinstance(outcome, Received):
        return outcome
    raise ServerError(str(outcome), of_error(outcome).status)


class DirectLink:
    """How devices talk to a service without HTTP."""

    def __init__(self, service: Service, plan: fa.Plan) -> None:
        self.service = service
        self._plan = plan

    def plan(self) -> fa.Plan:
        return self._plan

    def fingerprint(self, *, patience: float | None = None) -> str:
        return self._plan.fingerprint

    def post(self, kind: Any, message: bytes, *, patience: float | None = None) -> Received:
        return received(self.service.devices, self._plan.name, kind, message)

    def coefficients(self) -> Coefficients | None:
        try:
            return self.service.devices.coefficients(self._plan.name)
        except TooEarly:
            return None
        except FoldawayError as error:
            raise ServerError(str(error), of_error(error).status) from None

    def device(self, arm: str) -> Device:
        """A device in this arm."""
        return Device(self._plan, store=store_in(self._plan, arm), link=self)
