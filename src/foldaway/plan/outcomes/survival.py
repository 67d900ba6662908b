"""The time to an event, or to the end of follow-up."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from foldaway.numerics.block import LARGEST
from foldaway.plan.outcomes.binning import MOST_BINS
from foldaway.plan.outcomes.domain import NOT_NEGATIVE, ZERO_OR_ONE, Domain
from foldaway.plan.outcomes.exits import Exits
from foldaway.plan.outcomes.outcome import Column, Outcome
from foldaway.plan.outcomes.value import Value, shortest
from foldaway.plan.vocabulary import SUMS, SUMS_ALONE, Need

MOST_STRETCHES = MOST_BINS // 2 - 1

Until = Annotated[float, Meta(gt=0, le=LARGEST, description="a number above 0, in the unit of measure of the times")]
Stretches = Annotated[int, Meta(ge=1, le=MOST_STRETCHES, description=f"a whole number from 1 to {MOST_STRETCHES:,}")]
Times = Annotated[tuple[float, ...], Meta(description="a list of times up to `until`, as in [90, 180]")]

_HERE = Need(
    lambda plan: plan.federated is None or (plan.unit is not None and plan.keeps == SUMS),
    "{name!r} needs a histogram of exits. In a federated plan only sites that send sums have one: give it `unit` and "
    'mode "sums".',
)
_EXACT = Need(
    lambda plan: plan.release is None,
    "{name!r} needs a histogram of exits, which a `release` does not cover: leave one of them out.",
)

# So close to the end of a stretch, in stretches, a time is at it.
_AT_AN_END = 1e-6


class Survival(Outcome, frozen=True):
    """The time to an event, such as a relapse, of which it may only be known that it had not come by the last contact.

    A record is an exit: its time, and whether it was by the event. Its main number is the restricted mean: how long, of
    the time up to `until`, an arm is without the event on average. Kaplan–Meier curves, the log-rank test and a hazard
    ratio are shown beside it. All of them are read from a histogram by arm and group of units, in which a time is
    rounded up to the end of its bin.

    Attributes:
        time: The column with the time from assignment to the event, or to the last contact.
        event: The column that is 1 (true) if the event came at that time, and 0 (false) if it had not come.
        until: The end of follow-up. Events after it do not count.
        bins: Into how many bins of equal length the time up to `until` is cut. With one for each day, times in whole
            days are exact.
        at: Compare the probability that the event has not come by these times, in place of the restricted mean. Each is
            an outcome of its own.

    Example:
        >>> Survival("days", "relapsed", until=365).name
        'mean days within 365'
        >>> [each.name for each in Survival("days", "relapsed", until=360, bins=72, at=(90, 180)).apart()]
        ['days over 90', 'days over 180']
    """

    KIND: ClassVar[str] = "survival"
    LEVEL: ClassVar[str] = "restricted mean"
    READ_BY: ClassVar[tuple[str, ...]] = ("difference",)
    NEEDS: ClassVar[tuple[Need, ...]] = (SUMS_ALONE, _HERE, _EXACT)

    time: Column
    event: Column
    until: Until
    bins: Stretches = 100
    at: Times = ()

    @property
    def level(self) -> str:
        """What an arm's level of it is."""
        return "surviving share" if self.at else self.LEVEL

    @property
    def values(self) -> tuple[Value, ...]:
        """The time up to `until`, by whose sums records are counted; of these the histogram tells as much."""
        return (Value(self.time, (0.0, self.until), beside=(self.event,)),)

    @property
    def columns(self) -> tuple[str, ...]:
        """The times and the events."""
        return self.time, self.event

    @property
    def domains(self) -> Mapping[str, Domain]:
        """Times are not negative, and an event has come or not."""
        return {self.time: NOT_NEGATIVE, self.event: ZERO_OR_ONE}

    @property
    def binning(self) -> Exits:
        """That of its histogram."""
        return Exits(self.time, self.event, self.until, self.bins)

    @property
    def last(self) -> int:
        """The stretch at whose end it stops."""
        return round(self.at[0] / self.binning.width) if self.at else self.bins

    @property
    def default_name(self) -> str:
        """The mean time without the event within the follow-up, or the share whose time is over each of these."""
        if not self.at:
            return f"mean {self.time} within {shortest(self.until)}"
        return f"{self.time} over {', '.join(map(shortest, self.at))}"

    def apart(self) -> tuple[Survival, ...]:
        """One outcome for each time."""
        if len(self.at) < 2:
            return (self,)
        named = "" if self.name == self.default_name else self.name
        return tuple(
            msgspec.structs.replace(
                self,
                at=(time,),
                name=f"{named} over {shortest(time)}" if named else "",
                label=f"{self.label} over {shortest(time)}" if self.label else "",
            )
            for time in self.at
        )

    def faults(self) -> Iterator[str]:
        """What is wrong with the settings taken together."""
        yield from super().faults()
        if self.time == self.event:
            yield f"{self.time!r} cannot be both `time` and `event`: name two columns."
        if len(set(self.at)) < len(self.at):
            yield f"`at` of {self.default_name!r} contain one time twice."
        width = self.binning.width
        for time in self.at:
            if not 0 < time <= self.until:
                yield f"`at` of {self.default_name!r} must be times above 0 and at most `until`."
                return
            if not math.isclose(time / width, round(time / width), abs_tol=_AT_AN_END):
                yield (
                    f"survival is known at the ends of bins, every {width:,g}, which {shortest(time)} is not: choose "
                    "another `at`, or other `bins`."
                )
