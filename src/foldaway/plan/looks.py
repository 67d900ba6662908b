"""Planned looks: how much information the trial is to have, when it is looked at, and how much each look may spend."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal, cast

from msgspec import Meta

from foldaway.plan.part import Count, Part

Error = Annotated[float, Meta(gt=0, le=1e15, description="a number above 0 and at most 10^15")]
At = Annotated[
    Sequence[float], Meta(min_length=1, max_length=20, description="a list of shares of the information, ending with 1")
]
SpendingOf = Annotated[
    Literal["obrien-fleming", "pocock"] | Sequence[float],
    Meta(description='"obrien-fleming", "pocock" or a list with what has been spent by each look'),
]
Futility = Annotated[
    Literal["none", "obrien-fleming", "pocock"] | Sequence[float],
    Meta(description='"none", "obrien-fleming", "pocock" or a list with what has been spent by each look'),
]
Chance = Annotated[float, Meta(ge=0.5, le=0.999, description="a number from 0.5 to 0.999")]

# Looks closer together tell nothing that the one before has not told.
_APART = 0.01


class Information(Part, frozen=True, kw_only=True):
    """How much information the trial is to have at the last look: one of the settings.

    Attributes:
        units: In how many units, of all arms, each with one record.
        error: How small a standard error of the effect, for units with several records, or clusters. The information so
            far is the square of this number over the present error.

        events: In how many events, of all arms, where the looks decide on a survival outcome.

    Example:
        >>> Information(units=900).units
        900
    """

    TABLE: ClassVar[str] = "looks.information"

    units: Count | None = None
    error: Error | None = None
    events: Count | None = None


class Looks(Part, frozen=True, kw_only=True):
    """Planned looks at the one primary outcome, which then has no verdict at any other time.

    Attributes:
        information: How much information there is to be at the last look.
        at: When there are looks, as fractions of that information. What a look spends depends on the information that
            is then there.
        spending: How the error rate is spent: ``"obrien-fleming"``, little at early looks; ``"pocock"``, about as much
            at each; or a list with what has been spent by each look, the last of which is 1 − `confidence`.
        futility: When going on is futile, by the chance to miss the effect that the trial was planned for, spent in the
            same ways; a list ends with 1 − `power`. You may go on all the same (non-binding).
        power: The chance to find the effect that the trial was planned for.

    Example:
        >>> Looks(information={"units": 900}, at=[0.5, 0.75, 1.0]).spending
        'obrien-fleming'
    """

    TABLE: ClassVar[str] = "looks"

    information: Information | Mapping[str, Any]
    at: At
    spending: SpendingOf = "obrien-fleming"
    futility: Futility = "none"
    power: Chance = 0.8

    @property
    def units(self) -> int | None:
        """In how many units there is all of the information, if these are counted."""
        return cast("Information", self.information).units

    @property
    def error(self) -> float | None:
        """At which standard error there is, if that is measured."""
        return cast("Information", self.information).error

    @property
    def events(self) -> int | None:
        """In how many events there is, if these are counted."""
        return cast("Information", self.information).events

    def faults(self) -> Iterator[str]:
        """What is wrong with the settings taken together."""
        if [self.units, self.error, self.events].count(None) != 2:
            yield "`looks.information` must have one of `units`, `error` and `events`."
        steps = [after - before for before, after in pairwise([0.0, *self.at])]
        if self.at and (self.at[-1] != 1 or min(steps) < _APART - 1e-9):
            yield f"`looks.at` must rise from at least {_APART:g}, in steps of at least {_APART:g}, and end with 1."
        for name, rate in (("spending", self.spending), ("futility", self.futility)):
            if not isinstance(rate, str):
                yield from self._rate_faults(name, rate)
        if not isinstance(self.futility, str) and self.futility and not _same(self.futility[-1], 1 - self.power):
            yield "`looks.futility` must end with 1 − `looks.power`, the chance to miss the effect."

    def _rate_faults(self, name: str, rate: Sequence[float]) -> Iterator[str]:
        rising = all(0 <= a <= b < 1 for a, b in pairwise([0.0, *rate]))
        if len(rate) != len(self.at) or not rising or rate[-1] <= 0:
            yield f"`looks.{name}` must have a number from 0 to 1 for each look in `looks.at`, and none may fall."

    def misfits(self, alpha: float) -> Iterator[str]:
        """A sentence if the looks spend another error rate than the plan's."""
        if not isinstance(self.spending, str) and self.spending and not _same(self.spending[-1], alpha):
            yield f"`looks.spending` must end with 1 − `confidence`, here {alpha:.10g}."


def _same(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=1e-9)
