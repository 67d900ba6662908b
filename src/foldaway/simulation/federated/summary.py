"""What a simulated trial came to: counts, speed, bytes, memory, and the effect beside that of kept rows."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from foldaway.least_squares import LeastSquares
from foldaway.numerics.block import Floats
from foldaway.plan.arms import public_arm
from foldaway.plan.vocabulary import SUMS
from foldaway.simulation.federated.population import World, clients
from foldaway.table import ABSENT, text_table


class KeptRows(NamedTuple):
    """What an analysis of kept rows says.

    Attributes:
        estimate: The effect of treatment.
        std_error: Its standard error, clustered by client (CR1).
        by: Who did the analysis.
    """

    estimate: float
    std_error: float
    by: str


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
        notes: What the effects say about who is in them.
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
    notes: Sequence[str]
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

    def to_json(self) -> str:
        """For machines."""
        rates = {
            "clients_per_second": self.world.clients / self.seconds,
            "messages_per_second": self.messages_per_second,
            "difference_of_estimates": self.differences[0],
            "difference_of_std_errors": self.differences[1],
        }
        return msgspec.json.encode({**msgspec.structs.asdict(self), **rates}).decode()

    def __str__(self) -> str:
        world = self.world
        apart, errors_apart = self.differences
        facts = [
            ["clients", f"{world.clients:,}"],
            ["  enrolled", f"{self.enrolled:,}"],
            ["  reported", f"{self.reported:,}"],
            ["  missing", f"{self.missing:,}"],
            ["seconds", f"{self.seconds:,.0f}"],
            ["clients per second", f"{world.clients / self.seconds:,.0f}"],
            ["messages", f"{sum(self.messages.values()):,}"],
            ["messages per second", f"{self.messages_per_second:,.0f}"],
            ["bytes of a report", f"{self.report_bytes:,.0f}"],
            [f"  {self.report_numbers} numbers of 8 bytes", f"{8 * self.report_numbers:,}"],
            ["  around them", f"{self.report_bytes - 8 * self.report_numbers:,.0f}"],
            ["bytes per client, all messages", f"{self.bytes_per_client:,.0f}"],
            ["coordinator's processor time per message", f"{1000 * self.work_per_message:.2f} ms"],
            ["coordinator's disk, bytes per client", f"{self.disk_per_client:,.0f}"],
            ["coordinator's memory at the start", _mebibytes(self.memory[0])],
            ["  at half time", _mebibytes(self.memory[1])],
            ["  at the end", _mebibytes(self.memory[-1])],
        ]
        answers = [
            ["foldaway, federated", f"{self.estimate:.6g}", f"{self.std_error:.6g}", ""],
            [
                self.kept.by,
                f"{self.kept.estimate:.6g}",
                f"{self.kept.std_error:.6g}",
                f"{max(apart, errors_apart):.1g} std. errors",
            ],
        ]
        parts = [
            f"A simulated trial in mode {world.mode}: {world.drop_out:.0%} drop out, {world.late:.0%} are late.",
            text_table(["what", "how much"], facts),
            text_table(["the effect, by", "effect", "std. error", "difference"], answers),
        ]
        return "\n\n".join([*parts, *(textwrap.fill(note, 80) for note in self._notes())])

    def _notes(self) -> Iterator[str]:
        yield from self.notes
        yield "A coordinator rounds what it tells, so foldaway and kept rows differ by rounding at the least."
        if self.world.replies and self.missing:
            yield (
                "The kept rows are those of all clients. Devices that are not in the effects are in none of foldaway's "
                "numbers, and missing replies are not in its standard errors."
            )
        if self.world.plan.keeps == SUMS:
            yield "The standard error comes from groups of devices, and differs from that of kept rows by chance."


def _mebibytes(count: int | None) -> str:
    return ABSENT if count is None else f"{count / 2**20:,.0f} MiB"


def analysed(world: World, *, reported_only: bool) -> KeptRows:
    """The regression on all rows, or on those of clients who report; without covariates, a mean in each arm."""
    X, y, client = _rows(world, reported_only)
    if X.shape[1] > 2:
        coef, error, by = _regression(X, y, client)
        return KeptRows(coef[1], error[1], by)
    control, treated = (_regression(X[mine, :1], y[mine], client[mine]) for mine in (X[:, 1] == 0, X[:, 1] == 1))
    return KeptRows(treated[0][0] - control[0][0], math.hypot(treated[1][0], control[1][0]), control[2])


def _regression(X: Floats, y: Floats, client: Floats) -> tuple[list[float], list[float], str]:
    """Coefficients, their errors, and who did it."""
    try:
        import statsmodels.api as sm
    except ModuleNotFoundError:
        fit = LeastSquares(["1", "treated", "before"][: X.shape[1]])
        fit.fold(X, y, cluster=client)
        return fit.coef.tolist(), fit.std_error("CR1").tolist(), "foldaway's LeastSquares on kept rows"
    fitted = sm.OLS(y, X).fit(cov_type="cluster", cov_kwds={"groups": client})
    return fitted.params.tolist(), fitted.bse.tolist(), "statsmodels on kept rows"


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
