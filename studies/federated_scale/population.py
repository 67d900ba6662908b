"""The simulated world: who takes part, what they record, who drops out or is late. All follows from a seed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np

from foldaway.numerics.block import Floats
from foldaway.plan import Plan, Privacy
from foldaway.plan.arms import public_arm
from foldaway.plan.vocabulary import MODES

Role = Literal["reports", "drops out", "is late"]

EFFECT = 0.3

# As in a plan that does not say.
_COHORT, _LEAST = 100, 10

# Clients that are drawn together, from a generator of their own.
CHUNK = 500


class World(msgspec.Struct, frozen=True):
    """What is simulated.

    Attributes:
        clients: How many devices take part.
        mode: What they send.
        drop_out: The share of devices that never report.
        late: The share of devices that report after the end.
        seed: Chooses everything but the report numbers.
        ask_again: The share of devices that ask after the end whether their report was counted; where these are
            replies, all do.
    """

    clients: int
    mode: str = "one-message"
    drop_out: float = 0.0
    late: float = 0.0
    seed: int = 0
    ask_again: float = 1.0

    @property
    def plan(self) -> Plan:
        """The plan of the trial. With few clients its cohorts are small, so that each arm has one."""
        cohort = max(1, min(_COHORT, self.clients // 4))
        adjusted = Plan(
            name="simulated",
            arm="variant",
            arms={"control": 0.5, "treatment": 0.5},
            outcomes=["revenue"],
            covariates=["revenue_before"],
            privacy=Privacy(cohort=cohort, smallest_cell=min(_LEAST, cohort)),
        )
        covariates = adjusted.covariates if MODES[self.mode].suits(adjusted) else []
        return msgspec.structs.replace(adjusted, covariates=covariates, federated=self.mode)

    @property
    def replies(self) -> bool:
        """Whether devices report by replying to what is published at the end."""
        return MODES[self.mode].at_end

    @property
    def chunks(self) -> range:
        """The first client of every chunk."""
        return range(0, self.clients, CHUNK)


class Client(NamedTuple):
    """A device, and the person who has it."""

    number: int
    identity: bytes
    role: Role
    records: list[dict[str, Any]]


def clients(world: World, plan: Plan, start: int) -> Iterator[Client]:
    """The clients of the chunk that begins with this one; one to five records each, alike within a client.

    Revenue is revenue before plus a disposition of the client's own, and the effect under treatment.
    """
    rng = np.random.default_rng([world.seed, start])
    # Every draw is of full length, so that a smaller trial is the beginning of a larger one.
    sizes = rng.integers(1, 6, CHUNK)
    disposition, chance = rng.normal(size=CHUNK), rng.random(CHUNK)
    noise = rng.normal(size=(CHUNK, 5, 2))
    for i in range(min(CHUNK, world.clients - start)):
        identity = hashlib.blake2b(f"{world.seed} {start + i}".encode(), digest_size=16).digest()
        treated = public_arm(plan.arms, plan.fingerprint, identity) == "treatment"
        before: Floats = 10 + disposition[i] + noise[i, : sizes[i], 0]
        revenue = before / 2 + disposition[i] + EFFECT * treated + noise[i, : sizes[i], 1] * (1 + treated / 2)
        columns = {"revenue": revenue.tolist(), "revenue_before": before.tolist()}
        names = [*plan.measured, *plan.covariates]
        records = [{name: columns[name][r] for name in names} for r in range(sizes[i])]
        role: Role = "is late" if chance[i] < world.drop_out + world.late else "reports"
        yield Client(start + i, identity, "drops out" if chance[i] < world.drop_out else role, records)
