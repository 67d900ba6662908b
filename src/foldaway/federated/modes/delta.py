"""Mode delta: a device keeps a count and sums of its outcomes, and sends these once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from foldaway.federated.messages import MOST_RECORDS, Sums, encoded, packed, unpacked
from foldaway.federated.modes.mode import OneRound, longest_arm, many
from foldaway.numerics.block import Floats
from foldaway.plan import Plan


class Delta(OneRound):
    """Enough for a difference of means and its clustered error, the paper's delta method; for nothing else."""

    name = "delta"
    reports = Sums
    covariates = False

    def take_in(self, plan: Plan, sums: bytes, record: Floats) -> bytes:
        """The sums with one more record's outcomes."""
        outcomes = record[len(plan.regressors) : -1]
        return packed(unpacked(sums, len(outcomes)) + outcomes if sums else outcomes)

    def described(self, plan: Plan) -> str:
        """The count and the sums."""
        (message,) = self.longest(plan)
        sums, size = many(len(plan.outcomes), "sum"), many(len(encoded(message)), "byte")
        return f"a device keeps a count and {sums}, and no record. It sends them once, in at most {size}."

    def longest(self, plan: Plan) -> Sequence[Sums]:
        """The sums of as many records as a message may be of."""
        return [Sums.of(bytes(16), longest_arm(plan), MOST_RECORDS, np.zeros(len(plan.outcomes)))]
