"""Mode scores: a device sends moments of its records as they come, and at the end its reply to the coefficients.

A reply is made of the factor of its rows: X'E and X'X are the same for the rows and for those of their factor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from foldaway_device.errors import ServerError
from foldaway_device.factor import rows_of
from foldaway_device.floats import packed, unpacked
from foldaway_device.leverage import corrected, product, transposed
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
        X = [s[:q] for s in rows]
        E = [[s[0], e] if model["intercept"] else [e] for s, e in zip(rows, residuals, strict=True)]
        XE = product(transposed(X), E)
        parts = [XE]
        if model.get("breads") is not None and plan.leverage is not None:
            bread = unpacked(model["breads"][arm])
            square = [bread[i * q : (i + 1) * q] for i in range(q)]
            parts.append(corrected(product(transposed(X), X), XE, square, plan.leverage))
        numbers += [number for part in parts for row in part for number in row]
    return numbers


def _framed(row: Sequence[float], F: Sequence[Sequence[float]]) -> list[float]:
    """row · F⁻¹. The first column, the intercept, is taken out before the others: that centres, without rounding."""
    s = [row[0] / F[0][0]]
    rest = [number - s[0] * F[0][j] for j, number in enumerate(row)]
    for j in range(1, len(row)):
        s.append((rest[j] - sum(s[i] * F[i][j] for i in range(1, j))) / F[j][j])
    return s
