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

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from foldaway.errors import EstimateError, StateError
from foldaway.keeping.state import Array, decode_part
from foldaway.numerics.block import Floats

Indices = NDArray[np.integer[Any]]

GROUPS = 128
"""Groups unless the plan says otherwise."""

# Records per step: their arrays stay in a core's cache.
_STEP = 1 << 16

# First-order sums move to another level when the mean is this many standard deviations away from the present one …
_FAR = 1024
# … which is a multiple of at least this many.
_COARSE = 64

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
    """

    arms: int
    outcomes: int
    groups: int = GROUPS
    adjusted: bool = False
    weighted: bool = False
    missing: bool = False

    @property
    def columns(self) -> int:
        """The number of columns v: the outcomes, then their ỹ."""
        return self.outcomes * (1 + self.adjusted)


class SumsState(msgspec.Struct, array_like=True):
    """What the tally keeps."""

    level: Array
    records: Array
    present: Array | None
    weight: Array | None
    total: Array
    mass: Array
    first: Array
    square: Array
    cross: Array | None
    absolute: Array


def group_of(hashes: NDArray[np.uint64], groups: int) -> NDArray[np.int64]:
    """The group of each record, from the keyed hash of its unit: the lowest bits, so that groups merge by adding.

    Example:
        >>> group_of(np.array([5, 130, 2**63 + 1], dtype=np.uint64), 128)
        array([5, 2, 1])
    """
    return (hashes & np.uint64(groups - 1)).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Sums:
    """The sums. A value: folding and adding give a new one.

    Attributes:
        shape: What they are of.
        level: What first-order sums are about, by column.
        records: The number of records, by arm and group.
        present: The number of records that have the outcome, by arm, group and outcome; None if all have all.
        weight: Σw by arm, group and outcome (one column if none may be missing); None without weights.
        total: Σ w (v − level), by arm, group and column.
        mass: Σ w² by arm and outcome (n without weights).
        first: Σ w² (v − level), by arm and column.
        square: Σ w² (v − v̄)² by arm and column, v̄ the mean under weights w².
        cross: Σ w² (y − ȳ)(ỹ − ỹ̄), by arm and outcome; None without ỹ.
        absolute: Σ |w y|, by arm and outcome: how evenly the outcome is spread over the records.

    Example:
        >>> sums = Sums.empty(SumsShape(arms=2, outcomes=1, groups=4))
        >>> sums = sums.fold(arm=[0, 1, 1], values=[[2.0, 3.0, 5.0]], group=[0, 3, 3])
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

    @classmethod
    def empty(cls, shape: SumsShape) -> Self:
        """The sums of no records."""
        if shape.groups < 1 or shape.groups & (shape.groups - 1):
            raise ValueError("the number of groups must be a power of two.")
        sizes = _sizes(shape)
        arrays: dict[str, Any] = {name: None if size is None else np.zeros(size) for name, size in sizes.items()}
        return cls(shape, **arrays)

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

    def totals(self, column: int) -> Floats:
        """Σ w v by arm and group, about no level: what a reader may want, with the digits that are left."""
        totals: Floats = self.total[..., column] + self.weights(column % self.shape.outcomes) * self.level[column]
        return totals

    def fold(
        self, arm: ArrayLike, values: ArrayLike, group: ArrayLike | None = None, weight: ArrayLike | None = None
    ) -> Self:
        """Take records in.

        Args:
            arm: Each record's arm.
            values: The columns v, each a row: outcomes, then their ỹ. NaN where an outcome is missing.
            group: Each record's group; all in one if there are no units.
            weight: Observation weights, positive.
        """
        arms, v = np.asarray(arm), np.asarray(values, dtype=np.float64)
        w = None if weight is None else np.asarray(weight, dtype=np.float64)
        if v.shape != (self.shape.columns, len(arms)) or (w is None) == self.shape.weighted:
            raise ValueError("the records do not have the shape of the sums")
        cell = arms * self.shape.groups + (0 if group is None else np.asarray(group))
        folded = self
        for start in range(0, len(arms), _STEP):
            part = slice(start, start + _STEP)
            folded = folded + self._of(cell[part], v[:, part], None if w is None else w[part])
        return folded

    def _of(self, cell: Indices, values: Floats, weight: Floats | None) -> Self:
        """The sums of a few records alone."""
        shape = self.shape
        made = self.empty(shape)
        made.records[:] = _by_cell(shape, cell, None)
        if weight is not None and not shape.missing and made.weight is not None:
            made.weight[..., 0] = _by_cell(shape, cell, weight)
        for o in range(shape.outcomes):
            columns = values[o :: shape.outcomes]
            if not shape.missing:
                made._write(o, cell, columns, weight)
                continue
            here = ~np.isnan(columns[0])
            made._write(o, cell[here], columns[:, here], None if weight is None else weight[here])
        return made.settled()

    def _write(self, o: int, cell: Indices, columns: Floats, weight: Floats | None) -> None:
        """Write the sums of one outcome, and of its ỹ, into these, which have none of it yet."""
        shape = self.shape
        if self.present is not None:
            self.present[..., o] = _by_cell(shape, cell, None)
            if self.weight is not None:
                self.weight[..., o] = _by_cell(shape, cell, weight)
        squared = None if weight is None else weight * weight
        mass = self.counts(o).sum(axis=1) if squared is None else _by_cell(shape, cell, squared).sum(axis=1)
        self.mass[:, o] = mass
        about = [_centred(shape, cell, v, weight, squared, mass) for v in columns]
        for column, parts in zip(range(o, shape.columns, shape.outcomes), about, strict=True):
            self.level[column] = parts.level
            self.first[:, column] = parts.first + mass * (parts.center - parts.level)
            self.total[..., column] = parts.total + self.weights(o) * (parts.center - parts.level)[:, None]
            self.square[:, column] = parts.square
        if self.cross is not None:
            y, adjusted = about
            products = _by_cell(shape, cell, y.d * adjusted.d2).sum(axis=1)
            self.cross[:, o] = products - _ratio(y.first * adjusted.first, mass)
        sizes = np.abs(columns[0])
        self.absolute[:, o] = _by_cell(shape, cell, sizes if weight is None else sizes * weight).sum(axis=1)

    def __add__(self, other: Self) -> Self:
        """The sums of both sets of records."""
        if self.shape != other.shape:
            raise EstimateError("only sums of the same arms, outcomes and groups can be added; merge groups first.")
        if not (self.n and other.n):
            return self if self.n else other
        ours, theirs = (self.n, *self.level), (other.n, *other.level)
        one = self if ours >= theirs else self._about(other.level)
        two = other if theirs >= ours else other._about(self.level)
        Q, R = (_wide(each.mass, self.shape) for each in (one, two))
        apart = _ratio(one.first, Q) - _ratio(two.first, R)
        both = _ratio(Q * R, Q + R)
        cross = None
        if one.cross is not None and two.cross is not None:
            y, adjusted = np.split(apart, 2, axis=1)
            cross = one.cross + two.cross + both[:, : self.shape.outcomes] * y * adjusted
        return replace(
            one,
            records=one.records + two.records,
            present=_plus(one.present, two.present),
            weight=_plus(one.weight, two.weight),
            total=one.total + two.total,
            mass=one.mass + two.mass,
            first=one.first + two.first,
            square=one.square + two.square + both * apart**2,
            cross=cross,
            absolute=one.absolute + two.absolute,
        ).settled()

    def _about(self, level: Floats) -> Self:
        """The same sums, the first-order ones about another level."""
        moved = self.level - level
        if not moved.any():
            return self
        outcomes = self.shape.outcomes
        weights = np.stack([self.weights(column % outcomes) for column in range(self.shape.columns)], axis=-1)
        first = self.first + _wide(self.mass, self.shape) * moved
        return replace(self, level=level, total=self.total + weights * moved, first=first)

    def settled(self) -> Self:
        """About a level that is near enough for the digits and says nothing about few records."""
        mass = _wide(self.mass, self.shape)
        total = mass.sum(axis=0)
        mean = self.level + _ratio(self.first.sum(axis=0), total)
        deviation = np.sqrt(_ratio(self.square.sum(axis=0), total))
        with np.errstate(divide="ignore"):
            grid = np.where(deviation > 0, np.exp2(np.ceil(np.log2(_COARSE * deviation))), 1.0)
        far = (deviation > 0) & (np.abs(mean) > _FAR * deviation)
        # A level that still serves stays, if it is as coarse as it has to be.
        serves = (np.abs(mean - self.level) <= _FAR * deviation) & (np.mod(self.level, grid) == 0)
        return self._about(np.where(far, np.where(serves, self.level, np.round(mean / grid) * grid), 0.0))

    def regrouped(self, groups: int) -> Self:
        """The same sums in fewer groups, a power of two: groups with the same lowest bits are added.

        Example:
            >>> sums = Sums.empty(SumsShape(1, 1, groups=4)).fold([0, 0], [[1.0, 2.0]], [1, 3])
            >>> sums.regrouped(2).totals(0)
            array([[0., 3.]])
        """
        if groups > self.shape.groups or groups < 1 or self.shape.groups % groups:
            raise ValueError("groups merge to a smaller power of two.")

        def merged(cells: Floats) -> Floats:
            added: Floats = cells.reshape(self.shape.arms, -1, groups, *cells.shape[2:]).sum(axis=1)
            return added

        return replace(
            self,
            shape=self.shape._replace(groups=groups),
            records=merged(self.records),
            present=None if self.present is None else merged(self.present),
            weight=None if self.weight is None else merged(self.weight),
            total=merged(self.total),
        )

    def unadjusted(self) -> Self:
        """The sums of the outcomes alone, which states with different coefficients have in common."""
        columns = np.s_[..., : self.shape.outcomes]
        return replace(
            self,
            shape=self.shape._replace(adjusted=False),
            level=self.level[columns],
            total=self.total[columns],
            first=self.first[columns],
            square=self.square[columns],
            cross=None,
        )

    def arrays(self) -> dict[str, Floats]:
        """Every array of sums that there is, by name."""
        return {name: getattr(self, name) for name, size in _sizes(self.shape).items() if size is not None}

    def state(self) -> SumsState:
        """What is kept."""
        kept: dict[str, Any] = dict.fromkeys(_sizes(self.shape))
        kept.update({name: Array.of(array) for name, array in self.arrays().items()})
        return SumsState(**kept)

    @classmethod
    def restore(cls, state: Any, shape: SumsShape) -> Self:
        """The sums from their state."""
        kept = decode_part(state, SumsState)
        arrays: dict[str, Any] = {}
        for name, size in _sizes(shape).items():
            array = getattr(kept, name)
            if (array is None) != (size is None):
                raise StateError("the state does not fit its plan: it has other sums.")
            arrays[name] = None if size is None else array.read(*size)
        sums = cls(shape, **arrays)
        for counts in (sums.records, sums.present):
            if counts is not None and (np.any(counts < 0) or np.any(counts != np.floor(counts))):
                raise StateError("the state is damaged: its counts do not fit.")
        if any(np.any(array < 0) for array in (sums.mass, sums.square, sums.absolute)):
            raise StateError("the state is damaged: a sum of squares is negative.")
        return sums

    def __repr__(self) -> str:
        nouns = zip(("arm", "outcome", "group"), self.shape, strict=False)
        words = ", ".join(f"{count} {noun}{'s' * (count != 1)}" for noun, count in nouns)
        return f"Sums: n={self.n:_} | {words}"


def _sizes(shape: SumsShape) -> dict[str, tuple[int, ...] | None]:
    """The arrays that are kept, in the order of the state, and the size of each."""
    A, G, V, outcomes = shape.arms, shape.groups, shape.columns, shape.outcomes
    return {
        "level": (V,),
        "records": (A, G),
        "present": (A, G, outcomes) if shape.missing else None,
        "weight": (A, G, outcomes if shape.missing else 1) if shape.weighted else None,
        "total": (A, G, V),
        "mass": (A, outcomes),
        "first": (A, V),
        "square": (A, V),
        "cross": (A, outcomes) if shape.adjusted else None,
        "absolute": (A, outcomes),
    }


def _by_cell(shape: SumsShape, cell: Indices, values: Floats | None) -> Floats:
    """Sums by arm and group; numbers of records if there are no values."""
    sums = np.bincount(cell, values, shape.arms * shape.groups)
    return sums.reshape(shape.arms, shape.groups).astype(np.float64, copy=False)


class _Centred(NamedTuple):
    """A column of a few records about each arm's center: sums, and the differences d and w² d themselves."""

    center: Floats
    level: float
    d: Floats
    d2: Floats
    total: Floats
    first: Floats
    square: Floats


def _centred(
    shape: SumsShape, cell: Indices, v: Floats, weight: Floats | None, squared: Floats | None, mass: Floats
) -> _Centred:
    level = float(v.mean()) if len(v) else 0.0
    center = np.full(shape.arms, level)
    for again in (True, False):
        d = v - (level if again else center[cell // shape.groups])
        d2 = d if squared is None else d * squared
        total = _by_cell(shape, cell, d if weight is None else d * weight)
        first = total.sum(axis=1) if squared is None else _by_cell(shape, cell, d2).sum(axis=1)
        about = _by_cell(shape, cell, d * d2).sum(axis=1)
        square = about - _ratio(first**2, mass)
        if not (again and np.any(square < _APART * about)):
            break
        # The arms lie far apart next to their spread: each about a mean of its own.
        center = level + _ratio(first, mass)
    return _Centred(center, level, d, d2, total, first, np.maximum(square, 0))


def _wide(by_outcome: Floats, shape: SumsShape) -> Floats:
    """What is known by outcome, by column."""
    return np.concatenate([by_outcome] * (1 + shape.adjusted), axis=-1)


def _ratio(numerator: Floats, denominator: Floats) -> Floats:
    """The quotient, 0 where there is nothing."""
    return np.divide(numerator, denominator, out=np.zeros(np.shape(numerator)), where=denominator > 0)


def _plus(one: Floats | None, two: Floats | None) -> Floats | None:
    return None if one is None or two is None else one + two
