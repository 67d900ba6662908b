"""What a simulated trial came to: counts, speed, bytes, memory, and the effect beside that of kept rows."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import msgspec
import numpy as np
import statsmodels.api as sm

from foldaway.numerics.block import Floats
from foldaway.plan.arms import public_arm
from studies.federated_scale.population import World, clients


class KeptRows(NamedTuple):
    """What an analysis of kept rows says.

    Attributes:
        estimate: The effect of treatment.
        std_error: Its standard error, clustered by client (CR1).
    """

    estimate: float
    std_error: float


class Summary(msgspec.Struct, frozen=True):
    """What a simulated trial came to.

    Attributes:
        world: What was simulated.
        seconds: From the first client to the last answer.
        states: How many devices ended in each state, as they know it.
        enrolled: Devices that the coordinator knows of.
        reported: Devices that it has counted.
        missing: Those that it has not.
        messages: Messages to the coordinator, by kind.
        report_bytes: Bytes of one report: 8 for each number, and what goes around them.
        report_numbers: The numbers in it.
        bytes_per_client: Bytes of all messages of a client, on average, without HTTP's own.
        memory: The coordinator's resident bytes at the start, at half time and at the end.
        disk: The bytes that the coordinator's files have grown by.
        worked: Seconds of processor time that it has used.
        integrity: What the replies' sum says, in mode scores.
        estimate: The effect of treatment.
        std_error: Its standard error (CR1).
        kept: The same from kept rows.
    """

    world: World
    seconds: float
    states: dict[str, int]
    enrolled: int
    reported: int
    missing: int
    messages: dict[str, int]
    report_bytes: float
    report_numbers: int
    bytes_per_client: float
    memory: list[int | None]
    disk: int
    worked: float
    integrity: dict[str, Any] | None
    estimate: float
    std_error: float
    kept: KeptRows

    @property
    def messages_per_second(self) -> float:
        """Messages that the coordinator has answered in a second."""
        return sum(self.messages.values()) / self.seconds

    @property
    def disk_per_client(self) -> float:
        """Bytes that a device has cost the coordinator's disk, with its numbers' index and all."""
        return self.disk / max(self.enrolled, 1)

    @property
    def work_per_message(self) -> float:
        """Seconds of processor time that a message has cost the coordinator."""
        return self.worked / sum(self.messages.values())

    @property
    def growth(self) -> float | None:
        """Bytes of memory per client that the coordinator has grown by in the second half, when it was warm."""
        _, middle, end = self.memory
        return None if middle is None or end is None else (end - middle) / (self.world.clients / 2)

    @property
    def differences(self) -> tuple[float, float]:
        """How far effect and error are from those of kept rows, relative to the error."""
        error = self.kept.std_error
        return abs(self.estimate - self.kept.estimate) / error, abs(self.std_error / error - 1)


def analysed(world: World, *, reported_only: bool) -> KeptRows:
    """The regression on all rows, or on those of clients who report; without covariates, a mean in each arm."""
    X, y, client = _rows(world, reported_only)
    if X.shape[1] > 2:
        coef, error = _regression(X, y, client)
        return KeptRows(coef[1], error[1])
    control, treated = (_regression(X[mine, :1], y[mine], client[mine]) for mine in (X[:, 1] == 0, X[:, 1] == 1))
    return KeptRows(treated[0][0] - control[0][0], math.hypot(treated[1][0], control[1][0]))


def _regression(X: Floats, y: Floats, client: Floats) -> tuple[list[float], list[float]]:
    """Coefficients and their errors, clustered by client, by statsmodels."""
    fitted = sm.OLS(y, X).fit(cov_type="cluster", cov_kwds={"groups": client})
    return fitted.params.tolist(), fitted.bse.tolist()


def _rows(world: World, reported_only: bool) -> tuple[Floats, Floats, Floats]:
    plan = world.plan
    rows: list[list[float]] = []
    for start in world.chunks:
        for client in clients(world, plan, start):
            if reported_only and client.role != "reports":
                continue
            treated = float(public_arm(plan.arms, plan.fingerprint, client.identity) == "treatment")
            for record in client.records:
                before = [record["revenue_before"]] if plan.covariates else []
                rows.append([client.number, record["revenue"], 1.0, treated, *before])
    table = np.array(rows)
    return table[:, 2:], table[:, 1], table[:, 0]
