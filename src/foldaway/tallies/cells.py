"""Arrays by arm, and cells: an arm and a group of units make one, and records are dealt to them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from foldaway.errors import StateError
from foldaway.keeping.state import Array
from foldaway.numerics.block import CellPiece, Cells, Floats

STEP = 1 << 16
"""Records per step: few enough for their arrays to stay in a core's cache, and enough of them in each of some hundred
cells for a product of theirs to pay."""

Sizes = dict[str, tuple[int, ...] | None]
"""The arrays of a tally, in the order of its state, and the size of each; None for one that there is not."""


def cell_of(arm: ArrayLike, group: ArrayLike | None, groups: int) -> Cells:
    """The cell of each record: its arm times the number of groups, plus its group.

    Example:
        >>> cell_of([0, 1, 1], [3, 0, 2], groups=4)
        array([3, 4, 6])
    """
    first = np.asarray(arm, dtype=np.intp) * groups
    return first if group is None else first + np.asarray(group)


def taken(by_arm: Floats, places: Sequence[int]) -> Floats:
    """The entries of an array by arm at these places, 0 where a place is -1.

    Example:
        >>> taken(np.array([1.0, 2.0]), [1, -1])
        array([2., 0.])
    """
    padded = np.concatenate([by_arm, np.zeros_like(by_arm[:1])])
    entries: Floats = padded[list(places)]
    return entries


@dataclass(frozen=True, slots=True)
class ByArm:
    """A tally of arrays by arm. A value: folding and adding give a new one.

    Its shape says which arrays there are, as `Sizes`. One with a single axis is common to all arms.
    """

    shape: Any

    @classmethod
    def empty(cls, shape: Any) -> Self:
        """The tally of no records."""
        return cls(shape, **cls._zeros(shape))

    @classmethod
    def _zeros(cls, shape: Any) -> dict[str, Any]:
        if shape.groups < 1 or shape.groups & (shape.groups - 1):
            raise ValueError("the number of groups must be a power of two.")
        return {name: None if size is None else np.zeros(size) for name, size in shape.sizes.items()}

    def arrays(self) -> dict[str, Floats]:
        """Every array that there is, by name."""
        parts = ((name, getattr(self, name)) for name in self.__dataclass_fields__)
        return {name: part for name, part in parts if isinstance(part, np.ndarray)}

    def of_arms(self, places: Sequence[int]) -> Self:
        """The tally of the arms at these places; an arm without records where a place is -1."""
        by_arm = {name: taken(array, places) for name, array in self.arrays().items() if array.ndim > 1}
        return replace(self, shape=self.shape._replace(arms=len(places)), **by_arm)

    def _summed(self, other: Self) -> dict[str, Any]:
        """The arrays by arm of both, each the sum of the two."""
        return {name: array + getattr(other, name) for name, array in self.arrays().items() if array.ndim > 1}


@dataclass(frozen=True, slots=True)
class ByCell(ByArm, ABC):
    """A tally of columns by arm and group."""

    def fold(
        self,
        arm: ArrayLike,
        columns: ArrayLike,
        group: ArrayLike | None = None,
        weight: ArrayLike | None = None,
        *,
        compiled: bool = False,
    ) -> Self:
        """Take records in.

        Args:
            arm: Each record's arm.
            columns: The columns, each a row: z = [1, x, y] for moments; for sums the outcomes, then their ỹ, with NaN
                where an outcome is missing.
            group: Each record's group; all in one if there are no units.
            weight: Observation weights, positive.
            compiled: Whether compiled loops are to serve: loading them pays for many records.
        """
        shape, folded = self.shape, self
        values = np.asarray(columns, dtype=np.float64)
        weights = None if weight is None else np.asarray(weight, dtype=np.float64)
        cell = cell_of(arm, group, shape.groups)
        if values.shape != (shape.columns, len(cell)) or (weights is None) == shape.weighted:
            raise ValueError("the records do not have the shape of the tally")
        y, tilde = np.split(values, 2) if shape.adjusted else (values, None)
        for start in range(0, len(cell), STEP):
            part = np.s_[..., start : start + STEP]
            more = (None if each is None else each[part] for each in (tilde, weights))
            folded = folded.fold_pieces([CellPiece(cell[part], y[part], *more)], compiled=compiled)
        return folded

    @abstractmethod
    def fold_pieces(self, pieces: Iterable[CellPiece], *, compiled: bool) -> Self:
        """Take records in that come in pieces."""

    def state(self) -> list[Any]:
        """What is kept: each of the arrays, in their order; None for one that there is not."""
        arrays = self.arrays()
        return [Array.of(arrays[name]) if name in arrays else None for name in self.shape.sizes]

    @classmethod
    def _read(cls, kept: Sequence[Array | None], shape: Any, what: str) -> dict[str, Any]:
        """The arrays from their state, numbers of records being whole."""
        if [array is None for array in kept] != [size is None for size in shape.sizes.values()]:
            raise StateError(f"the state does not fit its plan: it has other {what}.")
        sizes = zip(kept, shape.sizes.items(), strict=True)
        arrays = {name: None if array is None else array.read(*size) for array, (name, size) in sizes}
        for counts in (arrays["records"], arrays.get("present")):
            if counts is not None and (np.any(counts < 0) or np.any(counts != np.floor(counts))):
                raise StateError("the state is damaged: its counts do not fit.")
        return arrays
