"""Sums by arm and group: what a trial keeps once its state leaves memory.

Units are dealt into G groups by a keyed hash. Per arm and group the tally keeps the number of records and Σv, per arm
Σv² and Σyỹ, where v are the outcomes y and, if the plan adjusts, ỹ = y − (x − x̄₀)'β₀. There are no covariates and no
products of different outcomes. The groups give every statistic an error clustered by unit (`inference/jackknife.py`);
the second-order sums give Welch's error for independent records. Without units there is one group.

**Digits.** If an outcome is near 10⁹ and varies by 1, neither Σv nor Σv² holds what matters. Second-order sums are
therefore kept about the arm's own mean, and merge exactly (Chan, Golub and LeVeque 1983). First-order sums are kept
about a level that all arms share. It is 0 unless an outcome's mean is more than a thousand of its standard deviations
away from 0. Then it is that mean, rounded to at least 64 standard deviations: it says of a record only what all of them
have in common.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foldaway.errors import EstimateError, StateError
from foldaway.keeping.state import Array, decode_part
from foldaway.numerics.block import CellPiece, Floats
from foldaway.numerics.cell_sums import ABSOLUTE, CROSS, FIRST, MASS, SQUARE, TILDE, CellSums
from foldaway.tallies.cells import ByCell, Sizes, cell_of

# First-order sums move to another level when the mean is this many standard deviations away from the present one …
_FAR = 1024
# … which is a multiple of at least this many.
_COARSE = 64

# What is left of squares about another number than the mean, where nothing varies, next to what was taken off them.
_CANCELLED = 1e-12

# Of so many records the mean is taken for what sums are about.
_HEAD = 1024

_BY_GROUP = ("records", "present", "weight", "total")

# Squares about a common mean serve an arm if its own spread is at least this share of them.
_APART = 1e-3


class SumsShape(NamedTuple):
    """What the sums are of.

    Attributes:
        arms: How many arms there are.
        outcomes: How many outcomes.
        groups: A power of two; 1 where there are no units.
        adjusted: Whether each outcome comes with its ỹ.
        weighted: Whether records have observation weights.
        missing: Whether a record may lack an outcome; each outcome then has counts of its own.
        pairs: Outcomes whose products are summed too, which a record has or lacks together.
    """

    arms: int
    outcomes: int
    groups: int
    adjusted: bool = False
    weighted: bool = False
    missing: bool = False
    pairs: tuple[tuple[int, int], ...] = ()

    def block(self, outcome: int) -> list[int]:
        """The columns of an outcome: y and, if there is one, ỹ."""
        return [outcome, outcome + self.outcomes] if self.adjusted else [outcome]

    @property
    def columns(self) -> int:
        """The number of columns v: the outcomes, then their ỹ."""
        return self.outcomes * (1 + self.adjusted)

    @property
    def sizes(self) -> Sizes:
        """The arrays that there are."""
        A, G, V, outcomes = self.arms, self.groups, self.columns, self.outcomes
        return {
            "level": (V,),
            "records": (A, G),
            "present": (A, G, outcomes) if self.missing else None,
            "weight": (A, G, outcomes + 1 if self.missing else 1) if self.weighted else None,
            "total": (A, G, V),
            "mass": (A, outcomes),
            "first": (A, V),
            "square": (A, V),
            "cross": (A, outcomes) if self.adjusted else None,
            "absolute": (A, outcomes),
            "joint": (A, len(self.pairs), 1 + self.adjusted, 1 + self.adjusted) if self.pairs else None,
        }


ARRAYS = tuple(SumsShape(1, 1, 1).sizes)
"""The names of the arrays, in the order of the state."""


def group_of(hashes: NDArray[np.uint64], groups: int) -> NDArray[np.int64]:
    """The group of each record, from the keyed hash of its unit: the lowest bits, so that groups merge by adding.

    Example:
        >>> group_of(np.array([5, 130, 2**63 + 1], dtype=np.uint64), 128)
        array([5, 2, 1])
    """
    return (hashes & np.uint64(groups - 1)).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Sums(ByCell):
    """The sums.

    Attributes:
        shape: What they are of.
        level: What first-order sums are about, by column.
        records: The number of records, by arm and group.
        present: The number of records that have the outcome, by arm, group and outcome; None if all have all.
        weight: Σw by arm, group and outcome, and over all records in the last column, which is the only one if no
            outcome may be missing; None without weights.
        total: Σ w (v − level), by arm, group and column.
        mass: Σ w² by arm and outcome (n without weights).
        first: Σ w² (v − level), by arm and column.
        square: Σ w² (v − v̄)² by arm and column, v̄ the mean under weights w².
        cross: Σ w² (y − ȳ)(ỹ − ỹ̄), by arm and outcome; None without ỹ.
        absolute: Σ |w y|, by arm and outcome: how evenly the outcome is spread over the records.
        joint: Σ w² (u − ū)(v − v̄)' of each pair of outcomes and their ỹ, by arm and pair; None without pairs.

    Example:
        >>> sums = Sums.empty(SumsShape(arms=2, outcomes=1, groups=4))
        >>> sums = sums.fold(arm=[0, 1, 1], columns=[[2.0, 3.0, 5.0]], group=[0, 3, 3])
        >>> sums.n, sums.counts(0)[1]
        (3, array([0., 0., 0., 2.]))
        >>> sums.totals(0)[1], sums.square[1]
        (array([0., 0., 0., 8.]), array([2.]))
        >>> sums
        Sums: n=3 | 2 arms, 1 outcome, 4 groups
    """

    shape: SumsShape
    level: Floats
    records: Floats
    present: Floats | None
    weight: Floats | None
    total: Floats
    mass: Floats
    first: Floats
    square: Floats
    cross: Floats | None
    absolute: Floats
    joint: Floats | None = None

    @property
    def n(self) -> int:
        """The number of records."""
        return int(self.records.sum())

    def counts(self, outcome: int) -> Floats:
        """The number of records that have the outcome, by arm and group."""
        counts: Floats = self.records if self.present is None else self.present[..., outcome]
        return counts

    def weights(self, outcome: int) -> Floats:
        """Σw over the records that have the outcome, by arm and group: their number, without weights."""
        if self.weight is None:
            return self.counts(outcome)
        weights: Floats = self.weight[..., outcome if self.shape.missing else 0]
        return weights

    @property
    def all_weights(self) -> Floats:
        """Σw over all records, by arm and group."""
        weights: Floats = self.records if self.weight is None else self.weight[..., -1]
        return weights

    def totals(self, column: int) -> Floats:
        """Σ w v by arm and group, about no level: what a reader may want, with the digits that are left."""
        totals: Floats = self.total[..., column] + self.weights(column % self.shape.outcomes) * self.level[column]
        return totals

    def fold_pieces(self, pieces: Iterable[CellPiece], *, compiled: bool) -> Self:
        """Take records in that come in pieces; these are gone through a second time if the first was not enough."""
        shape = self.shape
        if (first_piece := next(iter(pieces), None)) is None:
            return self
        level = _level(first_piece)
        center = np.tile(level, (shape.arms, 1))
        for again in (True, False):
            sums, joint = _by_cell(shape, pieces, center, compiled)
            arms, cells = sums.second.sum(axis=1), (shape.arms, shape.groups, -1)
            records, total = sums.records.reshape(cells), sums.total.reshape(cells)
            mass = arms[..., : records.shape[-1], MASS] if shape.weighted else records.sum(axis=1)
            mass = np.array(np.broadcast_to(mass, (shape.arms, shape.outcomes)))
            first = _columns(arms, FIRST, shape) if shape.weighted else total.sum(axis=1)
            about = _columns(arms, SQUARE, shape)
            square = about - _ratio(first**2, _wide(mass, shape))
            if not (again and np.any(square < _APART * about)):
                break
            # The arms lie far apart next to their spread: each about a mean of its own.
            center = center + _ratio(first, _wide(mass, shape))
        everyone, weight = records, sums.weight.reshape(cells) if shape.weighted else None
        if shape.missing:
            all_of_them, size = [(piece.cell, piece.weight) for piece in pieces], shape.arms * shape.groups
            everyone = np.reshape(sum(np.bincount(c, minlength=size) for c, _ in all_of_them), (*cells[:2], 1)) + 0.0
            if weight is not None:
                summed = np.reshape(sum(np.bincount(c, w, minlength=size) for c, w in all_of_them), (*cells[:2], 1))
                weight = np.concatenate([weight, summed], axis=-1)
        made = type(self)(
            shape,
            level,
            everyone[..., 0],
            records if shape.missing else None,
            weight,
            total,
            mass,
            first,
            about,
            arms[..., CROSS] if shape.adjusted else None,
            arms[..., ABSOLUTE].copy(),
            joint,
        ).about_means(center)
        return self + made if self.n else made.settled()

    def about_means(self, center: Floats) -> Self:
        """Of sums that are all about these numbers, by arm and column: about the level, and squares about the means."""
        shape, moved, mass = self.shape, center - self.level, _wide(self.mass, self.shape)
        cross, joint = self.cross, self.joint
        if cross is not None:
            y, tilde = np.split(self.first, 2, axis=1)
            cross = cross - _ratio(y * tilde, self.mass)
        if joint is not None:
            joint = joint - _outer(shape, self.first, _ratio(self.first, mass))
        away = _ratio(self.first**2, mass)
        square = self.square - away
        return replace(
            self,
            total=self.total + self._by_column * moved[:, None] if moved.any() else self.total,
            first=self.first + mass * moved,
            square=np.where(square > _CANCELLED * away, square, 0.0),
            cross=cross,
            joint=joint,
        )

    def fold_totals(
        self,
        arm: ArrayLike,
        group: ArrayLike,
        records: ArrayLike,
        totals: ArrayLike,
        present: ArrayLike | None = None,
        weight: ArrayLike = 1.0,
    ) -> Self:
        """Take in sums over the records of each of some units. Nothing of second order is known of these.

        Args:
            arm: Each unit's arm.
            group: Each unit's group.
            records: Each unit's number of records.
            totals: Σv over them, units by columns: outcomes and, if the sums have them, their ỹ.
            present: How many of them have each outcome, units by outcomes; all have all if left out.
            weight: What each unit's records weigh.

        Example:
            >>> sums = Sums.empty(SumsShape(arms=2, outcomes=1, groups=4))
            >>> sums.fold_totals([0, 1, 1], [0, 3, 3], [1, 2, 5], [[2.0], [3.0], [4.0]]).totals(0)[1]
            array([0., 0., 0., 7.])
        """
        units = type(self).empty(self.shape)
        cell = cell_of(arm, group, self.shape.groups)
        np.add.at(units.records.reshape(-1), cell, records)
        everyone, each = np.asarray(records)[:, None], np.reshape(weight, (-1, 1))
        np.add.at(units.total.reshape(-1, self.shape.columns), cell, each * np.asarray(totals))
        if units.present is not None:
            np.add.at(units.present.reshape(-1, self.shape.outcomes), cell, everyone if present is None else present)
        if units.weight is not None:
            counts = everyone
            if units.present is not None:
                having = np.repeat(everyone, self.shape.outcomes, axis=1) if present is None else present
                counts = np.concatenate([np.asarray(having), everyone], axis=1)
            np.add.at(units.weight.reshape(-1, units.weight.shape[-1]), cell, each * counts)
        return self + units

    def __add__(self, other: Self) -> Self:
        """The sums of both sets of records."""
        if self.shape != other.shape:
            raise EstimateError("only sums of the same arms, outcomes and groups can be added; merge groups first.")
        n, more = self.n, other.n
        if not (n and more):
            return self if n else other
        ours, theirs = (n, *self.level), (more, *other.level)
        one = self if ours >= theirs else self._about(other.level)
        two = other if theirs >= ours else other._about(self.level)
        Q, R = (_wide(each.mass, self.shape) for each in (one, two))
        apart = _ratio(one.first, Q) - _ratio(two.first, R)
        both = _ratio(Q * R, Q + R)
        summed = one._summed(two)
        summed["square"] += both * apart**2
        if self.shape.adjusted:
            y, adjusted = np.split(apart, 2, axis=1)
            summed["cross"] += both[:, : self.shape.outcomes] * y * adjusted
        if self.shape.pairs:
            summed["joint"] += _outer(self.shape, both * apart, apart)
        return replace(one, **summed).settled()

    def without(self, other: Self) -> Self:
        """The sums without records that are in them, of which nothing is known of second order."""
        minus: dict[str, Any] = {name: -array for name, array in other.arrays().items() if name in _BY_GROUP}
        left = self + replace(other, **minus)
        empty = left.records == 0
        # What is left of a cell without records is rounding.
        arrays = ((name, array) for name, array in left.arrays().items() if name in _BY_GROUP)
        cells: dict[str, Any] = {name: np.where(_like(empty, array), 0.0, array) for name, array in arrays}
        return replace(left, **cells)

    def _about(self, level: Floats) -> Self:
        """The same sums, the first-order ones about another level."""
        moved = self.level - level
        if not moved.any():
            return self
        first = self.first + _wide(self.mass, self.shape) * moved
        return replace(self, level=level, total=self.total + self._by_column * moved, first=first)

    @property
    def _by_column(self) -> Floats:
        """Σw over the records that have a column, by arm, group and column."""
        return _wide(np.stack([self.weights(outcome) for outcome in range(self.shape.outcomes)], axis=-1), self.shape)

    def settled(self) -> Self:
        """About a level that is near enough for the digits and says nothing about few records."""
        mass = _wide(self.mass, self.shape)
        total = mass.sum(axis=0)
        mean = self.level + _ratio(self.first.sum(axis=0), total)
        deviation = np.sqrt(_ratio(self.square.sum(axis=0), total))
        with np.errstate(divide="ignore"):
            grid = np.where(deviation > 0, np.exp2(np.ceil(np.log2(_COARSE * deviation))), 0.0)
        far = np.abs(mean) > _FAR * deviation
        # A level that still serves stays, if it is as coarse as it has to be.
        multiple = np.where(grid > 0, grid, np.inf)
        serves = (np.abs(mean - self.level) <= _FAR * deviation) & (np.mod(self.level, multiple) == 0)
        # Where all records have one value so far, it is the level: any other would cost the next ones their digits.
        near = np.where(grid > 0, np.round(mean / np.where(grid > 0, grid, 1)) * grid, mean)
        return self._about(np.where(far, np.where(serves & (grid > 0), self.level, near), 0.0))

    def regrouped(self, groups: int) -> Self:
        """The same sums in fewer groups, a power of two: groups with the same lowest bits are added.

        Example:
            >>> sums = Sums.empty(SumsShape(1, 1, groups=4)).fold([0, 0], [[1.0, 2.0]], [1, 3])
            >>> sums.regrouped(2).totals(0)
            array([[0., 3.]])
        """
        if groups > self.shape.groups or groups < 1 or self.shape.groups % groups:
            raise ValueError("groups merge to a smaller power of two.")
        cells = {
            name: array.reshape(self.shape.arms, -1, groups, *array.shape[2:]).sum(axis=1)
            for name, array in self.arrays().items()
            if name in _BY_GROUP
        }
        return replace(self, shape=self.shape._replace(groups=groups), **cells)

    def unadjusted(self) -> Self:
        """The sums of the outcomes alone, which states with different coefficients have in common."""
        columns = np.s_[..., : self.shape.outcomes]
        plain = {name: getattr(self, name)[columns] for name in ("level", "total", "first", "square")}
        joint = None if self.joint is None else self.joint[..., :1, :1]
        return replace(self, shape=self.shape._replace(adjusted=False), **plain, cross=None, joint=joint)

    @classmethod
    def restore(cls, state: Any, shape: SumsShape) -> Self:
        """The sums from their state."""
        sums = cls(shape, **cls._read(decode_part(state, list[Array | None]), shape, "sums"))
        if sums.present is not None and np.any(sums.present > sums.records[..., None]):
            raise StateError("the state is damaged: its counts do not fit.")
        if not shape.weighted and sums.mass.any():  # it is 0 in sums that devices have sent
            counts = np.stack([sums.counts(outcome).sum(axis=1) for outcome in range(shape.outcomes)], axis=1)
            if not np.array_equal(sums.mass, counts):
                raise StateError("the state is damaged: its counts do not fit.")
        if any(np.any(array < 0) for array in (sums.mass, sums.square, sums.absolute)):
            raise StateError("the state is damaged: a sum of squares is negative.")
        return sums

    def __repr__(self) -> str:
        nouns = zip(("arm", "outcome", "group"), self.shape, strict=False)
        words = ", ".join(f"{count} {noun}{'s' * (count != 1)}" for noun, count in nouns)
        return f"Sums: n={self.n:_} | {words}"


def _by_cell(
    shape: SumsShape, pieces: Iterable[CellPiece], center: Floats, compiled: bool
) -> tuple[CellSums, Floats | None]:
    """The sums of `numerics.cell_sums` about each arm's center; and those of pairs, by arm."""
    if compiled:
        from foldaway.numerics.kernels.sums import add_joint, add_sums
    else:
        from foldaway.numerics.cell_sums import add_joint, add_sums
    arms, outcomes, groups = shape.arms, shape.outcomes, shape.groups
    about = np.zeros((arms, outcomes, 2))
    about[..., : 1 + shape.adjusted] = center.reshape(arms, -1, outcomes).swapaxes(1, 2)
    _, _, _, adjusted, weighted, missing, _ = shape
    sums = CellSums.zeros(arms, groups, outcomes, adjusted=adjusted, weighted=weighted, missing=missing)
    pairs = np.array(shape.pairs, dtype=np.intp)
    joint = np.zeros((arms * groups, len(pairs), 1 + shape.adjusted, 1 + shape.adjusted))
    for piece in pieces:
        add_sums(piece, about, groups, missing, sums)
        if len(pairs):
            add_joint(piece, about, groups, missing, pairs, joint)
    return sums, joint.reshape(arms, groups, *joint.shape[1:]).sum(axis=1) if len(pairs) else None


def _level(piece: CellPiece) -> Floats:
    """A number near the values of each column."""
    head = np.concatenate([v[:, :_HEAD] for v in (piece.y, piece.tilde) if v is not None])
    here = ~np.isnan(head)
    mean: Floats = head.sum(axis=1, where=here) / np.maximum(here.sum(axis=1), 1)
    return mean


def _like(cells: NDArray[np.bool_], array: Floats) -> NDArray[np.bool_]:
    """What is said of each arm and group, along the further axes of an array."""
    return cells.reshape(*cells.shape, *(1,) * (array.ndim - cells.ndim))


def _outer(shape: SumsShape, left: Floats, right: Floats) -> Floats:
    """The products of each pair's columns, by arm and pair."""
    one, two = (np.array([shape.block(pair[side]) for pair in shape.pairs]) for side in (0, 1))
    products: Floats = left[:, one][..., :, None] * right[:, two][..., None, :]
    return products


def _columns(sums: Floats, field: int, shape: SumsShape) -> Floats:
    """A field of the outcomes and, if there are any, of their ỹ."""
    return np.concatenate([sums[..., field + TILDE * which] for which in range(1 + shape.adjusted)], axis=-1)


def _wide(by_outcome: Floats, shape: SumsShape) -> Floats:
    """What is known by outcome, by column."""
    if not shape.adjusted:
        return by_outcome
    return np.concatenate([by_outcome] * (1 + shape.adjusted), axis=-1)


def _ratio(numerator: Floats, denominator: Floats) -> Floats:
    """The quotient, 0 where there is nothing."""
    return np.divide(numerator, denominator, out=np.zeros(np.shape(numerator)), where=denominator > 0)
