"""Kaplan–Meier curves of an outcome by arm, with pointwise bands, the log-rank test and the hazard ratio, as data."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from foldaway.effects.numbers import p_relation
from foldaway.table import number

ASSUMED = (
    "A hazard ratio describes the whole time only if the arms' hazards keep the same ratio throughout. Where curves "
    "cross they do not, and the log-rank test may miss the difference: rely on the restricted mean."
)


class Curve(msgspec.Struct, frozen=True, kw_only=True):
    """An arm's curve: by time the share without the event, its band there, and how many are followed beyond.

    And how many `events` there were in all by the end of follow-up. The band is None where there is no error, or the
    curve is at 0 or 1.
    """

    arm: str
    survival: list[float]
    lower: list[float | None]
    upper: list[float | None]
    at_risk: list[int]
    events: int | None = None


class Hazards(msgspec.Struct, frozen=True, kw_only=True):
    """An arm's hazard against the control's: the log-rank test, and the ratio of Mantel and Haenszel.

    With `within_strata`, those at risk are compared within strata, or within sites.
    """

    arm: str
    control: str
    within_strata: bool = False
    p_value: float | None = None
    hazard_ratio: float | None = None
    ci_lower: float | None = None
    ci_upper: float | None = None
    why: str | None = None

    @property
    def said(self) -> str:
        """In words; empty if there is nothing to say."""
        if self.p_value is None:
            return ""
        test = f"{'stratified ' if self.within_strata else ''}log-rank test p {p_relation(self.p_value)}"
        if self.hazard_ratio is None:
            return test
        ends = f"{number(self.ci_lower, 3)} to {number(self.ci_upper, 3)}"
        return f"{test}; hazard ratio {number(self.hazard_ratio, 3)} ({ends})"


class Curves(msgspec.Struct, frozen=True, kw_only=True):
    """The arms' curves of one outcome at the same times, and how their hazards compare.

    If they cannot be told, there are none, and `why` says so.
    """

    outcome: str
    times: list[float] = []
    curves: list[Curve] = []
    hazards: list[Hazards] = []
    why: str | None = None


def sentences(curves: Sequence[Curves], headings: Sequence[str]) -> list[str]:
    """The tests in words, and what the hazard ratio takes for granted."""
    said = [
        f"{heading}, {each.arm} against {each.control}: {each.said}."
        for heading, those in zip(headings, curves, strict=True)
        for each in those.hazards
        if each.said
    ]
    ratios = any(each.hazard_ratio is not None for those in curves for each in those.hazards)
    return [*said, ASSUMED] if ratios else said
