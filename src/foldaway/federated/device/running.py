"""From a device's records to what it keeps and sends: rows, a triangular factor, sums, scores.

A record is kept as K + 1 numbers: its row z = [1, x, y], and its observation weight.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from foldaway.federated.device.kept import Kept
from foldaway.federated.messages import Coefficients, Moments, Scores, Sums, packed, unpacked
from foldaway.numerics.block import Floats
from foldaway.numerics.linalg import append_rows
from foldaway.plan import Plan


def taken_in(plan: Plan, kept: Kept, record: Floats) -> bytes:
    """What is kept in place of records, with one more of them in it."""
    if plan.mode == "delta":
        outcomes = record[len(plan.regressors) : -1]
        return packed(unpacked(kept.sums, len(outcomes)) + outcomes if kept.sums else outcomes)
    columns = len(plan.columns)
    R = Moments(b"", "", 1, kept.sums).triangle(columns) if kept.sums else np.zeros((columns, columns))
    return Moments.of(b"", "", 1, append_rows(np.asfortranarray(R), _weighted(record[None, :]))).factor


def report(plan: Plan, kept: Kept, arm: str) -> Moments | Sums:
    """The message that the device sends, once, in modes that keep no records."""
    kind = Sums if plan.mode == "delta" else Moments
    return kind(kept.number, arm, kept.records, kept.sums)


def moments(number: bytes, arm: str, records: Sequence[bytes], *, first: bool) -> Moments:
    """The message for the moments of some records; ``first`` if the device has sent none before."""
    rows = _weighted(_stacked(records))
    R = np.zeros((rows.shape[1], rows.shape[1]), order="F")
    return Moments.of(number, arm, len(rows), append_rows(R, rows), first=first)


def scores(plan: Plan, published: Coefficients, number: bytes, arm: str, records: Sequence[bytes]) -> Scores:
    """The message with the scores of all records, for the coefficients that were published.

    Once the trial is closed there are none any more: then it is a question whether the number has been counted.
    """
    if published.stage == "closed":
        return Scores(number, arm, b"")
    from foldaway.federated.coordinator.replies import reply

    stacked = _stacked(records)
    weights = None if plan.weight is None else stacked[:, -1]
    return Scores.of(number, arm, reply(plan, published, arm, stacked[:, :-1], weights))


def _stacked(records: Sequence[bytes]) -> Floats:
    return np.array([unpacked(record, len(record) // 8) for record in records])


def _weighted(stacked: Floats) -> Floats:
    """Rows times the roots of their weights."""
    rows: Floats = stacked[:, :-1] * np.sqrt(stacked[:, -1:])
    return rows
