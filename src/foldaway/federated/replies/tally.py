"""The tally of replies: sums over devices, of which nothing of a single one is left.

Effects are read from it as from a score tally, where scores are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, cast

import msgspec
import numpy as np

from foldaway.errors import EstimateError, StateError
from foldaway.federated.messages import unpacked
from foldaway.federated.replies.models import ReplySegment
from foldaway.keeping.state import Array, decode_part
from foldaway.numerics.block import Block, Floats
from foldaway.plan import Plan
from foldaway.plan.reported import estimators_of
from foldaway.tallies.moments import UNITS, ArmTally, Tally


class RepliesState(msgspec.Struct, array_like=True):
    """What is kept of an arm's replies."""

    n: int
    sums: Array
    products: Array


@dataclass(slots=True)
class Replies:
    """The replies of one arm's devices, summed. All are in the frame that was published, so none is ever re-based.

    Attributes:
        segments: The parts of a reply.
        n: How many devices have replied.
        sums: Σ u.
        products: Σ u u' for each part, flat, one after the other.
    """

    segments: Sequence[ReplySegment]
    n: int
    sums: Floats
    products: Floats

    @classmethod
    def empty(cls, segments: Sequence[ReplySegment]) -> Self:
        """No replies yet."""
        widths = [part.q * part.r for part in segments]
        return cls(segments, 0, np.zeros(sum(widths)), np.zeros(sum(width**2 for width in widths)))

    def fold(self, block: Block) -> Self:
        """Take replies in, one for each record of the block."""
        parts = [block.rows[part.place] for part in self.segments]
        products = np.concatenate([np.empty(0), *((part @ part.T).ravel() for part in parts)])
        sums = self.sums + block.rows.sum(axis=1)
        return type(self)(self.segments, self.n + len(block), sums, self.products + products)

    def __add__(self, other: Self) -> Self:
        """The sums of both sets of replies."""
        return type(self)(self.segments, self.n + other.n, self.sums + other.sums, self.products + other.products)

    def product(self, segment: ReplySegment) -> Floats:
        """Σ u u' of one part."""
        start, width = segment.products_start, segment.q * segment.r
        return self.products[start : start + width**2].reshape(width, width)

    def state(self) -> RepliesState:
        """What is kept."""
        return RepliesState(self.n, Array.of(self.sums), Array.of(self.products))

    @classmethod
    def restore(cls, state: Any, segments: Sequence[ReplySegment]) -> Self:
        """The sums from their state."""
        part, empty = decode_part(state, RepliesState), cls.empty(segments)
        if part.n < 0:
            raise StateError("the state is damaged: its counts do not fit.")
        return cls(segments, part.n, part.sums.read(*empty.sums.shape), part.products.read(*empty.products.shape))


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
    products: dict[int, tuple[ReplySegment, Floats]]

    squared_sums = None  # replies do not tell

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

    def _combined(self, segment: ReplySegment, product: Floats, delta: Floats, scale: float) -> Floats:
        """By inverse probabilities: with n_j and u_j those of the reply, a device's score is c·u_j − t·n_j."""
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

    All is by arm; the moments are in the frame that was published, and the devices those whose records are in them.
    """
    return {
        name: [_scored(arm, place, name, replies[place], devices[place]) for place, arm in enumerate(arms)]
        for name in estimators_of(plan)
    }


def _scored(arm: ArmTally, place: int, name: str, replies: Replies, devices: int) -> ArmTally:
    products = {
        segment.model.outcome: (segment, replies.product(segment))
        for segment in replies.segments
        if segment.model.estimator == name
    }
    scores = CollectedScores(arm, place, max(devices, replies.n), replies.n, products)
    return replace(arm, tallies={UNITS: cast(Tally, scores)})
