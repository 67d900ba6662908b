"""A batch of records, checked against the plan: all of it is good, or it is refused, or its faults are counted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from foldaway.numerics.block import Floats
from foldaway.plan import Plan
from foldaway.plan.outcomes import Value
from foldaway.plan.vocabulary import SIPHASH, Hash
from foldaway.records.batch import Batch, Index
from foldaway.records.columns import Column, attempt, columns_of
from foldaway.records.faults import CLIPPED, NO_ARM, RAGGED, SEVERAL_ARMS, Fault, Faults, FaultyBatch
from foldaway.records.values import (
    BEYOND,
    LEVEL,
    NAN,
    NULL,
    NUMBER,
    WRONG_TYPE,
    Codes,
    Mask,
    Masks,
    broken,
    clipped,
    codes,
    identifiers,
    kinds,
    levels_in,
    numbered,
    numbers,
    weights,
)

MOST_LEVELS = 100
"""A segment whose levels the plan does not list has no more of them in one process, nor has a text characteristic."""

TOO_MANY = "more records of a unit than the plan allows"


def check(
    data: Any,
    plan: Plan,
    *,
    text: bool = False,
    ragged: int = 0,
    key: bytes | None = None,
) -> tuple[Batch, Faults]:
    """The batch of good records, and the faults of those left out.

    Args:
        data: A pandas, polars, pyarrow or DuckDB table, a dict of columns, or a list of dicts.
        plan: The plan, which says what a good record is.
        text: Whether numbers may come as text, as in CSV.
        ragged: Lines that could not even be read as records, counted by whoever read them.
        key: What gives the records their keyed numbers, for plans that need them.

    Raises:
        RecordError: The batch is refused whole: a column is missing, or, unless the plan drops faulty
            records, some record is faulty. The message has counts by column and rule, and no values.
    """
    columns, n, others = columns_of(data, _wanted(plan), plan.lackable | plan.shown_alone)
    checked = attempt(lambda: _Checked(plan, columns, n, text))
    faults = checked.faults(ragged + others)
    if faults and not plan.drops:
        first = int(checked.faulty.argmax()) if checked.faulty.any() else None
        raise FaultyBatch(faults, n + ragged + others, first, fixed=plan.federated is not None)
    return checked.batch(key), faults


def _wanted(plan: Plan) -> list[str]:
    stratum = None if plan.strata is None else plan.strata.column
    optional = [name for name in (plan.unit, plan.cluster, plan.weight, stratum, *plan.segments) if name is not None]
    return list(dict.fromkeys([plan.arm, *plan.covariates, *plan.measured, *optional, *plan.baseline]))


class _Checked:
    """A batch's columns as numbers and codes, and what is wrong with them."""

    def __init__(self, plan: Plan, columns: dict[str, Column], n: int, text: bool) -> None:
        self.plan = plan
        self.n = n
        self.masks: dict[str, Masks] = {}
        self.clipped: dict[str, Mask] = {}
        self.values: list[tuple[Floats | Codes, int | None]] = []
        values = [value for said in plan.arms.said.values() for value in said]
        self.arm, self.masks[plan.arm] = codes(columns[plan.arm], values, "unknown arm")
        if len(values) > len(plan.arms):
            arms = [arm for arm, said in enumerate(plan.arms.said.values()) for _ in said]
            self.arm = np.array([*arms, -1], dtype=self.arm.dtype)[self.arm]  # the last one for unknown arms
        for name in (*plan.covariates, *plan.fixed_effects):
            self._take(name, columns[name], text)
        measured = {name: self._numbers(name, columns[name], text) for name in plan.measured}
        self.values += [(_value(value, measured), None) for value in plan.values]
        self.bins = [bins.codes(measured) for bins in plan.bins]
        self.weight = None
        if plan.weight is not None:
            self.weight, self.masks[plan.weight] = weights(columns[plan.weight], text=text)
        self.stratum = None
        self.inverse = None
        if plan.strata is not None:
            name, strata = plan.strata.column, list(plan.strata.probabilities)
            self.stratum, masks = codes(columns[name], strata, "unknown stratum")
            self.masks.setdefault(name, masks)  # a fixed effect has been taken already
            self.inverse = self._inverse()
        self.segments = [self._segment(name, columns[name]) for name in plan.segments]
        self.characteristics: list[tuple[Sequence[str], NDArray[Any]] | None] = []
        self.baseline = [each for name in plan.baseline for each in self._traits(name, columns[name], text)]
        self.unit = None
        self.identifiers: dict[str, pa.Array] = {}
        for column in (plan.unit, plan.cluster):
            if column is not None:
                self.identifiers[column], self.masks[column] = identifiers(columns[column])
        if plan.unit is not None and plan.whole_units:
            self.unit = numbered(self.identifiers[plan.unit])
            self._require_one_arm(plan.unit)
            if plan.release is not None or plan.federated is not None:
                self._require_few(plan.unit)
        self.faulty = np.zeros(n, dtype=bool)  # which records break some rule
        for mask in chain.from_iterable(masks.values() for masks in self.masks.values()):
            self.faulty |= mask

    def _take(self, name: str, column: Column, text: bool) -> None:
        levels = self.plan.levels_of(name)
        if levels is None:
            self.values.append((self._numbers(name, column, text), None))
        else:
            level, self.masks[name] = codes(column, levels, "unknown level")
            self.values += [(level, code) for code in range(1, len(levels))]

    def _traits(self, name: str, column: Column, text: bool) -> list[Floats]:
        """A column of the baseline table, or of 0 and 1 for each of its levels; NaN where a record has none."""
        plan, levels = self.plan, self.plan.levels_of(name)
        if name in plan.unlisted_characteristics:
            return [self._characteristic(name, column, text)]
        known = self.masks.get(name)
        if levels is None:
            made = [self._numbers(name, column, text)]
        else:
            level, self.masks[name] = codes(column, levels, "unknown level")
            made = [np.where(level < 0, np.nan, level == code) for code in range(len(levels))]
        if known is not None:  # what else the column is for needs all of its values
            self.masks[name] = known
        elif name in plan.shown_alone:
            masks = self.masks[name]
            absent = [masks.pop(rule) for rule in (NULL, NAN) if rule in masks]
            if absent:
                gone = np.logical_or.reduce(absent)
                made = [np.where(gone, np.nan, each) for each in made]
        return made

    def _characteristic(self, name: str, column: Column, text: bool) -> Floats:
        """A column of numbers or of text, whichever more records have; the numbers, NaN where there is none.

        Of text it takes the levels, and each record's place among them: -1 is beyond the most, -2 is none.
        """
        found = kinds(column, text=text)
        named = found == LEVEL
        text_of = None
        if named.any():
            levels = levels_in(column, MOST_LEVELS, named)
            text_of = levels, np.where(named, codes(column, levels, "other")[0], -2)
        self.characteristics.append(text_of)
        values, masks = numbers(column, text=text)
        self.masks[name] = {rule: mask for rule, mask in masks.items() if rule not in (NULL, NAN, WRONG_TYPE)}
        return np.where(found == NUMBER, values, np.nan)

    def _inverse(self) -> Floats:
        """Each record's 1/π, of its arm in its stratum: weighted by that, arms hold strata in like proportions."""
        assert self.stratum is not None
        rate = 1 / self.plan.strata_shares
        inverse: Floats = rate[self.stratum, self.arm]  # a faulty record's is that of the last, and is left out
        return inverse

    def _segment(self, name: str, column: Column) -> tuple[Sequence[str], NDArray[Any]]:
        """A segment's levels, and each record's place among them; those beyond the most are places of no level."""
        levels = self.plan.levels_of(name)
        if levels is not None:
            level, masks = codes(column, levels, "unknown level")
        else:
            levels = levels_in(column, MOST_LEVELS)
            level, masks = codes(column, levels, "other")
            masks.pop("other", None)
        self.masks.setdefault(name, masks)  # a covariate or stratum besides has been taken already
        return levels, level

    def _numbers(self, name: str, column: Column, text: bool) -> Floats:
        """A column of numbers, within its bounds."""
        values, self.masks[name] = numbers(column, text=text)
        for domain in self.plan.domains.get(name, ()):
            outside = domain.broken(values)
            for mask in self.masks[name].values():
                outside &= ~mask
            self.masks[name] |= broken({domain.rule: outside})
        if name in self.plan.lackable:
            values = self._without(name, values)
        if (limits := self.plan.limits.get(name)) is not None:
            values, beyond = clipped(values, limits.bounds, self.masks[name])
            if limits.beyond == "clip":
                self.clipped |= broken({name: beyond})
            else:
                self.masks[name] |= broken({BEYOND: beyond})
        return values

    def _without(self, name: str, values: Floats) -> Floats:
        """The numbers, NaN where there is none, which is no fault."""
        absent = [self.masks[name].pop(rule) for rule in (NULL, NAN) if rule in self.masks[name]]
        return np.where(np.logical_or.reduce(absent), np.nan, values) if absent else values

    def _require_one_arm(self, column: str) -> None:
        """A unit was randomised, so all its records are of one arm."""
        assert self.unit is not None
        good = (self.unit >= 0) & (self.arm >= 0)
        arms = np.full((int(self.unit.max(initial=0)) + 1, 2), [127, -1], dtype=np.int8)
        np.minimum.at(arms[:, 0], self.unit[good], self.arm[good])
        np.maximum.at(arms[:, 1], self.unit[good], self.arm[good])
        self.masks[column] |= broken({SEVERAL_ARMS: good & (arms[self.unit, 0] < arms[self.unit, 1])})

    def _require_few(self, column: str) -> None:
        """Of a unit's records in the batch, those after the first so many are too many."""
        assert self.unit is not None
        order = np.argsort(self.unit, kind="stable")
        rising = self.unit[order]
        place = np.empty(self.n, dtype=np.int64)
        place[order] = np.arange(self.n) - np.searchsorted(rising, rising)
        self.masks[column] |= broken({TOO_MANY: (self.unit >= 0) & (place >= self.plan.unit_records)})

    def faults(self, ragged: int) -> Faults:
        """The counts, by arm."""
        records = {NO_ARM: ragged} if ragged else {}
        reasons = [Fault(NO_ARM, "(record)", RAGGED, ragged)] if ragged else []
        if not self.faulty.any() and not self.clipped:
            return Faults(records.items(), reasons)
        clipped = {column: {CLIPPED: beyond & ~self.faulty} for column, beyond in self.clipped.items()}
        for code, arm in [(-1, NO_ARM), *enumerate(self.plan.arms)]:
            of_arm = self.arm == code
            if count := int(np.sum(self.faulty & of_arm)):
                records[arm] = records.get(arm, 0) + count
            for column, masks in [*self.masks.items(), *clipped.items()]:
                counts = {rule: int(np.sum(mask & of_arm)) for rule, mask in masks.items()}
                reasons += [Fault(arm, column, rule, count) for rule, count in counts.items() if count]
        return Faults(records.items(), reasons)

    def batch(self, key: bytes | None) -> Batch:
        """The records without a fault; sorted by unit where units are complete, so that none is cut in two."""
        index = np.flatnonzero(~self.faulty) if self.faulty.any() else None
        if self.unit is not None:
            index = np.arange(self.n) if index is None else index
            index = index[np.argsort(self.unit[index], kind="stable")]
        n, plan = self.n if index is None else len(index), self.plan
        apart = plan.cluster is not None and not plan.one_each and self.unit is None

        def pick(values: NDArray[Any]) -> NDArray[Any]:
            return values if index is None else values[index]

        def hashed(column: str | None) -> NDArray[np.uint64] | None:
            if key is None:
                return None
            names = None if column is None else self.identifiers[column]
            return hashes(names if names is None or index is None else names.take(index), n, key, plan.hash)

        picked: dict[int, NDArray[Any]] = {}  # the levels of one covariate share their codes
        columns = [(picked.setdefault(id(values), pick(values)), code) for values, code in self.values]
        return Batch(
            n,
            _assembler(columns),
            len(plan.arms),
            pick(self.arm),
            None if self.weight is None else pick(self.weight),
            None if self.unit is None else pick(self.unit),
            hashed(plan.clustering),
            hashed(plan.unit) if apart else None,
            stratum=None if self.stratum is None else pick(self.stratum),
            inverse=None if self.inverse is None else pick(self.inverse),
            segments=[(levels, pick(level)) for levels, level in self.segments],
            bins=[pick(bins) for bins in self.bins],
            baseline=_assembler([(pick(trait), None) for trait in self.baseline]) if self.baseline else None,
            characteristics=[each and (each[0], pick(each[1])) for each in self.characteristics],
        )


def hashes(units: pa.Array | None, n: int, key: bytes, how: Hash = SIPHASH) -> NDArray[np.uint64]:
    """A keyed number for each of n records: of its unit, the same in every batch, or else of its place in this one.

    Example:
        >>> hashes(pa.array([17, 4]), 2, bytes(16)).tolist() == hashes(pa.array(["17", "4"]), 2, bytes(16)).tolist()
        True
    """
    if units is not None and how != SIPHASH:
        from foldaway.records.sha256 import sha256_identifiers

        return sha256_identifiers(units, key)
    from foldaway.numerics.kernels.siphash import hash_identifiers

    return hash_identifiers(pa.array(np.arange(n)) if units is None else units, key)


def _value(value: Value, measured: Mapping[str, Floats]) -> Floats:
    """A value of each record; NaN where a column that it needs is missing."""
    made = value.of(measured[value.column])
    for column in value.beside:
        made = np.where(np.isnan(measured[column]), np.nan, made)
    return made


def _assembler(columns: list[tuple[NDArray[Any], int | None]]) -> Callable[[Index], Floats]:
    """Rows z = [1, x, y]; a covariate with levels gives a column of zeros and ones per level but the first."""

    def assemble(index: Index) -> Floats:
        length = index.stop - index.start if isinstance(index, slice) else len(index)
        rows = np.empty((len(columns) + 1, length))
        rows[0] = 1
        for row, (values, code) in zip(rows[1:], columns, strict=True):
            if code is not None:
                np.equal(values[index], code, out=row)
            elif isinstance(index, slice):
                row[:] = values[index]
            else:
                # Straight into its place; the index is in bounds, and only "clip" spares NumPy a buffer of its own.
                values.take(index, out=row, mode="clip")
        return rows

    return assemble
