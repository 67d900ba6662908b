"""The tally of replies: sums over devices, of which nothing of a single one is left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import msgspec
import numpy as np

from foldaway.errors import StateError
from foldaway.federated.replies.models import Segment
from foldaway.keeping.state import Array, decode_part
from foldaway.numerics.block import Block, Floats


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

    segments: Sequence[Segment]
    n: int
    sums: Floats
    products: Floats

    @classmethod
    def empty(cls, segments: Sequence[Segment]) -> Self:
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
    def restore(cls, state: Any, segments: Sequence[Segment]) -> Self:
        """The sums from their state."""
        part, empty = decode_part(state, RepliesState), cls.empty(segments)
        if part.n < 0:
            raise StateError("the state is damaged: its counts do not fit.")
        return cls(segments, part.n, part.sums.read(*empty.sums.shape), part.products.read(*empty.products.shape))
