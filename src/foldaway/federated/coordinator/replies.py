"""Replies in mode scores: what a device computes from its records, and the sums that are kept of all replies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import msgspec
import numpy as np

from foldaway.errors import MessageError, StateError
from foldaway.federated.coordinator.leverage import corrected_score
from foldaway.federated.coordinator.models import Segment, frame_of, readings, segments
from foldaway.federated.messages import Coefficients, Model, unpacked
from foldaway.keeping.state import Array, decode_part
from foldaway.numerics.block import Floats
from foldaway.numerics.linalg import frame_rows
from foldaway.plan import Plan


def reply(plan: Plan, published: Coefficients, arm: str, rows: Floats, weights: Floats | None = None) -> Floats:
    """A device's scores for every published model, to be sent as they are.

    Args:
        plan: The plan.
        published: What the coordinator has published.
        arm: The device's arm.
        rows: Its records z = [1, x, y], n by K.
        weights: Their observation weights, if the plan has them.
    """
    assert plan.federated is not None
    k, columns, leverage = len(plan.regressors), len(plan.columns), plan.federated.leverage
    a = list(plan.arms).index(arm)
    if any(len(model.deltas) != len(plan.arms) for model in published.models):
        raise MessageError("what was published does not fit the plan: it has another number of arms.")
    F = frame_of(published, columns)
    framed = frame_rows(F, np.asfortranarray(rows, dtype=np.float64))
    if weights is not None:
        framed *= np.sqrt(weights)[:, None]
    parts = []
    for segment in segments(published.models, k):
        X, E = readings(segment, a, F, framed, k)
        if not segment.corrected:
            parts.append(X.T @ E)
        elif segment.model.breads is not None and leverage is not None:
            bread = unpacked(segment.model.breads[a], segment.q**2).reshape(segment.q, segment.q)
            parts.append(corrected_score(X, E, bread, leverage))
    return np.concatenate([np.empty(0), *(part.ravel() for part in parts)])


class RepliesState(msgspec.Struct, array_like=True):
    """What is kept of an arm's replies."""

    n: int
    sums: Array
    products: Array


@dataclass(slots=True)
class Replies:
    """The replies of one arm's devices, summed: mergeable, and nothing of a single one is left.

    Attributes:
        segments: The parts of a reply.
        n: How many devices have replied.
        sums: Σ u.
        products: Σ u u' for each part, flat, one after the other.
    """

    segments: Sequence[Segment]
    n: int
    sums: Floats
    products: Floats

    @classmethod
    def empty(cls, models: Sequence[Model], k: int) -> Self:
        """No replies yet."""
        parts = segments(models, k)
        return cls(parts, 0, np.zeros(length(parts)), np.zeros(sum((part.q * part.r) ** 2 for part in parts)))

    def fold(self, replies: Floats) -> Self:
        """Take replies in, one per row."""
        parts = [replies[:, part.place] for part in self.segments]
        products = np.concatenate([np.empty(0), *((part.T @ part).ravel() for part in parts)])
        return type(self)(
            self.segments, self.n + len(replies), self.sums + replies.sum(axis=0), self.products + products
        )

    def __add__(self, other: Self) -> Self:
        """The sums of both sets of replies."""
        return type(self)(self.segments, self.n + other.n, self.sums + other.sums, self.products + other.products)

    def product(self, segment: Segment) -> Floats:
        """Σ u u' of one part."""
        start = 0
        for part in self.segments:
            width = part.q * part.r
            if part is segment:
                return self.products[start : start + width**2].reshape(width, width)
            start += width**2
        raise KeyError(segment)

    def state(self) -> RepliesState:
        """What is kept."""
        return RepliesState(self.n, Array.of(self.sums), Array.of(self.products))

    @classmethod
    def restore(cls, state: Any, models: Sequence[Model], k: int) -> Self:
        """The sums from their state."""
        kept = decode_part(state, RepliesState)
        empty = cls.empty(models, k)
        if kept.n < 0:
            raise StateError("the state is damaged: its counts do not fit.")
        return cls(empty.segments, kept.n, kept.sums.read(*empty.sums.shape), kept.products.read(*empty.products.shape))


def length(parts: Sequence[Segment]) -> int:
    """How many numbers a reply has."""
    return sum(part.q * part.r for part in parts)
