"""Whether the replies add up to the moments.

By the normal equations the scores of a regression sum to zero over all clusters; and what they sum to within an arm
follows from the arm's own moments. The coordinator has both: the replies, and the moments that came before them. What
is left between the two is rounding if every reply is there once and unaltered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec
import numpy as np

from foldaway.federated.replies.models import readings
from foldaway.federated.replies.tally import Replies
from foldaway.tallies.moments import ArmTally

Verdict = Literal["all here", "some missing", "altered"]

# Roundings of single devices add up like a random walk: this much allows for a million of them.
_ROUNDING = 1e3 * float(np.finfo(np.float64).eps)

# How many times its expected size the sum of the missing replies may have.
_EXPLAINED = 10.0


class Integrity(msgspec.Struct, frozen=True):
    """What the sum of the replies says about them.

    Attributes:
        residual: The largest difference between the replies' sum and what the moments say it must be, in units of
            its rounding, if it is no more than 1 of these. None above: if one device is missing, the difference is its
            reply, and tells its records.
        verdict: ``"all here"``, ``"some missing"`` or ``"altered"``.
        meaning: The same as a sentence.
    """

    residual: float | None
    verdict: Verdict
    meaning: str

    def __str__(self) -> str:
        size = "above rounding" if self.residual is None else f"residual {self.residual:.2g} roundings"
        return f"Integrity: {self.verdict} ({size}). {self.meaning}"


def integrity(arms: Sequence[ArmTally], replies: Sequence[Replies], missing: Mapping[str, int]) -> Integrity:
    """Judge the replies.

    Args:
        arms: The arms' moments, in the frame that was published.
        replies: The sums of the replies, by arm.
        missing: The devices whose records are in the moments and that have not replied, by arm.
    """
    largest, altered = 0.0, False
    for place, (absent, arm) in enumerate(zip(missing.values(), arms, strict=True)):
        residual, explained = _residual(arm, place, replies[place], absent)
        largest = max(largest, residual)
        altered = altered or (residual > 1 and not explained)
    if altered:
        meaning = (
            "The replies do not add up to the moments that the devices sent before, and missing devices do not explain "
            "it: a reply is altered, counted twice or lost, or comes from a device whose records are not here. Do not "
            "trust the standard errors."
        )
        return Integrity(None, "altered", meaning)
    if largest > 1:
        meaning = (
            "The replies fall short of the moments by no more than the missing devices would explain. An "
            "alteration as small as that in one of the replies would go unnoticed."
        )
        return Integrity(None, "some missing", meaning)
    meaning = "The replies add up to the moments: each is here once, and unaltered."
    return Integrity(largest, "all here", meaning)


def _residual(arm: ArmTally, place: int, replies: Replies, missing: int) -> tuple[float, bool]:
    """The residual in units of rounding, and whether as many missing devices explain it."""
    k, F = arm.shape.regressors, arm.frame.F
    # Where a mean is large next to its spread, rows lose digits on their way into the frame.
    rounding = _ROUNDING * max(1.0, float(np.max(np.linalg.norm(F, axis=0) / np.abs(np.diag(F)))))
    largest, explained = 0.0, True
    for segment in replies.segments:
        X, E = readings(segment, place, F, arm.factor.R, k)
        gap = np.abs(replies.sums[segment.place] - (X.T @ E).ravel())
        if not gap.any():
            continue
        # The residuals' length is that before what cancels in them is taken out.
        column, lengths = k + segment.model.outcome, np.linalg.norm(E, axis=0)
        lengths[-1] = max(lengths[-1], float(abs(F[column, column]) * np.linalg.norm(arm.factor.R[:, column])))
        scale = np.outer(np.linalg.norm(X, axis=0), lengths).ravel()
        with np.errstate(divide="ignore", invalid="ignore"):
            relative = np.where(gap > 0, gap / (rounding * scale), 0.0)
        largest = max(largest, float(relative.max()))
        # A sum of so many like those that are here.
        size = np.sqrt(np.diag(replies.product(segment)) / max(replies.n, 1))
        mean = np.abs(replies.sums[segment.place]) / max(replies.n, 1)
        reach = _EXPLAINED * np.sqrt(missing) * size + missing * mean
        explained = explained and bool(np.all((relative <= 1) | (gap <= reach)))
    return largest, explained
