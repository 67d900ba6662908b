"""Keyed numbers: a hash of each record's unit, or of its own number, under the trial's key."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Hashes = NDArray[np.uint64]


class Keys(Protocol):
    """Gives each record of a batch its keyed number."""

    def of(self, units: pa.Array | None, n: int) -> Hashes:
        """The numbers of n records, of which the units are given if the plan has units."""
        ...


@dataclass(frozen=True)
class UnitKeys:
    """Every record of a unit has the same number, in whatever batch, shard or month it comes."""

    key: bytes = field(repr=False)

    def of(self, units: pa.Array | None, n: int) -> Hashes:
        """The hash of each record's identifier."""
        from foldaway.numerics.kernels.siphash import hash_identifiers

        assert units is not None
        return hash_identifiers(units, self.key)


@dataclass(frozen=True)
class RecordKeys:
    """Every record has a number of its own: its place in the batch, which has a key of its own."""

    key: bytes = field(repr=False)

    def of(self, units: pa.Array | None, n: int) -> Hashes:
        """The hash of each record's position."""
        from foldaway.numerics.kernels.siphash import hash_identifiers

        return hash_identifiers(pa.array(np.arange(n)), self.key)
