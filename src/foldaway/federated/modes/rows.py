"""A device's records as rows: each is K + 1 numbers, its row z = [1, x, y] and its observation weight."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from foldaway.federated.messages import Moments, unpacked
from foldaway.numerics.block import Floats
from foldaway.numerics.linalg import append_rows


def stacked(records: Sequence[bytes]) -> Floats:
    """Records as they are kept, one per row."""
    return np.array([unpacked(record, len(record) // 8) for record in records])


def with_rows(R: Floats, records: Floats) -> Floats:
    """The triangular factor R with these records in it, their rows times the roots of their weights."""
    return append_rows(np.asfortranarray(R), records[:, :-1] * np.sqrt(records[:, -1:]))


def moments(number: bytes, arm: str, records: Sequence[bytes], *, first: bool) -> Moments:
    """The message for the moments of some records; ``first`` if the device has sent none before."""
    rows = stacked(records)
    columns = rows.shape[1] - 1
    return Moments.of(number, arm, len(rows), with_rows(np.zeros((columns, columns)), rows), first=first)
