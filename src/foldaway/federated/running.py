"""What a device keeps of its records in modes that keep none: a triangular factor, or sums."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from foldaway.block import Floats
from foldaway.federated.kept import Kept
from foldaway.federated.messages import Moments, Sums, packed, unpacked
from foldaway.linalg import append_rows
from foldaway.plan import Plan


def taken_in(plan: Plan, kept: Kept, row: Floats) -> bytes:
    """What is kept, with one more record's row z = [1, x, y] in it."""
    if plan.federated == "delta":
        outcomes = row[len(plan.regressors) :]
        return packed(unpacked(kept.sums, len(outcomes)) + outcomes if kept.sums else outcomes)
    R = Moments(b"", "", 1, kept.sums).triangle(len(row)) if kept.sums else np.zeros((len(row), len(row)))
    return packed(_upper(append_rows(np.asfortranarray(R), row[None, :])))


def report(plan: Plan, kept: Kept, arm: str) -> Moments | Sums:
    """The message that the device sends, once."""
    kind = Sums if plan.federated == "delta" else Moments
    return kind(kept.number, arm, kept.records, kept.sums)


def moments(number: bytes, arm: str, rows: Sequence[bytes]) -> Moments:
    """The message for the moments of some rows."""
    z = stacked(rows)
    R = np.zeros((z.shape[1], z.shape[1]), order="F")
    return Moments.of(number, arm, len(z), append_rows(R, z))


def stacked(rows: Sequence[bytes]) -> Floats:
    """Rows as they were kept, one under the other."""
    return np.array([unpacked(row, len(row) // 8) for row in rows])


def _upper(R: Floats) -> Floats:
    return R[np.triu_indices(len(R))]
