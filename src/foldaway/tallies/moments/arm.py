"""The tallies of one arm, which share a frame."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Self

import msgspec
import numpy as np

from foldaway.errors import StateError
from foldaway.keeping.state import Array, decode_part
from foldaway.numerics.block import Block, Floats, Shape
from foldaway.numerics.linalg import append_rows
from foldaway.tallies.moments.factor import Factor
from foldaway.tallies.moments.frame import Frame
from foldaway.tallies.moments.scores import Scores
from foldaway.tallies.moments.tally import Kind, Tally

Kinds = dict[str, Kind]

# When records are taken out, this share of a column's length is rounding.
_ROUNDING = 1e-6


class ArmState(msgspec.Struct):
    """What an arm keeps: its frame, its factor, its further tallies by name, and which columns were pooled."""

    frame_n: int
    frame: Array
    factor: Any
    tallies: dict[str, Any]
    pooled: list[int] = []


@dataclass(slots=True)
class ArmTally:
    """A frame, the factor that every arm has, and further tallies by name, all in that frame.

    The frame is made from the first block and made anew whenever it does not suit the records any more, and from the
    factor when these have doubled, so that even an arm that began with a single record loses no digits. Columns of
    levels that are pooled with the first level are zero in every record, those to come included.
    """

    shape: Shape
    kinds: Kinds
    frame: Frame
    factor: Factor
    tallies: dict[str, Tally]
    pooled: frozenset[int] = frozenset()

    @classmethod
    def empty(cls, shape: Shape, kinds: Kinds) -> Self:
        """The tallies of no records."""
        frame = Frame(np.eye(shape.columns, order="F"), 0)
        return cls(shape, kinds, frame, Factor.empty(shape), {name: kind(shape) for name, kind in kinds.items()})

    def emptied(self) -> Self:
        """The tallies of no records, in this frame: for another worker to fold into."""
        return replace(self.empty(self.shape, self.kinds), frame=self.frame, pooled=self.pooled)

    @property
    def n(self) -> int:
        """The number of records."""
        return self.factor.n

    def fold(self, block: Block) -> Self:
        """Take a block of raw rows in."""
        if not len(block):
            return self
        if self.pooled:
            rows = block.rows.copy()
            rows[sorted(self.pooled)] = 0
            block = replace(block, rows=rows)
        there = self if self.frame.n else replace(self, frame=Frame.first(block, self.shape))
        framed = there.frame.apply(block)
        factor = there.factor.fold(framed)
        if not there.frame.suits(factor.R, self.shape):
            there = there._refitted(factor)
            framed = there.frame.apply(block)
            factor = there.factor.fold(framed)
        tallies = {name: tally.fold(framed) for name, tally in there.tallies.items()}
        return replace(there, factor=factor, tallies=tallies).in_own_frame_if_doubled()

    def _refitted(self, factor: Factor) -> Self:
        """In the frame that this factor's rows make, of which the present frame gave only the form."""
        return self.rebase(Frame.of(factor.R @ self.frame.F, self.shape, factor.n))

    def __add__(self, other: Self) -> Self:
        """The tallies of both sets of records, in the frame of the larger; what is pooled in one is pooled in both."""
        if self.pooled != other.pooled:
            return self.pool(other.pooled) + other.pool(self.pooled)
        if not other.n:
            return self
        if self.frame.n < other.frame.n or not self.n:
            return other + self if self.n else other
        factor = self.factor + other.factor.rebase(other.frame.change_to(self.frame))
        there = self if self.frame.suits(factor.R, self.shape) else self._refitted(factor)
        moved = other if other.frame is there.frame else other.rebase(there.frame)
        tallies = {name: tally + moved.tallies[name] for name, tally in there.tallies.items()}
        return replace(there, factor=there.factor + moved.factor, tallies=tallies).in_own_frame_if_doubled()

    def without(self, other: Self) -> Self:
        """The tallies without records that are in them, in the frame that the others make."""
        if not other.n:
            return self
        if self.n == other.n:
            return self.empty(self.shape, self.kinds)
        there = self.rebase(Frame.of(self.raw_factor(), self.shape, self.n))
        gone = other.rebase(there.frame)
        tallies: dict[str, Tally] = {}
        for name, tally in there.tallies.items():
            taken = gone.tallies[name]
            assert isinstance(tally, Scores)  # devices have no other tallies
            assert isinstance(taken, Scores)
            tallies[name] = tally.without(taken)
        left = replace(there, factor=there.factor.without(gone.factor), tallies=tallies)
        lengths, before = (np.linalg.norm(arm.raw_factor(), axis=0) for arm in (left, there))
        return left._with_zeros(np.flatnonzero(lengths < _ROUNDING * before).tolist())

    def rebase(self, frame: Frame) -> Self:
        """The same tallies in another frame."""
        return self._mapped(self.frame.change_to(frame), frame)

    def _mapped(self, B: Floats, frame: Frame) -> Self:
        tallies = {name: tally.rebase(B) for name, tally in self.tallies.items()}
        return replace(self, frame=frame, factor=self.factor.rebase(B), tallies=tallies)

    def pool(self, columns: Iterable[int]) -> Self:
        """The tallies as if these columns had been zero in every record, which joins their levels to the first one.

        That is a linear map of the rows, if not one that can be undone: with D the identity without these columns, rows
        in the frame F change by F D F'⁻¹ to a new frame F'.
        """
        pooled = self.pooled.union(columns)
        if pooled == self.pooled or not self.n:
            return replace(self, pooled=pooled)
        return replace(self._with_zeros(sorted(pooled)), pooled=pooled)

    def _with_zeros(self, columns: list[int]) -> Self:
        """In a frame of its own records, as if these columns had been zero in all of them."""
        F = self.frame.F.copy(order="F")
        F[:, columns] = 0
        R = append_rows(np.zeros_like(F, order="F"), self.factor.R @ F)
        frame = Frame.of(R, self.shape, self.n)
        return self._mapped(Frame(F, self.n).change_to(frame), frame)

    def kept(self) -> dict[str, int]:
        """How many numbers are kept, by part, whatever the number of records."""
        states = {"factor": self.factor.state(), **{name: tally.state() for name, tally in self.tallies.items()}}
        parts = {name: msgspec.structs.astuple(state) for name, state in states.items()}
        return {"frame": 1 + self.frame.F.size} | {
            name: sum(len(each.data) // 8 if isinstance(each, Array) else 1 for each in part)
            for name, part in parts.items()
        }

    def raw_factor(self) -> Floats:
        """The factor of the rows as they came: R F."""
        return self.factor.R @ self.frame.F

    def in_own_frame_if_doubled(self) -> Self:
        """In a frame made from its own records, once these are twice those that the frame was made from."""
        if self.n < 2 * self.frame.n:
            return self
        return self.rebase(Frame.of(self.raw_factor(), self.shape, self.n))

    def state(self) -> ArmState:
        """What is saved."""
        tallies = {name: tally.state() for name, tally in self.tallies.items()}
        return ArmState(self.frame.n, Array.of(self.frame.F), self.factor.state(), tallies, sorted(self.pooled))

    @classmethod
    def restore(cls, state: Any, shape: Shape, kinds: Kinds) -> Self:
        """The tallies from their state."""
        saved = decode_part(state, ArmState)
        frame = Frame.restore(saved.frame, saved.frame_n, shape)
        if saved.tallies.keys() != kinds.keys():
            raise StateError("the state does not fit its plan: it has other tallies.")
        tallies = {name: kind(shape).restored(saved.tallies[name]) for name, kind in kinds.items()}
        factor = Factor.empty(shape).restored(saved.factor)
        framed = min(factor.n, 1) <= saved.frame_n <= factor.n and (factor.n > 0 or not factor.R.any())
        if not framed or any(tally.n > factor.n for tally in tallies.values()):
            raise StateError("the state is damaged: its counts do not fit.")
        pooled = frozenset(saved.pooled)
        if not pooled <= set(range(1, shape.regressors)) or factor.R[:, sorted(pooled)].any():
            raise StateError("the state is damaged: its levels are not pooled as it says.")
        return cls(shape, kinds, frame, factor, tallies, pooled)
