"""A look through records, batch by batch, in bounded memory: counts, and how many records each unit has."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from foldaway.errors import PlanError
from foldaway.numerics.kernels.siphash import hash_identifiers
from foldaway.plan import Outcome
from foldaway.records.values import NULL, identifiers, numbers

MOST_ARMS = 20
"""A column with more values than this does not name arms."""

_MOST_LEVELS = 100
_MOST_UNITS = 30_000_000  # identifiers that are compared with one another
_ARM_BITS = 5  # in which MOST_ARMS and a code for none have room
_NO_ARM = 2**_ARM_BITS - 1


class Roles(NamedTuple):
    """What columns are.

    Attributes:
        arm: The column that names the arm.
        outcomes: What is compared.
        covariates: Columns measured before treatment.
        levels: The levels of categorical covariates and of segments; None for all that the records have.
        segments: Columns within whose levels effects are wanted as well.
        unit: The column that names what was randomised.
    """

    arm: str
    outcomes: Sequence[Outcome]
    covariates: Sequence[str] = ()
    levels: Mapping[str, Sequence[str] | None] = {}
    segments: Sequence[str] = ()
    unit: str | None = None

    @property
    def measured(self) -> list[str]:
        """The columns of outcomes."""
        return list(dict.fromkeys(column for outcome in self.outcomes for column in outcome.columns))

    @property
    def numeric(self) -> list[str]:
        """The columns that should hold numbers."""
        return list(dict.fromkeys([*self.measured, *(each for each in self.covariates if each not in self.levels)]))

    @property
    def named(self) -> list[str]:
        """The columns that hold names: arms, levels, identifiers."""
        unit = [] if self.unit is None else [self.unit]
        return list(dict.fromkeys([self.arm, *self.levels, *self.segments, *unit]))


class SeenUnits(NamedTuple):
    """How many units there are, and how many of them have records in several arms."""

    number: int
    in_several_arms: int


class SeenRecords:
    """What the records seen so far tell of the columns.

    Attributes:
        records: How many there are.
        arms: How many have each value of the arm's column.
        texts: How many have something other than a number, by column that should hold numbers.
        levels: How many have each level, by column: each that is listed, or each that is there.
        unlisted: How many have a level that is not listed, by column.
        missing: How many have no value, by column.

    Example:
        >>> from foldaway.plan import Mean
        >>> look = SeenRecords(Roles("arm", [Mean("y")], unit="id"))
        >>> look.add(pa.record_batch({"arm": ["a", "b", "b"], "y": [1.0, None, 2.0], "id": ["1", "2", "2"]}))
        >>> look.arms["b"], look.missing["y"], look.units({"a": 0, "b": 1})
        (2, 1, SeenUnits(number=2, in_several_arms=0))
    """

    def __init__(self, roles: Roles) -> None:
        self.roles = roles
        self.records = 0
        self.arms, self.texts, self.missing, self.unlisted = (Counter[str]() for _ in range(4))
        self.levels: dict[str, Counter[str]] = {
            column: Counter(dict.fromkeys(listed or (), 0)) for column, listed in roles.levels.items()
        }
        # Units as hashes, under a key that nobody keeps, whose last bits say the arm. None: too many to compare.
        self._key, self._codes = secrets.token_bytes(16), dict[str, int]()
        self._pairs: list[Any] | None = None if roles.unit is None else []

    def add(self, records: pa.RecordBatch) -> None:
        """Take in a batch.

        Raises:
            PlanError: A column cannot be what it is said to be.
        """
        roles, there = self.roles, records.schema.names
        self.records += len(records)
        for name, column in zip(there, records.columns, strict=True):
            self.missing[name] += column.null_count
        arms = records.column(roles.arm).cast(pa.string())
        self.arms.update(_counted(arms))
        if len(self.arms) > MOST_ARMS:
            raise PlanError(f"{roles.arm!r} has more than {MOST_ARMS} different values: is it the column of the arm?")
        for column, listed in roles.levels.items():
            self._add_levels(column, records.column(column).cast(pa.string()), listed)
        for column in roles.numeric:
            if column in there:
                masks = numbers(records.column(column), text=True)[1]
                self.texts[column] += sum(int(mask.sum()) for rule, mask in masks.items() if rule != NULL)
        if roles.unit is not None and self._pairs is not None:
            units = identifiers(records.column(roles.unit))[0]
            there_is = pc.is_valid(units)
            self._add_units(units.filter(there_is), arms.filter(there_is))

    def units(self, arms: Mapping[str, int]) -> SeenUnits | None:
        """The units, given by number the arm of each value of its column; None if there are none, or too many.

        Records whose arm is none of these do not count.
        """
        if self._pairs is None:
            return None
        numbered = np.full(_NO_ARM + 1, _NO_ARM, np.uint64)
        for value, code in self._codes.items():
            numbered[code] = arms.get(value, _NO_ARM)
        pairs = self._merged()
        pairs = (pairs & ~np.uint64(_NO_ARM)) | numbered[(pairs & np.uint64(_NO_ARM)).astype(int)]
        pairs = np.unique(pairs[pairs & np.uint64(_NO_ARM) != _NO_ARM])
        _, arms_of = np.unique(pairs >> np.uint64(_ARM_BITS), return_counts=True)
        return SeenUnits(len(arms_of), int((arms_of > 1).sum()))

    def _add_levels(self, column: str, values: pa.Array, listed: Sequence[str] | None) -> None:
        counts = _counted(values)
        if listed is None:
            self.levels[column].update(counts)
            if len(self.levels[column]) > _MOST_LEVELS:
                raise PlanError(
                    f"{column!r} has more than {_MOST_LEVELS} different values. If it is categorical, list the levels "
                    f"that you need: --levels '{column}=first,second'."
                )
            return
        for level, n in counts.items():
            if level in self.levels[column]:
                self.levels[column][level] += n
            else:
                self.unlisted[column] += n

    def _add_units(self, units: pa.Array, arms: pa.Array) -> None:
        for arm in self.arms:
            self._codes.setdefault(arm, len(self._codes))
        entries = pc.dictionary_encode(arms)
        codes = np.array([self._codes.get(arm, _NO_ARM) for arm in [*entries.dictionary.to_pylist(), None]], np.uint64)
        of_record = pc.fill_null(entries.indices, len(codes) - 1).to_numpy(zero_copy_only=False)
        hashes = hash_identifiers(units, self._key).astype(np.uint64) & ~np.uint64(_NO_ARM)
        assert self._pairs is not None
        self._pairs.append(np.unique(hashes | codes[of_record]))
        if len(self._pairs) > 1 and len(self._pairs[0]) < sum(map(len, self._pairs[1:])):
            self._pairs = [self._merged()]
        if len(self._pairs[0]) > _MOST_UNITS:
            self._pairs = None

    def _merged(self) -> Any:
        return np.unique(np.concatenate([*(self._pairs or []), np.zeros(0, np.uint64)]))


def _counted(values: pa.Array) -> dict[str, int]:
    return {pair["values"]: pair["counts"] for pair in pc.value_counts(pc.drop_null(values)).to_pylist()}
