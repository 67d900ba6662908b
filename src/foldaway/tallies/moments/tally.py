"""The contract of a tally."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, Self

import msgspec

from foldaway.keeping.state import Array
from foldaway.numerics.block import Block, Floats, Shape


class CountedArray(msgspec.Struct, array_like=True):
    """What most tallies keep: the number of records, and one array."""

    n: int
    array: Array


class Tally(Protocol):
    """A running, mergeable statistic of one arm's rows, all in one frame.

    A tally is a value: folding and adding give a new one, so a fold that fails changes nothing. The laws,
    up to rounding: an empty tally is the identity of ``+``; ``+`` is associative and commutative;
    ``t.fold(a).fold(b)`` equals ``t.fold(a and b together)`` equals ``t.fold(a) + empty.fold(b)``;
    ``t.rebase(B)`` equals folding the rows z B in the first place.
    """

    n: int

    def fold(self, block: Block) -> Self:
        """The tally with the block's records taken in."""
        ...

    def __add__(self, other: Self) -> Self:
        """The tally of both sets of records."""
        ...

    def rebase(self, B: Floats) -> Self:
        """The tally that folding rows z B would have given."""
        ...

    def state(self) -> Any:
        """What is kept, as a msgspec struct."""
        ...

    def restored(self, state: Any) -> Self:
        """The tally of this shape that ``state`` came from; a StateError if it does not fit."""
        ...


Kind = Callable[[Shape], Tally]
"""Makes the tally of no records, for rows of a shape."""
