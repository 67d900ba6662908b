"""The tallies of one arm, which share a frame."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import msgspec
import numpy as np

from foldaway.errors import StateError
from foldaway.keeping.state import Array, decode_part
from foldaway.numerics.block import Block, Floats, Shape
from foldaway.numerics.linalg import append_rows
from foldaway.tallies.factor import Factor
from foldaway.tallies.frame import Frame
from foldaway.tallies.tally import Kind, Tally

Kinds = dict[str, Kind]


class ArmState(msgspec.Struct):
    """What an arm keeps: its frame, its factor and its further tallies by name."""

    frame_n: int
    frame: Array
    factor: Any
    tallies: dict[str, Any]


@dataclass(slots=True)
class ArmTally:
    """A frame, the factor that every arm has, and further tallies by name, all in that frame.

    The frame is made from the first block and made anew from the factor whenever the records have doubled,
    so that even an arm that began with a single record ends up well conditioned.
    """

    shape: Shape
    kinds: Kinds
    frame: Frame
    factor: Factor
    tallies: dict[str, Tally]

    @classmethod
    def empty(cls, shape: Shape, kinds: Kinds) -> Self:
        """The tallies of no records."""
        frame = Frame(np.eye(shape.columns, order="F"), 0)
        tallies = {name: kind.empty(shape) for name, kind in kinds.items()}
        return cls(shape, kinds, frame, Factor.empty(shape), tallies)

    def emptied(self) -> Self:
        """The tallies of no records, in this frame: for another worker to fold into."""
        tallies = {name: kind.empty(self.shape) for name, kind in self.kinds.items()}
        return type(self)(self.shape, self.kinds, self.frame, Factor.empty(self.shape), tallies)

    @property
    def n(self) -> int:
        """The number of records."""
        return self.factor.n

    def fold(self, block: Block) -> Self:
        """Take a block of raw rows in."""
        if not len(block):
            return self
        frame = self.frame if self.frame.n else self._first_frame(block)
        framed = frame.apply(block)
        factor = self.factor.fold(framed)
        if outgrown(self.factor, factor):
            return self._refitted(factor)._fold_framed(block)
        tallies = {name: tally.fold(framed) for name, tally in self.tallies.items()}
        return type(self)(self.shape, self.kinds, frame, factor, tallies).in_own_frame_if_doubled()

    def _refitted(self, factor: Factor) -> Self:
        """In the frame that this factor's rows make, of which the present frame gave only the form."""
        return self.rebase(Frame.of(factor.R @ self.frame.F, self.shape, factor.n))

    def _fold_framed(self, block: Block) -> Self:
        framed = self.frame.apply(block)
        tallies = {name: tally.fold(framed) for name, tally in self.tallies.items()}
        return type(self)(self.shape, self.kinds, self.frame, self.factor.fold(framed), tallies)

    def __add__(self, other: Self) -> Self:
        """The tallies of both sets of records, in the frame of the larger."""
        if not other.n:
            return self
        if self.frame.n < other.frame.n or not self.n:
            return other + self if self.n else other
        moved = other if other.frame is self.frame else other.rebase(self.frame)
        factor = self.factor + moved.factor
        if outgrown(self.factor, factor):
            refitted = self._refitted(factor)
            return refitted._plus(other.rebase(refitted.frame))
        return self._plus(moved).in_own_frame_if_doubled()

    def _plus(self, other: Self) -> Self:
        tallies = {name: tally + other.tallies[name] for name, tally in self.tallies.items()}
        return type(self)(self.shape, self.kinds, self.frame, self.factor + other.factor, tallies)

    def rebase(self, frame: Frame) -> Self:
        """The same tallies in another frame."""
        B = self.frame.change_to(frame)
        tallies = {name: tally.rebase(B) for name, tally in self.tallies.items()}
        return type(self)(self.shape, self.kinds, frame, self.factor.rebase(B), tallies)

    def size(self) -> int:
        """How many numbers are kept, whatever the number of records."""
        return sum(len(array.data) for array in _arrays(self.state())) // 8

    def raw_factor(self) -> Floats:
        """The factor of the rows as they came: R F."""
        return self.factor.R @ self.frame.F

    def _first_frame(self, block: Block) -> Frame:
        rows = block.rows if block.weight is None else block.rows * np.sqrt(block.weight)
        R = append_rows(np.zeros((len(rows), len(rows)), order="F"), rows.T)
        return Frame.of(R, self.shape, block.n)

    def in_own_frame_if_doubled(self) -> Self:
        """In a frame made from its own records, once these are twice those that the frame was made from."""
        if self.n < 2 * self.frame.n:
            return self
        return self.rebase(Frame.of(self.raw_factor(), self.shape, self.n))

    def state(self) -> ArmState:
        """What is saved."""
        tallies = {name: tally.state() for name, tally in self.tallies.items()}
        return ArmState(self.frame.n, Array.of(self.frame.F), self.factor.state(), tallies)

    @classmethod
    def restore(cls, state: Any, shape: Shape, kinds: Kinds) -> Self:
        """The tallies from their state."""
        saved = decode_part(state, ArmState)
        F = np.asfortranarray(saved.frame.read(shape.columns, shape.columns))
        if saved.frame_n < 0 or np.any(np.tril(F, -1)) or not np.all(np.diag(F)):
            raise StateError("the state is damaged: a frame cannot be inverted.")
        if saved.tallies.keys() != kinds.keys():
            raise StateError("the state does not fit its plan: it has other tallies.")
        tallies = {name: kind.restore(saved.tallies[name], shape) for name, kind in kinds.items()}
        factor = Factor.restore(saved.factor, shape)
        framed = min(factor.n, 1) <= saved.frame_n <= factor.n and (factor.n > 0 or not factor.R.any())
        if not framed or any(tally.n > factor.n for tally in tallies.values()):
            raise StateError("the state is damaged: its counts do not fit.")
        return cls(shape, kinds, Frame(F, saved.frame_n), factor, tallies)


# A frame is left when a column has become this many times as long as the first.
_OUTGROWN = 8


def outgrown(before: Factor, after: Factor) -> bool:
    """Whether rows came that the frame does not fit: far longer than its own, or in a column of zeros until now."""
    if not before.n:
        return False
    lengths = np.sqrt(np.einsum("ij,ij->j", after.R, after.R))
    new = (lengths > 0) & ~before.R.any(axis=0)
    return bool(new.any() or lengths.max() > _OUTGROWN * lengths[0] > 0)


def _arrays(state: Any) -> Iterator[Array]:
    """Every array in a state, however deep."""
    if isinstance(state, Array):
        yield state
    elif isinstance(state, dict):
        for part in state.values():
            yield from _arrays(part)
    elif isinstance(state, msgspec.Struct):
        for field in state.__struct_fields__:
            yield from _arrays(getattr(state, field))
