"""Mode one-message: a device keeps the triangular factor of its records, and sends that once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from foldaway.federated.messages import MOST_RECORDS, Moments, encoded
from foldaway.federated.modes.mode import OneRound, longest_arm, many, with_rows
from foldaway.numerics.block import Floats
from foldaway.plan import Plan


class OneMessage(OneRound):
    """The factor says all that clustered errors need, of any estimator; sites send tallies of many units."""

    name = "one-message"
    reports = Moments

    def take_in(self, plan: Plan, sums: bytes, record: Floats) -> bytes:
        """The factor with one more row."""
        columns = len(plan.columns)
        R = Moments(b"", "", 1, sums).triangle(columns) if sums else np.zeros((columns, columns))
        return Moments.of(b"", "", 1, with_rows(R, record[None, :])).factor

    def described(self, plan: Plan) -> str:
        """The factor."""
        (message,) = self.longest(plan)
        device = (
            f"a device keeps the triangular factor of its records, {many(len(message.factor) // 8, 'number')}, and no "
            f"record. It sends that once, in at most {many(len(encoded(message)), 'byte')}."
        )
        if plan.unit is None:
            return device
        return (
            f"{device} A site sends tallies, if every arm that has units has at least {plan.privacy.cohort:,} of them."
        )

    def longest(self, plan: Plan) -> Sequence[Moments]:
        """The factor of as many records as a message may be of."""
        columns = len(plan.columns)
        return [Moments.of(bytes(16), longest_arm(plan), MOST_RECORDS, np.zeros((columns, columns)))]
