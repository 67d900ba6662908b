"""Mode scores: a device sends moments of its records as they come, and at the end its reply to the coefficients.

A reply is made of the factor of its rows: X'E and X'X are the same for the rows and for those of their factor.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from foldaway_device.errors import ServerError
from foldaway_device.factor import rows_of
from foldaway_device.floats import packed, unpacked
from foldaway_device.modes.mode import Holding
from foldaway_device.modes.one_message import OneMessage
from foldaway_device.plan import Plan


class Scores(OneMessage):
    """A device keeps factors: of its new records, and of those whose moments are durable."""

    name = "scores"
    replies = True

    def report(self, plan: Plan, holding: Holding, published: Mapping[str, Any] | None) -> dict[str, Any]:
        """The scores; once the trial has ended none, which asks whether the number has been counted."""
        assert published is not None
        try:
            numbers = [] if published["stage"] == "ended" else _scores(plan, holding, published)
        except (LookupError, TypeError, ValueError, ZeroDivisionError, OverflowError):
            raise ServerError("what the server has published does not fit the plan: is the address right?") from None
        return {"number": holding.number, "arm": holding.arm, "scores": packed(numbers)}


def _scores(plan: Plan, holding: Holding, published: Mapping[str, Any]) -> list[float]:
    k, arm = len(plan.regressors), list(plan.arms).index(holding.arm)
    F = list(rows_of(unpacked(published["frame"])))
    rows = [_framed(row, F) for row in rows_of(holding.sums)]
    numbers: list[float] = []
    for model in published["models"]:
        delta, place, q = unpacked(model["deltas"][arm]), k + model["outcome"], model["regressors"]
        residuals = [F[place][place] * s[place] - sum(a * b for a, b in zip(s[:k], delta, strict=True)) for s in rows]
        summed = [[s[0] for s in rows], residuals] if model["intercept"] else [residuals]
        numbers += [
            math.fsum(s[i] * e for s, e in zip(rows, column, strict=True)) for i in range(q) for column in summed
        ]
    return numbers


def _framed(row: Sequence[float], F: Sequence[Sequence[float]]) -> list[float]:
    """row · F⁻¹. The first column, the intercept, is taken out before the others: that centres, without rounding."""
    s = [row[0] / F[0][0]]
    rest = [number - s[0] * F[0][j] for j, number in enumerate(row)]
    for j in range(1, len(row)):
        s.append((rest[j] - sum(s[i] * F[i][j] for i in range(1, j))) / F[j][j])
    return s
