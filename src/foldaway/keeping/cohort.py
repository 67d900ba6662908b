"""The gate of promise P2: whether tallies may be stored, and whether effects may be told.

Everything that collects asks here: the server, the stream consumer, Spark streams, runs over files, devices' collector
and sites. There are two doors. *Kept* is what a store holds, encrypted, to survive a crash; it is written only after a
cohort of distinct units has come since the last write. *Told* is what anybody else sees; it comes only after growth,
and only where enough units stand behind it. Both rules are given counts and never a value: a gate that looked at
outcomes would give them away by its silence, and one large customer could block it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Protocol

import msgspec

from foldaway.errors import TooEarly, many

# Records of one group that count towards a cohort, at least: more may be those of one unit.
_FEW = 4

GROWTH = 0.05
"""The share by which a trial must have grown before its effects are told again."""


class CohortSettings(Protocol):
    """The plan's `privacy`, as far as the gate reads it; plans lie above this room."""

    @property
    def cohort(self) -> int:
        """The fewest distinct units between two writes."""
        ...

    @property
    def smallest_cell(self) -> int:
        """The fewest units of every arm for an answer."""
        ...


class Newcomers(msgspec.Struct, frozen=True):
    """Who has come since tallies were last written. Adds up like a tally, and is never written itself.

    Attributes:
        records: How many records; messages, where whole units send these.
        units: How many of their units are known to be distinct.
        hashes: Keyed hashes of units that may come back, in memory only.

    Example:
        >>> new = Newcomers(3, 0, frozenset([7, 8])) + Newcomers(2, 0, frozenset([8]))
        >>> new.records, new.distinct
        (5, 2)
    """

    records: int = 0
    units: int = 0
    hashes: frozenset[int] = frozenset()

    def __add__(self, other: Newcomers) -> Newcomers:
        return Newcomers(self.records + other.records, self.units + other.units, self.hashes | other.hashes)

    def within(self, settings: CohortSettings) -> Newcomers:
        """With no more hashes than a cohort, since more make no difference."""
        if len(self.hashes) <= settings.cohort:
            return self
        return Newcomers(self.records, self.units, frozenset(islice(self.hashes, settings.cohort)))

    @property
    def distinct(self) -> int:
        """How many different units there are; at least, if these are a cohort."""
        return self.units + len(self.hashes)


def may_write(settings: CohortSettings, new: Newcomers) -> bool:
    """Whether a cohort of distinct units has come since the last write."""
    return new.distinct >= settings.cohort


class Census(msgspec.Struct, frozen=True):
    """How many stand behind tallies.

    Attributes:
        arms: By arm, the records in each group of units; a single number where units themselves are counted.
        by_group: Whether there are groups: as many units, at least, as groups have records.
        gone: By arm, the units that were counted once, and have withdrawn.
    """

    arms: dict[str, list[int]]
    by_group: bool = False
    gone: dict[str, int] = {}

    @property
    def most(self) -> int:
        """The most units of an arm that it can show."""
        return min(map(len, self.arms.values())) if self.by_group else self.total

    @property
    def total(self) -> int:
        """All of them: records, or units where these are counted."""
        return sum(sum(cells) for cells in self.arms.values())

    @property
    def moved(self) -> int:
        """How many have ever come, and gone."""
        return self.total + 2 * sum(self.gone.values())

    def __add__(self, other: Census) -> Census:
        """Of both, which are of one plan."""
        return Census(
            {arm: [a + b for a, b in zip(cells, other.arms[arm], strict=True)] for arm, cells in self.arms.items()},
            self.by_group,
            {arm: n + other.gone.get(arm, 0) for arm, n in self.gone.items()},
        )

    def grown_by(self, cohort: int, since: Census | None) -> bool:
        """Whether a cohort has come since another census; of a group a few count, as more may be one unit's."""
        if not self.by_group:
            return self.total - (0 if since is None else since.total) >= cohort
        before = {} if since is None else since.arms
        few = max(_FEW, math.ceil(2 * cohort / sum(map(len, self.arms.values()))))
        return cohort <= sum(
            min(now - then, few)
            for arm, cells in self.arms.items()
            for now, then in zip(cells, before.get(arm, [0] * len(cells)), strict=True)
        )

    def units(self, since: Census | None = None) -> dict[str, int]:
        """By arm, the units that are certainly among those who came since another census, or ever."""
        before = {} if since is None else since.arms
        return {arm: self._grown(cells, before.get(arm, ())) for arm, cells in self.arms.items()}

    def _grown(self, cells: Sequence[int], before: Sequence[int]) -> int:
        grown = [now - (before[i] if i < len(before) else 0) for i, now in enumerate(cells)]
        return sum(more > 0 for more in grown) if self.by_group else sum(grown)


class Told(msgspec.Struct, frozen=True):
    """What was told last: the effects as JSON, and who stood behind them."""

    census: Census
    effects: str

    def plus(self, other: Told | None) -> Told:
        """What was told of trials that are merged: of the whole nothing as yet, and of its parts no less than this."""
        return self if other is None else Told(self.census + other.census, "")


def may_tell(settings: CohortSettings, now: Census, last: Census | None, *, growth: float = GROWTH) -> bool:
    """Whether effects may be told, after those of the last census.

    Every arm has units enough, in all and among those by which it has grown, or is the same; and the trial has grown by
    a cohort and by a share.

    Example:
        >>> from foldaway import Privacy
        >>> first, second = Census({"a": [60], "b": [70]}), Census({"a": [160], "b": [75]})
        >>> may_tell(Privacy(), first, None), may_tell(Privacy(), second, first)
        (True, False)
    """
    # Groups cannot show more units than there are groups: then all of them must have somebody.
    least = min(settings.smallest_cell, now.most)
    before, gone = (0, {}) if last is None else (last.total, last.gone)
    same = {arm for arm, units in now.units(last).items() if units == 0 and now.gone.get(arm, 0) == gone.get(arm, 0)}
    return (
        all(units >= least for units in now.units().values())
        and all(arm in same or units >= least for arm, units in now.units(last).items())
        and now.grown_by(settings.cohort, last)
        and now.total - before >= growth * before
    )


def too_few_to_answer(settings: CohortSettings, units: Mapping[str, int]) -> dict[str, int]:
    """The arms that have too few units for an answer; there is one if there are none such."""
    return _fewer_than(settings.smallest_cell, units)


def too_early(settings: CohortSettings) -> TooEarly:
    """What to say while there is nothing to tell."""
    return TooEarly(
        f"there are no effects yet that others may see: they need {many(settings.cohort, 'unit')} (the plan's "
        f"`cohort`), and {many(settings.smallest_cell, 'unit')} in every arm (`smallest_cell`)."
    )


def least_to_publish(settings: CohortSettings) -> int:
    """How many of every arm must stand behind what a site sends, or what all devices are told during a trial."""
    return max(settings.smallest_cell, settings.cohort)


def too_few_to_publish(settings: CohortSettings, counts: Mapping[str, int]) -> dict[str, int]:
    """The arms that have too few for that."""
    return _fewer_than(least_to_publish(settings), counts)


def too_few_to_send(settings: CohortSettings, units: Mapping[str, int]) -> dict[str, int]:
    """The arms whose tallies may not leave a site; those of an arm without units say nothing, if another has some."""
    few = _fewer_than(least_to_publish(settings), units)
    return {arm: count for arm, count in few.items() if count} if any(units.values()) else few


def _fewer_than(least: int, counts: Mapping[str, int]) -> dict[str, int]:
    return {arm: count for arm, count in counts.items() if count < least}
