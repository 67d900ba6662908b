"""Effects from collected scores: the replies take the place that a score tally has where scores are kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import numpy as np

from foldaway.errors import EstimateError
from foldaway.federated.messages import unpacked
from foldaway.federated.replies.models import Segment
from foldaway.federated.replies.tally import Replies
from foldaway.numerics.block import Floats
from foldaway.plan import Plan
from foldaway.plan.offered import estimators_of
from foldaway.tallies import LEVERAGE, UNITS
from foldaway.tallies.arm import ArmTally
from foldaway.tallies.tally import Tally


@dataclass(slots=True)
class CollectedScores:
    """What an arm's devices have replied to one estimator's coefficients, in the arm's frame.

    Attributes:
        arm: The arm's tallies, in the frame that was published.
        place: Its place in the plan.
        clusters: The devices whose records are in the arm's moments, and so in the coefficients.
        scored: Those that have replied, from whose scores the error is estimated.
        products: By outcome, the part of the reply and its Σ u u'.
    """

    arm: ArmTally
    place: int
    clusters: int
    scored: int
    products: dict[int, tuple[Segment, Floats]] = field(default_factory=dict)

    @property
    def n(self) -> int:
        """The arm's records: their moments are all in the coefficients, whoever has replied."""
        return self.arm.n

    def meat(self, outcome: int, delta: Floats, scale: float = 1.0) -> Floats:
        """Σ_j u_j u_j', scaled up for those who have not replied, as if they were missing at random."""
        k = self.arm.shape.regressors
        meat = np.zeros((k, k))
        if not self.arm.n:
            return meat
        if not self.scored:
            raise EstimateError("no device of an arm has replied, so its part of the error is not known.")
        segment, product = self.products[outcome]
        if segment.r == 2:
            product = self._combined(segment, product, delta, scale)
        meat[: segment.q, : segment.q] = product * (self.clusters / self.scored)
        return meat

    def _combined(self, segment: Segment, product: Floats, delta: Floats, scale: float) -> Floats:
        """For ipw: with n_j and u_j those of the reply, a device's score is c·u_j − t·n_j."""
        k = self.arm.shape.regressors
        column = k + segment.model.outcome
        c = scale / self.arm.frame.F[column, column]
        t = delta[0] - c * unpacked(segment.model.deltas[self.place], k)[0]
        weights = np.array([-t, c])
        return np.atleast_2d(weights @ product @ weights)


def scored_arms(
    plan: Plan, arms: Sequence[ArmTally], replies: Sequence[Replies], devices: Sequence[int]
) -> dict[str, list[ArmTally]]:
    """By estimator, the arms with the scores that were collected for its coefficients.

    Args:
        plan: The plan.
        arms: The arms' moments, in the frame that was published.
        replies: The sums of the replies, by arm.
        devices: The devices whose records are in the moments, by arm.
    """
    return {
        name: [_scored(arm, place, name, replies[place], devices[place]) for place, arm in enumerate(arms)]
        for name in estimators_of(plan)
    }


def _scored(arm: ArmTally, place: int, name: str, replies: Replies, devices: int) -> ArmTally:
    plain, corrected = (CollectedScores(arm, place, max(devices, replies.n), replies.n) for _ in range(2))
    for segment in replies.segments:
        if segment.model.estimator == name:
            scores = corrected if segment.corrected else plain
            scores.products[segment.model.outcome] = segment, replies.product(segment)
    tallies = {UNITS: cast(Tally, plain)}
    if corrected.products:
        tallies[LEVERAGE] = cast(Tally, corrected)
    return replace(arm, tallies=tallies)
